"""A run under fire: a worker and then the driver are killed with SIGKILL, and the resumed store is compared.

Run by hand: python benchmarks/kill.py [CONFIG] [--out FOLDER]
The kills are driven by events (the units that the run's log shows), not by time. Four stores are made
(undisturbed in this process, Ray with one worker, Ray with two, Ray with two under fire) and must not differ.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prunebench.pipeline.provenance import provenance
from prunebench.store.diff import diff

POLL_S = 0.02
PROGRAM = (sys.executable, "-c", "from prunebench.cli import main; main()")


def command(config: Path, store: Path, *words: str) -> list[str]:
    """`prunebench run` on a store, in this interpreter."""
    return [*PROGRAM, "run", str(config), "--store", str(store), "--quiet", *words]


def unit_events(store: Path, process: subprocess.Popen[Any]) -> Iterator[dict[str, str]]:
    """The unit events of all runs on the store, as the living process writes them."""
    seen = 0
    while True:
        alive = process.poll() is None
        logs = sorted((store / "runs").glob("*.jsonl"))
        lines = [line for log in logs for line in log.read_text().split("\n")[:-1] if '"unit"' in line]
        for line in lines[seen:]:
            yield json.loads(line)
        seen = len(lines)
        if not alive:
            return
        time.sleep(POLL_S)


def run_under_fire(
    config: Path, store: Path, words: Sequence[str], worker_at: int, driver_at: int
) -> list[str]:
    """Kill the worker of unit number `worker_at` and the driver at `driver_at`, then run to the end."""
    report = []
    process = subprocess.Popen(command(config, store, *words), start_new_session=True)
    for count, event in enumerate(unit_events(store, process), start=1):
        if count == worker_at:
            os.kill(int(event["worker"]), signal.SIGKILL)
            report.append(f"killed worker {event['worker']} at unit {count}")
        if count == driver_at:
            process.kill()
            process.wait()
            report.append(f"killed the driver at unit {count}")
            break
    if len(report) < 2:
        raise SystemExit(f"the run ended before both kills: {report}")
    done = subprocess.run(command(config, store, *words), check=False)
    report.append(f"resumed: exit code {done.returncode}")
    return report


def main() -> None:
    """Make the four stores and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parents[1] / "configs" / "benchmark" / "quickstart.yaml"
    parser.add_argument("config", nargs="?", type=Path, default=default)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--worker-at", type=int, default=20)
    parser.add_argument("--driver-at", type=int, default=60)
    arguments = parser.parse_args()
    folder = arguments.out or Path(tempfile.mkdtemp(prefix="prunebench-kill-"))
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores; stores in {folder}", flush=True)
    ways = {
        "local": ["--executor", "local"],
        "ray1": ["--executor", "ray", "--set", "executor.workers=1"],
        "ray2": ["--executor", "ray", "--set", "executor.workers=2"],
    }
    for name, words in ways.items():
        started = time.perf_counter()
        done = subprocess.run(command(arguments.config, folder / name, *words), check=False)
        print(f"{name}: exit code {done.returncode}, {time.perf_counter() - started:.0f} s", flush=True)
    fire = run_under_fire(
        arguments.config, folder / "fire", ways["ray2"], arguments.worker_at, arguments.driver_at
    )
    print("\n".join(fire), flush=True)
    different = 0
    for name in ("ray1", "ray2", "fire"):
        differences = diff(folder / "local", folder / name)
        different += bool(differences)
        print(f"local against {name}: {'equal' if not differences else differences[:5]}", flush=True)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
