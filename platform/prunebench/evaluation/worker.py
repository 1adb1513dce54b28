"""The worker: from one work item to its messages. The same for every executor.

This is one of the places where an exception of evaluation code becomes a row: it is reported as `Failed` and
the rest of the work goes on.
"""

import queue
import threading
import time
import traceback
from collections.abc import Iterator, Mapping

import torch

from prunebench.core.budget import Budget
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.core.unit import (
    CalibrateItem,
    EvaluateItem,
    Failed,
    Message,
    PlanDone,
    PlanItem,
    ProbeAnswered,
    StatsDone,
    UnitDone,
    WeightsItem,
    WorkItem,
)
from prunebench.errors import InputError
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.planning import ask_method
from prunebench.evaluation.setup import ModelSetup
from prunebench.methods.base import Measurements
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel, load_model
from prunebench.models.probe import ModelProbe
from prunebench.models.weights import weight_stats


class Worker:
    """Holds at most one dense model and runs work items on it."""

    def __init__(self, models: Mapping[str, ModelSetup], threads: int) -> None:
        torch.set_num_threads(threads)
        self._models = models
        self._threads = threads
        self._dense: tuple[str, DenseModel] | None = None

    def run(self, item: WorkItem) -> Iterator[Message]:
        """Stream the item's messages."""
        open_keys = dict.fromkeys(_keys(item))
        try:
            for message in self._messages(item):
                for key in _settled(message):
                    open_keys.pop(key, None)
                yield message
        except Exception as error:  # noqa: BLE001 (any fault of evaluation code is a row of the store)
            yield Failed(keys=tuple(open_keys), error=_one_line(error), traceback=traceback.format_exc())

    def _messages(self, item: WorkItem) -> Iterator[Message]:
        match item:
            case EvaluateItem():
                return self._evaluate(item)
            case CalibrateItem():
                return self._calibrate(item)
            case WeightsItem():
                return self._weights(item)
            case PlanItem():
                return self._plan(item)

    def _load(self, name: str) -> DenseModel:
        if self._dense is None or self._dense[0] != name:
            self._dense = None
            setup = self._models[name]
            dense = load_model(
                self._open(name), dtype=setup.dtype, attention=setup.attention, device=setup.device
            )
            self._dense = (name, dense)
        return self._dense[1]

    def _open(self, name: str) -> Checkpoint:
        setup = self._models[name]
        checkpoint = Checkpoint.open(setup.path)
        if checkpoint.weights_id != setup.weights_id:
            raise InputError(
                f"the weights at {setup.path} are not those the run started with "
                f"({checkpoint.weights_id[:12]} instead of {setup.weights_id[:12]})"
            )
        return checkpoint

    def _evaluate(self, item: EvaluateItem) -> Iterator[Message]:
        dense = self._load(item.model)
        evaluator = EVALUATORS[item.kind]
        started = time.perf_counter()
        for plan, outcome in evaluator.evaluate(dense, item.plans, item.documents):
            unit = item.unit.for_plan(plan.plan_id)
            now = time.perf_counter()
            if isinstance(outcome, Exception):
                text = "".join(traceback.format_exception(outcome))
                yield Failed(keys=(unit.unit_id,), error=_one_line(outcome), traceback=text)
            else:
                yield UnitDone(unit=unit, samples=outcome, seconds=now - started)
            started = now

    def _calibrate(self, item: CalibrateItem) -> Iterator[Message]:
        dense = self._load(item.model)
        started = time.perf_counter()
        stats = calibrate(dense, item.rows, item.source)
        yield StatsDone(key=item.key, data=stats.to_bytes(), seconds=time.perf_counter() - started)

    def _weights(self, item: WeightsItem) -> Iterator[Message]:
        started = time.perf_counter()
        stats = weight_stats(self._open(item.model), cka=item.cka, memory=item.memory)
        yield StatsDone(key=item.key, data=stats.to_bytes(), seconds=time.perf_counter() - started)

    def _plan(self, item: PlanItem) -> Iterator[Message]:
        """Run the method beside this generator, so that each answer of the probe leaves as it is given."""
        dense = self._load(item.model)
        messages: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        asker = threading.Thread(target=self._ask, args=(item, dense, messages), daemon=True)
        asker.start()
        while True:
            message = messages.get()
            if isinstance(message, Exception):
                raise message
            yield message
            if isinstance(message, PlanDone):
                return

    def _ask(
        self, item: PlanItem, dense: DenseModel, messages: "queue.SimpleQueue[Message | Exception]"
    ) -> None:
        # OpenMP counts threads per calling thread, and the number of threads changes bits.
        torch.set_num_threads(self._threads)
        probe = ModelProbe(dense, item.rows, item.corpus_id, item.remembered, messages.put)
        seen = Measurements(
            shape=dense.checkpoint.shape,
            calibration=None if item.calibration is None else CalibrationStats.from_bytes(item.calibration),
            weights=None if item.weights is None else WeightStats.from_bytes(item.weights),
            probe=probe,
        )
        try:
            messages.put(ask_method(item.key, item.method, seen, Budget(item.budget), item.params))
        except Exception as error:  # noqa: BLE001 (handed to `_plan`, which raises it in the worker's own thread)
            messages.put(error)


def _keys(item: WorkItem) -> tuple[str, ...]:
    if isinstance(item, EvaluateItem):
        return tuple(item.unit.for_plan(plan.plan_id).unit_id for plan in item.plans)
    return (item.key,)


def _settled(message: Message) -> tuple[str, ...]:
    match message:
        case UnitDone():
            return (message.unit.unit_id,)
        case Failed():
            return message.keys
        case StatsDone() | PlanDone():
            return (message.key,)
        case ProbeAnswered():
            return ()


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"
