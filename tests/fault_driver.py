"""A driver of units of no work on the real store and Ray, for the tests of faults.

`fault_driver.py STORE ADDRESS ORDERS WORKERS [WAIT_S SILENCE_S]`; the address `local` is this process.
Its exit codes and its words are those of the command line.
"""

import os
import signal
import sys
from pathlib import Path

from fake_worker import FakeWorker, items
from prunebench.cli import _interrupt
from prunebench.core.unit import EvaluateItem
from prunebench.errors import PrunebenchError
from prunebench.pipeline.executor import Executor, LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.session import open_session

RANGES = 3


def executor(address: str, orders: str, workers: int, waits: list[float]) -> Executor:
    """The executor that the words ask for."""
    if address == "local":
        return LocalExecutor(lambda: FakeWorker(orders))
    from prunebench.cluster.connect import connect
    from prunebench.cluster.executor import Patience, RayExecutor
    from prunebench.cluster.placement import Placement

    connect(address, environment={"PYTHONPATH": os.environ["PYTHONPATH"]})
    patience = Patience(wait_s=waits[0], silence_s=waits[1]) if waits else Patience()
    return RayExecutor("fake_worker:FakeWorker", (orders,), Placement(workers=workers, threads=1), patience)


def main() -> int:
    store, address, orders, workers, *waits = sys.argv[1:]
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        made = executor(address, orders, int(workers), [float(word) for word in waits])
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
