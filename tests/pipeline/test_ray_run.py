"""Whole runs of the command line on a real local cluster, disturbed and not."""

import subprocess

import pytest

from kill import command, run_under_fire
from prunebench.store.diff import diff
from prunebench.store.read import read_failures, read_runs

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def words(address, workers):
    return ["--executor", "ray", "--address", address, "--set", f"executor.workers={workers}"]


@pytest.mark.parametrize("workers", [1, 2])
def test_ray_leaves_the_store_that_this_process_leaves(ray_cluster, finished, tmp_path, workers):
    path, undisturbed = finished
    done = subprocess.run(
        command(path, tmp_path / "store", *words(ray_cluster, workers)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert diff(undisturbed, tmp_path / "store") == []


def test_a_worker_and_then_the_driver_killed_change_nothing(ray_cluster, finished, tmp_path):
    path, undisturbed = finished
    store = tmp_path / "store"
    report = run_under_fire(path, store, words(ray_cluster, 2), worker_at=3, driver_at=12)
    assert report[-1] == "resumed: exit code 0"
    assert diff(undisturbed, store) == []
    assert list(read_runs(store).sort_values("started_at")["status"]) == ["killed or running", "done"]
    assert read_failures(store).empty


def test_two_drivers_on_one_store_both_finish_and_nothing_is_double(ray_cluster, finished, tmp_path):
    path, undisturbed = finished
    store = tmp_path / "store"
    drivers = [
        subprocess.Popen(command(path, store, *words(ray_cluster, 1)), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for driver in drivers:
        _, errors = driver.communicate()
        assert driver.returncode == 0, errors
    assert diff(undisturbed, store) == []


def test_a_gpu_that_the_cluster_lacks_is_exit_code_4(ray_cluster, finished, tmp_path):
    path, _ = finished
    more = [*words(ray_cluster, 1), "--set", "executor.gpus_per_worker=1"]
    done = subprocess.run(
        command(path, tmp_path / "store", *more), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 4, done.stderr
    assert "GPU" in done.stderr
    assert "Traceback" not in done.stderr
