"""Jobs on a real head with dashboard and job agent, its token on and off."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from prunebench.cluster import submit
from prunebench.store.diff import diff
from ray_head import ray_head, without_ray

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-these-tests-alone"
pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def guarded():
    """Job address of a head that asks for a token."""
    with ray_head(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN) as address:
        yield address


@pytest.fixture
def trusted(prunebench, monkeypatch):
    """The command line with the token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    return prunebench


def listed(prunebench, address):
    code, out, _ = prunebench("status", address, "--json")
    assert code == 0
    return {job["submission_id"]: job for job in json.loads(out)}


def test_a_run_is_submitted_joined_and_never_doubled(guarded, trusted, finished, tmp_path, monkeypatch):
    config, undisturbed = finished
    store = tmp_path / "store"
    words = ("submit", config, "--address", guarded, "--store", store)

    code, out, err = trusted(*words)
    assert code == 0, err
    first = out.strip()
    run = first.removesuffix("-1")
    assert f"ray job submit --no-wait --address {guarded} --submission-id {first}" in err
    assert TOKEN not in err

    code, _, err = trusted(*words)
    assert code == 2
    assert f"already running as {first}" in err or f"already pending as {first}" in err

    code, out, err = trusted(*words, "--follow", "--set", "executor.workers=2")
    assert code == 0, out + err
    assert f"joined {first}" in err
    assert f"{first} SUCCEEDED, exit code 0" in err
    assert f"store: {store}" in out
    assert diff(undisturbed, store) == []

    code, out, err = trusted(*words, "--json")
    assert code == 0, err
    second = json.loads(out)["submission_id"]
    assert second == f"{run}-2"
    code, out, err = trusted("stop", second, "--address", guarded)
    assert (code, out.strip()) == (0, f"{second} STOPPED"), err

    # Another process that looked at the same moment also saw neither attempt.
    with monkeypatch.context() as patch:
        patch.setattr(submit.JobApi, "running", lambda *_: None)
        patch.setattr(submit.JobApi, "next_id", lambda *_: second)
        code, _, err = trusted(*words)
    assert code == 2
    assert "the same run was submitted at this moment by another process" in err

    jobs = listed(trusted, guarded)
    assert [jobs[name]["state"] for name in (first, second)] == ["SUCCEEDED", "STOPPED"]
    assert jobs[first]["store"] == str(store)
    assert jobs[first]["units_done"] > 0
    code, out, _ = trusted("status", guarded)
    assert f"{second}  STOPPED" in out
    assert f"{store}: {jobs[first]['units_done']} units done" in out


def test_follow_ends_with_the_jobs_own_exit_code(guarded, trusted, write_config, tmp_path):
    config = write_config(budgets=[50])
    code, out, err = trusted("submit", config, "--address", guarded, "--store", tmp_path / "s", "--follow")
    assert code == 2, out + err
    assert "error:" in out
    assert "FAILED, exit code 2" in err
    code, _, err = trusted("stop", "prunebench-nothing-1", "--address", guarded)
    assert code == 2
    assert "knows no job prunebench-nothing-1" in err


def test_without_the_right_token_nothing_is_sent(guarded, prunebench, finished, tmp_path, monkeypatch):
    words = ("submit", finished[0], "--address", guarded, "--store", tmp_path / "s")
    code, _, err = prunebench(*words)
    assert code == 4
    assert "asks for a token, and here is none: set RAY_AUTH_TOKEN" in err
    file = tmp_path / "token"
    file.write_text("another\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    for verb in (words, ("status", guarded), ("stop", "prunebench-a-1", "--address", guarded)):
        code, out, err = prunebench(*verb)
        assert (code, out) == (4, "")
        assert f"refuses the token of {file}" in err
    file.write_text(f"{TOKEN}\n")
    assert prunebench("status", guarded)[0] == 0


def test_gpus_that_a_cluster_lacks_are_told_before_anything_is_sent(guarded, trusted, finished):
    words = ("submit", finished[0], "--address", guarded, "--store", "/shared/s")
    code, _, err = trusted(*words, "--set", "executor.gpus_per_worker=1")
    assert code == 4
    assert "need 1 GPUs, but the Ray cluster has 0" in err
    code, _, err = trusted(*words, "--set", "models.0.device=cuda")
    assert code == 4
    assert "need 1 GPUs, but the Ray cluster has 0" in err
    code, _, err = trusted(*words, "--set", "executor.workers=3")
    assert code == 4
    assert "need 3 CPUs, but the Ray cluster has 2" in err
    assert not any(job["store"] == "/shared/s" for job in listed(trusted, guarded).values())


def test_ctrl_c_leaves_a_followed_job_alone(guarded, write_config, tmp_path):
    """In a process of its own: the signal comes once the job's log has begun."""
    config = write_config("slow.yaml", budgets=[1, 2, 3])
    store = tmp_path / "store"
    words = ["submit", str(config), "--address", guarded, "--store", str(store)]
    # A shell that runs the tests in the background lets its children ignore Ctrl-C.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{hears}; from prunebench.cli import main; main({[*words, '--follow']!r})"],
        cwd=ROOT, env=without_ray(RAY_AUTH_TOKEN=TOKEN),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    guard = threading.Timer(120, process.kill)
    guard.start()
    assert process.stdout is not None
    assert "Runtime env" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    guard.cancel()
    assert process.returncode == 130, err
    assert "goes on" in err
    assert "Traceback" not in err
    stop = next(line.split() for line in err.splitlines() if "prunebench stop" in line)
    done = subprocess.run(
        [sys.executable, "-c", f"from prunebench.cli import main; main({stop[1:]!r})"],
        cwd=ROOT, env=without_ray(RAY_AUTH_TOKEN=TOKEN), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [stop[2], "STOPPED"], done.stderr


def test_a_search_is_submitted_to_a_head_without_tokens(prunebench, write_search, tmp_path):
    config = write_search(methods=[{"method": "lorp", "space": {"clusters": [2, 3]}}], trials=2)
    with ray_head(cpus=1, RAY_AUTH_MODE="disabled") as address:
        store = tmp_path / "found"
        code, out, err = prunebench("submit", config, "--address", address, "--store", store, "--follow")
    assert code == 0, out + err
    assert "Running entrypoint for job" in out
    assert "jobs/search.py" in out
    assert (store / "trials" / "tune.parquet").exists()


def test_local_runs_here_on_a_ray_of_its_own(write_config, tmp_path):
    config = write_config(methods=[{"method": "last_n"}], budgets=[1])
    words = ["submit", str(config), "--to", "local", "--json"]
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", f"from prunebench.cli import main; main({words!r})"],
            cwd=ROOT, env=without_ray(RAY_AUTH_MODE="disabled", OMP_NUM_THREADS="1"),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        # On a loaded machine Ray may give up at its start.
        if "timed out during startup" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["store"] == str(tmp_path / "store")
    assert (tmp_path / "store").is_dir()
