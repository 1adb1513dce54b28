"""A run under a seeded schedule of faults on a cluster of several raylets, against an undisturbed one.

Run by hand: python benchmarks/faults.py [CONFIG] [--launch run|submit] [--undisturbed STORE] [--kills 20]
Workers, one raylet, the driver and the head are killed with SIGKILL, each at a number of units that the seed
draws; this script starts the head and the driver again, as a supervisor would. At the end `store diff`
against the undisturbed store has to be empty and the leaderboards the same text. At most 15 minutes.
"""

import argparse
import io
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from kill import PROGRAM, command, unit_events
from prunebench.pipeline.provenance import provenance
from prunebench.report.tables import leaderboard_table
from prunebench.report.terminal import print_leaderboard
from prunebench.store.diff import diff
from prunebench.store.read import units_present

ROOT = Path(__file__).parents[1]
LIMIT_S = 900
STORE_BYTES = 150 << 20
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
}
"""Ray takes a node for dead after 5 s instead of 30 s."""
HEADLESS = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
"""Processes that lost the head end after 10 s instead of 60 s, and with the dashboard a `submit --follow`."""


class Nodes:
    """A head without CPUs and nodes of one CPU each, as processes of this machine."""

    def __init__(self, count: int, *, dashboard: bool) -> None:
        self._count = count
        self._dashboard = dashboard
        self._port = 0
        self.start()

    def start(self) -> None:
        """A new cluster at the former one's address, if there was one."""
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "gcs_server_port": self._port,
                "include_dashboard": self._dashboard,
                "dashboard_agent_listen_port": free_port(),
                "object_store_memory": STORE_BYTES,
                "_system_config": QUICK,
            },
        )
        self.address = str(self._cluster.address)
        self._port = int(self.address.rpartition(":")[2])
        head: Any = self._cluster.head_node
        self.dashboard = f"http://{head.address_info['webui_url']}" if self._dashboard else ""
        self._nodes: list[Any] = []
        self.fill()

    def fill(self) -> None:
        """Add the nodes that are missing."""
        while len(self._nodes) < self._count:
            # As on machines of their own: Ray empties a job's folder for each node that shares the head's.
            temporary = tempfile.mkdtemp(prefix="pb-", dir="/tmp")
            node = self._cluster.add_node(
                num_cpus=1,
                object_store_memory=STORE_BYTES,
                temp_dir=temporary,
                dashboard_agent_listen_port=free_port(),
            )
            self._nodes.append(node)

    def kill_raylet(self, number: int) -> None:
        """SIGKILL to one node."""
        node = self._nodes.pop(number % len(self._nodes))
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)

    def kill_head(self) -> None:
        """SIGKILL to the head's processes."""
        head: Any = self._cluster.head_node
        for name in ("gcs_server", "raylet"):
            os.kill(head.all_processes[name][0].process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End what is left of it."""
        self._cluster.shutdown()


def free_port() -> int:
    """A port for an agent: Ray gives all the same one, and takes no jobs where the head's finds it taken."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


Launch = Callable[[Path, Path, Nodes, int], list[str]]


def run_command(config: Path, store: Path, nodes: Nodes, workers: int) -> list[str]:
    """`prunebench run` on the cluster."""
    words = ["--executor", "ray", "--address", nodes.address, "--set", f"executor.workers={workers}"]
    return command(config, store, *words)


def submit_command(config: Path, store: Path, nodes: Nodes, workers: int) -> list[str]:
    """`prunebench submit --to ray`, which follows the job to its end."""
    words = ["submit", str(config), "--to", "ray", "--address", nodes.dashboard, "--follow"]
    return [*PROGRAM, *words, "--store", str(store), "--set", f"executor.workers={workers}"]


LAUNCHES: dict[str, Launch] = {"run": run_command, "submit": submit_command}
"""How the driver is started."""


def kill_driver(store: Path) -> None:
    """SIGKILL to the process that writes the store, which for a submitted job is not the one started here."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(store) in words and "submit" not in words and any("python" in word for word in words[:1]):
            process.kill()


@dataclass(kw_only=True)
class Supervisor:
    """Starts the driver as often as the schedule ends it, and does what the schedule says at each unit."""

    launch: Callable[[], list[str]]
    store: Path
    nodes: Nodes
    schedule: dict[int, list[str]]
    """Number of units so far -> what is killed then."""
    draw: random.Random
    begun: float = field(default_factory=time.monotonic)
    count: int = 0
    killed: dict[str, int] = field(default_factory=dict)
    ended_by: str = ""
    """What of the schedule ends the driver that runs."""

    def say(self, line: str) -> None:
        """Print a line with the time."""
        print(f"{time.monotonic() - self.begun:6.1f} s  unit {self.count:4d}  {line}", flush=True)

    def run(self) -> int:
        """Drivers until one ends by itself; its exit code."""
        while True:
            process = subprocess.Popen(self.launch(), start_new_session=True)
            self.say(f"started a driver, {process.pid}")
            self._watch(process)
            code = process.wait()
            self.say(f"the driver ended with exit code {code}")
            if not self.ended_by or time.monotonic() - self.begun > LIMIT_S:
                return code
            ended_by, self.ended_by = self.ended_by, ""
            if ended_by == "head":
                self.nodes.stop()
                self.nodes.start()
                self.say(f"started the head again at {self.nodes.address}")

    def _watch(self, process: subprocess.Popen[Any]) -> None:
        before = self.count
        for place, event in enumerate(unit_events(self.store, process), start=1):
            if time.monotonic() - self.begun > LIMIT_S:
                process.kill()
                raise SystemExit(f"not done in {LIMIT_S} s")
            if place <= before:
                continue
            self.count = place
            for what in self.schedule.pop(place, ()):
                self._kill(what, event)

    def _kill(self, what: str, event: dict[str, str]) -> None:
        self.killed[what] = self.killed.get(what, 0) + 1
        match what:
            case "worker":
                try:
                    os.kill(int(event["worker"]), signal.SIGKILL)
                except ProcessLookupError:
                    # It is gone already: the next unit's worker takes its place.
                    self.killed[what] -= 1
                    self.schedule.setdefault(self.count + 1, []).append(what)
                    return
                self.say(f"killed worker {event['worker']}")
            case "raylet":
                self.nodes.kill_raylet(self.draw.randrange(8))
                self.say("killed a raylet")
                self.nodes.fill()
                self.say("added a node")
            case "driver":
                self.ended_by = what
                kill_driver(self.store)
                self.say("killed the driver")
            case "head":
                self.ended_by = what
                self.nodes.kill_head()
                self.say("killed the head")


def drawn(units: int, kills: int, draw: random.Random) -> dict[int, list[str]]:
    """What is killed at which unit: workers anywhere, the rest at a quarter, half, three quarters."""
    schedule: dict[int, list[str]] = {}
    for place in sorted(draw.sample(range(2, max(units - 2, kills + 3)), kills)):
        schedule.setdefault(place, []).append("worker")
    for what, part in (("raylet", 0.25), ("driver", 0.5), ("head", 0.75)):
        schedule.setdefault(int(units * part), []).append(what)
    return schedule


def leaderboard_text(store: Path) -> str:
    """The leaderboard as `prunebench run` prints it."""
    text = io.StringIO()
    print_leaderboard(leaderboard_table(store), Console(file=text, width=160))
    return text.getvalue()


def main() -> None:
    """Make or take the undisturbed store, run under fire, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "config", nargs="?", type=Path, default=ROOT / "configs" / "benchmark" / "quickstart.yaml"
    )
    parser.add_argument("--undisturbed", type=Path)
    parser.add_argument("--launch", choices=sorted(LAUNCHES), default="run")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    os.environ |= HEADLESS
    # Jobs take the python of the head's PATH.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = arguments.out or Path(tempfile.mkdtemp(prefix="prunebench-faults-"))
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores; stores in {folder}", flush=True)
    calm = arguments.undisturbed or folder / "undisturbed"
    if not arguments.undisturbed:
        subprocess.run(command(arguments.config, calm), check=True)
    draw = random.Random(arguments.seed)
    schedule = drawn(len(units_present(calm)), arguments.kills, draw)
    store = folder / "fire"
    nodes = Nodes(arguments.workers, dashboard=arguments.launch == "submit")
    supervisor = Supervisor(
        launch=lambda: LAUNCHES[arguments.launch](arguments.config, store, nodes, arguments.workers),
        store=store,
        nodes=nodes,
        schedule=schedule,
        draw=draw,
    )
    try:
        code = supervisor.run()
    finally:
        nodes.stop()
    if code:
        raise SystemExit(f"exit code {code}: nothing to compare")
    different = diff(calm, store)
    same = leaderboard_text(calm) == leaderboard_text(store)
    print(f"killed: {supervisor.killed}; left of the schedule: {supervisor.schedule}")
    print(f"exit code {code}, {time.monotonic() - supervisor.begun:.0f} s")
    print(f"store diff: {'empty' if not different else different[:5]}")
    print(f"leaderboard: {'equal' if same else 'different'}")
    sys.exit(bool(different or not same or supervisor.schedule))


if __name__ == "__main__":
    main()
