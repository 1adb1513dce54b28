"""A driver of units of no work on the real store and Ray, for the tests of faults.

`fault_driver.py STORE ADDRESS ORDERS WORKERS[xGPUS] [WAIT_S SILENCE_S]`; the address `local` is this process.
Its exit codes and its words are those of the command line. With `jump` among the orders its clock jumps a
year forth and back at every look.
"""

import itertools
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from fake_worker import FakeWorker, items
from prunebench.cli import _interrupt
from prunebench.core.unit import EvaluateItem
from prunebench.errors import PrunebenchError
from prunebench.pipeline.executor import Executor, LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.session import open_session
from prunebench.store import runs

RANGES = 3
YEAR_S = 365 * 86_400


def jump() -> None:
    """Let no two looks at the clock agree."""
    true, signs = time.time, itertools.cycle((1, -1))
    time.time = lambda: true() + next(signs) * YEAR_S
    runs._now = lambda: datetime.fromtimestamp(time.time(), UTC)


def executor(address: str, orders: str, workers: str, waits: list[float]) -> Executor:
    """The executor that the words ask for."""
    if address == "local":
        return LocalExecutor(lambda: FakeWorker(orders))
    from prunebench.cluster.connect import connect
    from prunebench.cluster.executor import Patience, RayExecutor
    from prunebench.cluster.placement import Placement

    connect(address, environment={"PYTHONPATH": os.environ["PYTHONPATH"]})
    patience = Patience(wait_s=waits[0], silence_s=waits[1]) if waits else Patience()
    count, _, gpus = workers.partition("x")
    placement = Placement(workers=int(count), threads=1, gpus=float(gpus or 0))
    return RayExecutor("fake_worker:FakeWorker", (orders,), placement, patience)


def main() -> int:
    store, address, orders, workers, *waits = sys.argv[1:]
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        made = executor(address, orders, workers, [float(word) for word in waits])
        # Not before: Ray's own wait for an answer of the cluster would be over at once.
        if Path(orders, "jump").exists():
            jump()
        with open_session(Path(store), made, Silent(), {"kind": "faults"}) as session:
            present = session.ledger.present()
            left = [
                EvaluateItem(
                    model=item.model, kind=item.kind, unit=item.unit, documents=(), plans=tuple(plans)
                )
                for item in items(RANGES)
                if (plans := [p for p in item.plans if item.unit.for_plan(p.plan_id).unit_id not in present])
            ]
            session.work("units", left, sum(len(item.plans) for item in left))
    except PrunebenchError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 3 if session.failures else 0


if __name__ == "__main__":
    sys.exit(main())
