"""Units without work through Ray and the ledger: units a second, and the driver's time for each.

Run by hand: python benchmarks/ledger.py [--units 5000] [--workers 2]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from prunebench.cluster.connect import connect
from prunebench.cluster.executor import RayExecutor
from prunebench.cluster.placement import Placement
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import EvaluateItem, Message, Sample, Unit, UnitDone
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.provenance import provenance
from prunebench.pipeline.session import open_session
from prunebench.store.read import read_samples

PLANS = tuple(PruningPlan.without([i, j], 30) for i in range(10) for j in range(10, 12))


class IdleWorker:
    """Answers every unit with one sample, at once."""

    def run(self, item: EvaluateItem) -> Iterator[Message]:
        """One sample a plan."""
        for plan in item.plans:
            sample = Sample(doc_id=item.unit.start, doc_hash="0", metric="acc", value=1.0)
            yield UnitDone(unit=item.unit.for_plan(plan.plan_id), samples=(sample,), seconds=0.0)


def work(units: int) -> list[EvaluateItem]:
    """Items of 20 units each."""
    keys = [
        Unit(
            weights_id="w",
            tokenizer_hash="t",
            plan_id="",
            task="idle",
            task_version="1",
            recipe="{}",
            document_hash=str(start),
            start=start,
            stop=start + 1,
            dtype="float32",
            attention="sdpa",
            scorer_version="1",
        )
        for start in range(units // len(PLANS))
    ]
    return [EvaluateItem(model="m", kind="idle", unit=key, documents=(), plans=PLANS) for key in keys]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    connect(None, cpus=arguments.workers, environment={"PYTHONPATH": str(Path(__file__).parent)})
    placement = Placement(workers=arguments.workers, threads=1)
    executor = RayExecutor("ledger:IdleWorker", (), placement)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with open_session(store, executor, Silent(), {"kind": "benchmark"}) as session:
            session.work("warm up", work(len(PLANS) * 5), len(PLANS) * 5)
            items = work(arguments.units)[5:]
            wall, cpu = time.perf_counter(), time.process_time()
            session.work("units", items, len(items) * len(PLANS))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        stored = read_samples(store)["unit_id"].nunique()
    count = len(items) * len(PLANS)
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores, Python {sys.version.split()[0]}")
    print(f"{count} units in {wall:.1f} s: {count / wall:.0f} units/s (target 200)")
    print(f"driver: {1000 * cpu / count:.2f} ms of CPU time a unit (target 5)")
    print(f"units in the store: {stored} of {count + 5 * len(PLANS)}")


if __name__ == "__main__":
    main()
