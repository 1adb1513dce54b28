"""A worker without a model: units cost nothing, and chosen plans kill the process or raise."""

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import EvaluateItem, Failed, Message, Sample, Unit, UnitDone, WorkItem

PLANS = tuple(PruningPlan.without([i], 12) for i in range(12))


def items(ranges: int, plans: tuple[PruningPlan, ...] = PLANS) -> list[EvaluateItem]:
    """Every plan on every range of one document."""
    units = [
        Unit(
            weights_id="w",
            tokenizer_hash="t",
            plan_id="",
            task="fake",
            task_version="1",
            recipe="{}",
            document_hash=str(start),
            start=start,
            stop=start + 1,
            dtype="float32",
            attention="sdpa",
            scorer_version="1",
        )
        for start in range(ranges)
    ]
    return [EvaluateItem(model="m", kind="fake", unit=unit, documents=(), plans=plans) for unit in units]


class FakeWorker:
    """Reads its orders from a folder: `kill-PLAN_ID` holds how many more processes die at that plan.

    `gate-UNIT_ID` holds a worker up for as long as it is there, `raise-PLAN_ID` fails the unit, and
    `escape-PLAN_ID` raises outside of what a worker reports. `eat-PLAN_ID` says how many bytes the first
    process there takes, to wait for its end. With `gpus` each process notes which GPUs it was given.
    """

    def __init__(self, orders: str) -> None:
        self._orders = Path(orders)
        if (self._orders / "gpus").exists():
            seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            (self._orders / f"sees-{os.getpid()}").write_text(seen)

    def run(self, item: WorkItem) -> Iterator[Message]:
        assert isinstance(item, EvaluateItem)
        for plan in item.plans:
            unit = item.unit.for_plan(plan.plan_id)
            self._obey(plan.plan_id)
            self._eat(plan.plan_id)
            self._wait(unit.unit_id)
            if (self._orders / f"escape-{plan.plan_id}").exists():
                raise ValueError("as ordered")
            if (self._orders / f"raise-{plan.plan_id}").exists():
                yield Failed(keys=(unit.unit_id,), error="ValueError: as ordered", traceback="")
                continue
            value = int(unit.unit_id[:8], 16) / 2**32
            where = f'{{"platform":"{platform.__file__}","executable":"{sys.executable}"}}'
            sample = Sample(doc_id=0, doc_hash="d", metric="acc", value=value, detail=where)
            yield UnitDone(unit=unit, samples=(sample,), seconds=0.0)

    def _wait(self, unit_id: str) -> None:
        """Say who is here, and go on once the gate is away."""
        gate = self._orders / f"gate-{unit_id}"
        if gate.exists():
            (self._orders / f"at-{unit_id}-{os.getpid()}").touch()
            while gate.exists():
                time.sleep(0.02)

    def _taken(self, name: str) -> tuple[Path, int] | None:
        """The number in an order that this process alone holds now; None where there is no order."""
        mine = self._orders / f"{name}-{os.getpid()}"
        try:
            # Of two workers that come at once one gets it.
            (self._orders / name).rename(mine)
        except FileNotFoundError:
            return None
        return mine, int(mine.read_text())

    def _eat(self, plan_id: str) -> None:
        if taken := self._taken(f"eat-{plan_id}"):
            eaten = b"x" * taken[1]
            while eaten:
                time.sleep(0.02)

    def _obey(self, plan_id: str) -> None:
        if taken := self._taken(f"kill-{plan_id}"):
            mine, times = taken
            if times > 1:
                mine.write_text(str(times - 1))
                mine.rename(self._orders / f"kill-{plan_id}")
            os.kill(os.getpid(), signal.SIGKILL)
