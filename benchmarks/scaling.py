"""How far one driver goes: units a second through Ray and the ledger, its memory, and two workers for one.

Run by hand: python benchmarks/scaling.py [idle|long|real ...]   (all three by default; quiet machine)

idle  10,000 units of no work through Ray and the ledger: units a second, the driver's CPU time for each.
long  100,000 units of no work through the ledger in this process: memory on the way, files, and the
      time to read the results.
real  units of the real model on two one-thread workers against one (PRUNEBENCH_CACHE).
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from prunebench.cli.executors import executor_of
from prunebench.cluster.connect import connect
from prunebench.cluster.executor import RayExecutor
from prunebench.cluster.placement import Placement
from prunebench.config.experiment import load_experiment
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import EvaluateItem, Message, Sample, Unit, UnitDone, WorkItem
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.provenance import provenance
from prunebench.pipeline.session import open_session
from prunebench.store.artifacts import save_exam, save_plan, save_variant
from prunebench.store.derive import derive_results
from prunebench.store.layout import open_store
from prunebench.store.read import read_samples
from prunebench.store.record import Variant

DEPTH = 30
PLANS = tuple(PruningPlan.without([i, j], DEPTH) for i in range(10) for j in range(10, 12))
UNIT = Unit(
    weights_id="w",
    tokenizer_hash="t",
    plan_id="",
    task="idle",
    task_version="1",
    recipe="{}",
    document_hash="0",
    start=0,
    stop=1,
    dtype="float32",
    attention="sdpa",
    scorer_version="1",
)
REAL = """
models: [{path: "builtin:smollm2-135m", dtype: float32}]
methods: [{method: last_n}, {method: random}]
budgets: [3, 6, 9]
tasks: {text: {kind: perplexity, text: "builtin:pydoc:perplexity?samples=160&length=64"}}
store: store
"""


class IdleWorker:
    """Answers every unit with one sample, at once."""

    def run(self, item: WorkItem) -> Iterator[Message]:
        """One sample a plan."""
        assert isinstance(item, EvaluateItem)
        for plan in item.plans:
            sample = Sample(doc_id=item.unit.start, doc_hash="0", metric="acc", value=1.0)
            yield UnitDone(unit=item.unit.for_plan(plan.plan_id), samples=(sample,), seconds=0.0)


def work(first: int, units: int) -> list[EvaluateItem]:
    """Items of 20 units each, beginning with the range `first`."""
    keys = [
        replace(UNIT, document_hash=str(start), start=start, stop=start + 1)
        for start in range(first, first + units // len(PLANS))
    ]
    return [EvaluateItem(model="m", kind="idle", unit=key, documents=(), plans=PLANS) for key in keys]


def verdict(text: str, held: bool) -> None:
    """A line with whether its target was met."""
    print(f"{'held  ' if held else 'MISSED'} {text}", flush=True)


def idle(units: int = 10_000, workers: int = 2) -> None:
    """Units of no work through Ray."""
    connect(None, cpus=workers, environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    executor = RayExecutor("scaling:IdleWorker", (), Placement(workers=workers, threads=1))
    warm = 5 * len(PLANS)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with open_session(store, executor, Silent(), {"kind": "benchmark"}) as session:
            session.work("warm up", work(0, warm), warm)
            before = memory()
            wall, cpu = time.perf_counter(), time.process_time()
            session.work("units", work(5, units), units)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            after = memory()
        stored = read_samples(store)["unit_id"].nunique()
    verdict(f"{units} units in {wall:.1f} s: {units / wall:.0f} units/s (target 200)", units / wall >= 200)
    verdict(f"driver: {1000 * cpu / units:.2f} ms of CPU time a unit (target 5)", 1000 * cpu / units <= 5)
    print(f"       driver: {before:.0f} MiB before, {after:.0f} MiB after them")
    verdict(f"units in the store: {stored} of {units + warm}", stored == units + warm)


def variants(store: Path) -> None:
    """A row for each plan, so that there are results to derive."""
    for place, plan in enumerate(PLANS):
        save_plan(store, plan)
        save_variant(
            store,
            Variant(
                model="m",
                weights_id=UNIT.weights_id,
                dtype=UNIT.dtype,
                attention=UNIT.attention,
                method=f"method{place}",
                params_json="{}",
                budget="2",
                budget_layers=2,
                num_layers=DEPTH,
                projection_params=DEPTH,
                plan_id=plan.plan_id,
                removed_layers=plan.removed_layers,
                removed_params=2,
                total_params=DEPTH - 2,
            ),
        )


def memory() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def long(units: int = 100_000) -> None:
    """Many units through one driver's ledger."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        variants(store)
        at: dict[int, float] = {}
        with open_session(store, LocalExecutor(IdleWorker), Silent(), {"kind": "benchmark"}) as session:
            cpu = time.process_time()
            for start in range(0, units, 10_000):
                items = work(start // len(PLANS), 10_000)
                session.log.exam(save_exam(store, [item.unit for item in items]))
                session.work("units", items, 10_000)
                at[start + 10_000] = memory()
            cpu = time.process_time() - cpu
        files = len(list((store / "samples").iterdir()))
        wall = time.perf_counter()
        results = pd.read_parquet(store / "results")
        read = time.perf_counter() - wall
        wall = time.perf_counter()
        derive_results(store)
        derived = time.perf_counter() - wall
    shown = ", ".join(
        f"{size:.0f} MiB after {count}" for count, size in at.items() if count in (10_000, 50_000, units)
    )
    growth = (at[units] - at[10_000]) / (units - 10_000) * 1e6 / 1024
    verdict(f"driver: {shown}: {growth:.2f} GiB a million units (target 1)", growth <= 1)
    verdict(f"{1000 * cpu / units:.2f} ms of CPU time a unit through the ledger alone", cpu / units <= 0.005)
    verdict(f"{files} files of samples (target: fewer than 64)", files < 64)
    verdict(
        f"results of {len(results)} rows read in {read:.2f} s (target 5)",
        read <= 5 and len(results) == len(PLANS),
    )
    print(f"       derived in {derived:.1f} s")


class Clock:
    """A progress that notes when each unit of the evaluation comes."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._evaluating = False

    def start(self, stage: str, total: int, *, done: int = 0) -> None:
        """A stage begins."""
        self._evaluating = stage == "evaluate"

    def advance(self, *, failed: bool = False) -> None:
        """A step came."""
        if self._evaluating:
            self.times.append(time.perf_counter())

    def finish(self) -> None:
        """A stage ended."""


def throughput(workers: int) -> float:
    """Units a second from when every worker has its model: the middle half of the run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "real.yaml"
        path.write_text(REAL)
        setting = load_experiment(path, ["executor.kind=ray", f"executor.workers={workers}"])
        clock = Clock()
        run_benchmark(setting, Path(folder) / "store", executor_of(setting.executor), clock)
    times = clock.times
    first, last = len(times) // 4, 3 * len(times) // 4
    return (last - first) / (times[last] - times[first])


def real() -> None:
    """Two workers against one."""
    import ray

    found = []
    for workers in (1, 2):
        found.append(throughput(workers))
        ray.shutdown()
    one, two = found
    verdict(
        f"real units: {one:.2f}/s with one worker, {two:.2f}/s with two: {two / one:.2f} (target 1.8)",
        two >= 1.8 * one,
    )


PARTS: dict[str, Callable[[], None]] = {"idle": idle, "long": long, "real": real}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="what to measure; everything by default")
    machine = provenance()
    chosen = parser.parse_args(arguments).parts or list(PARTS)
    print(f"{machine['processor']}, {machine['cores']} cores, Python {sys.version.split()[0]}")
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
