"""Faults on a real cluster of several raylets, injected where a worker waits at a gate, not by the clock."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fake_worker
import fault_driver
import prunebench
from prunebench.store.diff import diff
from prunebench.store.read import read_failures, read_runs, units_present

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SCRIPT = Path(fault_driver.__file__)
PLANS = [plan.plan_id for plan in fake_worker.PLANS]
UNITS = [fake_worker.items(1)[0].unit.for_plan(plan).unit_id for plan in PLANS]
"""Of the first range."""
STORE_BYTES = 80 << 20
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Ray takes a node for dead after 3 s instead of 30 s."""


def raylet_of(node):
    return node.all_processes["raylet"][0].process


class Nodes:
    """A head without CPUs, and nodes of one CPU each, as processes of this machine."""

    def __init__(self, port: int = 0, **config: float) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "gcs_server_port": port,
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
                "_system_config": {**QUICK, **config},
            },
        )
        self.address = str(self.cluster.address)
        self.nodes = []

    def want(self, count):
        while len(self.nodes) < count:
            self.nodes.append(self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES))

    def kill(self):
        """SIGKILL to a raylet."""
        raylet_of(self.nodes.pop()).kill()

    def preempt(self, worker):
        """SIGTERM to the raylet of a worker, and wait for its end."""
        parent = psutil.Process(worker).ppid()
        (node,) = [node for node in self.nodes if raylet_of(node).pid == parent]
        self.nodes.remove(node)
        raylet_of(node).terminate()
        raylet_of(node).wait()

    def kill_head(self):
        assert self.cluster.head_node is not None
        for name in ("gcs_server", "raylet"):
            os.kill(self.cluster.head_node.all_processes[name][0].process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def nodes():
    made = Nodes()
    yield made
    made.cluster.shutdown()


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The store of an undisturbed run in this machine's one process."""
    folder = tmp_path_factory.mktemp("calm")
    assert start(folder / "store", "local", folder, 1).wait() == 0
    return folder / "store"


def start(store, address, orders, workers, *waits, limit=None):
    """A driver; `limit` bytes are the most that it may write to one file."""
    path = os.pathsep.join([str(SCRIPT.parent), str(Path(prunebench.__file__).parents[1])])
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, (store, address, orders, workers, *waits))],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))),
    )


def arrived(orders, unit, process):
    """The process id of the worker that waits at the unit's gate."""
    while not (found := list(orders.glob(f"at-{unit}-*"))):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    for path in found:
        path.unlink()
    return int(found[0].name.rpartition("-")[2])


def ended(process, code=0):
    _, errors = process.communicate(timeout=180)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return errors


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def last_faults(store):
    lines = max((store / "runs").glob("*.jsonl"), key=lambda path: path.name).read_text().splitlines()
    return json.loads(lines[-1])["faults"]


@pytest.mark.timeout(240)
def test_three_workers_a_raylet_and_the_driver_killed_change_nothing(nodes, calm, tmp_path):
    nodes.want(2)
    for place in (1, 4, 6):
        (tmp_path / f"kill-{PLANS[place]}").write_text("1")
    gates = [tmp_path / f"gate-{UNITS[place]}" for place in (8, 10)]
    for gate in gates:
        gate.touch()
    store = tmp_path / "store"
    driver = start(store, nodes.address, tmp_path, 2)
    arrived(tmp_path, UNITS[8], driver)
    nodes.kill()
    gates[0].unlink()
    nodes.want(2)
    arrived(tmp_path, UNITS[10], driver)
    driver.kill()
    driver.communicate()
    gates[1].unlink()
    before = len(units_present(store))
    assert 0 < before < len(PLANS) * fault_driver.RANGES
    ended(start(store, nodes.address, tmp_path, 2))
    assert diff(calm, store) == []
    assert read_failures(store).empty
    assert list(read_runs(store).sort_values("started_at")["status"]) == ["killed or running", "done"]


def test_a_worker_that_hangs_is_killed_and_its_unit_given_up_after_three(nodes, calm, tmp_path):
    nodes.want(1)
    gate = tmp_path / f"gate-{UNITS[5]}"
    gate.touch()
    store = tmp_path / "store"
    said = ended(start(store, nodes.address, tmp_path, 1, 60, 2), code=3)
    assert "was lost: it said nothing for" in said
    assert "1 units given up" in said
    failures = read_failures(store)
    assert list(failures["key"]) == [UNITS[5]]
    assert failures["error"].str.contains("in flight at 3 worker deaths, the last: it said nothing").all()
    assert last_faults(store)["units_given_up"] == 1
    gate.unlink()
    ended(start(store, nodes.address, tmp_path, 1))
    assert diff(calm, store) == []


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_in_the_middle_of_a_long_unit_ends_the_run_and_its_workers(nodes, calm, tmp_path, signals):
    nodes.want(1)
    gate = tmp_path / f"gate-{UNITS[7]}"
    gate.touch()
    store = tmp_path / "store"
    driver = start(store, nodes.address, tmp_path, 1)
    worker = arrived(tmp_path, UNITS[7], driver)
    started = time.monotonic()
    for _ in range(signals):
        driver.terminate()
    ended(driver, code=130)
    assert time.monotonic() - started < 30
    while alive(worker):
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    assert len(units_present(store)) <= 7
    gate.unlink()
    ended(start(store, nodes.address, tmp_path, 1))
    assert diff(calm, store) == []


def test_a_run_without_workers_waits_for_a_node_up_to_a_limit(nodes, calm, tmp_path):
    nodes.want(1)
    gate = tmp_path / f"gate-{UNITS[3]}"
    gate.touch()
    store = tmp_path / "store"
    driver = start(store, nodes.address, tmp_path, 1, 30, 600)
    arrived(tmp_path, UNITS[3], driver)
    while nodes.nodes:
        nodes.kill()
    said = ended(driver, code=4)
    assert "waiting for 1 CPU: the cluster has 0" in said
    assert "run the same command to resume, or raise executor.wait_s" in said

    nodes.want(1)
    driver = start(store, nodes.address, tmp_path, 1, 300, 600)
    arrived(tmp_path, UNITS[3], driver)
    nodes.kill()
    assert driver.stderr is not None
    while "waiting for 1 CPU" not in (line := driver.stderr.readline()):
        assert line, "the run ended"
    nodes.want(1)
    gate.unlink()
    ended(driver)
    assert last_faults(store)["workers_lost"] == 1
    assert last_faults(store)["seconds_waiting"] > 3
    assert diff(calm, store) == []


def test_a_node_that_is_told_to_go_leaves_its_work_to_the_others(nodes, calm, tmp_path):
    nodes.want(2)
    gate = tmp_path / f"gate-{UNITS[8]}"
    gate.touch()
    store = tmp_path / "store"
    driver = start(store, nodes.address, tmp_path, 2)
    nodes.preempt(arrived(tmp_path, UNITS[8], driver))
    # The other one comes to the gate, too, and meanwhile there is no room for a second.
    arrived(tmp_path, UNITS[8], driver)
    said, heard = "", driver.stderr
    assert heard is not None
    while "2 workers need 2 CPUs, but the cluster has 1: 1 of them go on" not in said:
        said += (line := heard.readline())
        assert line, said
    gate.unlink()
    ended(driver)
    assert " was lost: " in said
    assert len(nodes.nodes) == 1
    assert last_faults(store)["workers_lost"] >= 1
    assert diff(calm, store) == []
    assert read_failures(store).empty


def test_an_error_in_one_unit_is_a_failure_until_the_next_run(nodes, calm, tmp_path):
    nodes.want(2)
    (tmp_path / f"raise-{PLANS[4]}").touch()
    store = tmp_path / "store"
    ended(start(store, nodes.address, tmp_path, 2), code=3)
    assert len(units_present(store)) == (len(PLANS) - 1) * fault_driver.RANGES
    (log,) = (store / "runs").glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    failures = [line for line in lines if line["event"] == "failure"]
    assert {line["plan_id"] for line in failures} == {PLANS[4]}
    assert {(line["run_id"], line["task"], line["attempt"]) for line in failures} == {(log.stem, "fake", 1)}
    (tmp_path / f"raise-{PLANS[4]}").unlink()
    ended(start(store, nodes.address, tmp_path, 2))
    assert diff(calm, store) == []
    assert read_failures(store)["superseded"].all()


def test_a_full_disk_a_torn_file_a_clock_that_jumps_and_a_second_driver_lose_nothing(nodes, calm, tmp_path):
    nodes.want(2)
    store = tmp_path / "store"
    # Of 5,000 bytes the log of a run becomes too large.
    said = ended(start(store, nodes.address, tmp_path, 2, limit=5_000), code=4)
    assert f"cannot write {store}/" in said
    before = units_present(store)
    assert 0 < len(before) < len(UNITS) * fault_driver.RANGES
    (part,) = (store / "samples").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-20])
    said = ended(start(store, nodes.address, tmp_path, 2), code=2)
    assert f"{part} is not a readable Parquet file of this store" in said
    part.unlink()
    (tmp_path / "jump").touch()
    for driver in [start(store, nodes.address, tmp_path, 1) for _ in range(2)]:
        ended(driver)
    assert diff(calm, store) == []
    assert read_failures(store).empty


@pytest.mark.parametrize(("workers", "seen"), [("3x0.5", ["0", "0", "1"]), ("1x2", ["0,1"])])
def test_workers_share_gpus_or_get_several(nodes, calm, tmp_path, workers, seen):
    """Ray's book-keeping of GPUs needs none."""
    node = nodes.cluster.add_node(num_cpus=4, num_gpus=2, object_store_memory=STORE_BYTES)
    (tmp_path / "gpus").touch()
    gates = [tmp_path / f"gate-{item.unit.for_plan(PLANS[3]).unit_id}" for item in fake_worker.items(3)]
    for gate in gates:
        gate.touch()
    driver = start(tmp_path / "store", nodes.address, tmp_path, workers)
    while len(found := list(tmp_path.glob("sees-*"))) < len(seen):
        assert driver.poll() is None, "it ended"
        time.sleep(0.02)
    assert sorted(path.read_text() for path in found) == seen
    for gate in gates:
        gate.unlink()
    ended(driver)
    nodes.cluster.remove_node(node)
    assert diff(calm, tmp_path / "store") == []


def test_a_worker_that_takes_the_memory_of_its_node_is_killed_and_its_unit_tried_again(calm, tmp_path):
    memory = psutil.virtual_memory()
    # Room for what else runs on this machine meanwhile.
    room = min(memory.available // 2, 4 << 30)
    share = (memory.total - memory.available + room) / memory.total
    full = Nodes(memory_usage_threshold=share, memory_monitor_refresh_ms=100)
    full.want(1)
    (tmp_path / f"eat-{PLANS[6]}").write_text(str(room + (1 << 30)))
    store = tmp_path / "store"
    said = ended(start(store, full.address, tmp_path, 1))
    full.cluster.shutdown()
    assert "running low on memory" in said
    assert last_faults(store)["workers_lost"] >= 1
    assert diff(calm, store) == []
    assert read_failures(store).empty


def test_a_head_that_dies_ends_the_run_with_a_sentence_and_another_head_resumes_it(calm, tmp_path):
    first = Nodes()
    first.want(1)
    gate = tmp_path / f"gate-{UNITS[2]}"
    gate.touch()
    store = tmp_path / "store"
    driver = start(store, first.address, tmp_path, 1)
    arrived(tmp_path, UNITS[2], driver)
    first.kill_head()
    said = ended(driver, code=4)
    assert f"the head of the Ray cluster at {first.address} is gone" in said
    assert "run the same command to resume" in said
    assert len(units_present(store)) == 2
    first.cluster.shutdown()
    gate.unlink()
    second = Nodes(port=int(first.address.rpartition(":")[2]))
    second.want(1)
    ended(start(store, second.address, tmp_path, 1))
    second.cluster.shutdown()
    assert diff(calm, store) == []
