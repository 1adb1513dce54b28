"""The worker: from one work item to its messages. The same for every executor.

This is one of the places where an exception of evaluation code becomes a row: it is reported as `Failed` and
the rest of the work goes on. What the machine lacks is no row: it ends the run.
"""

import queue
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.core.unit import (
    CalibrateItem,
    EvaluateItem,
    Failed,
    Generated,
    GenerateItem,
    Message,
    PlanDone,
    PlanItem,
    ProbeAnswered,
    Sample,
    StatsDone,
    TogetherItem,
    UnitDone,
    WeightsItem,
    WorkItem,
    units_of,
)
from prunebench.errors import InputError, NonFiniteError, ResourceError
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.generation.base import Engine
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.generation.items import Writing, failed, one_line
from prunebench.evaluation.generation.menu import make_engine
from prunebench.evaluation.planning import ask_method
from prunebench.evaluation.setup import ModelSetup
from prunebench.evaluation.together import evaluate_together
from prunebench.methods.base import Measurements
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel, load_model, release_memory
from prunebench.models.own_forward import check_own_forward
from prunebench.models.probe import ModelProbe
from prunebench.models.streamed import stream_model
from prunebench.models.streamed_calibration import calibrate_streamed
from prunebench.models.weights import weight_stats


class Worker:
    """Holds at most one dense model and one engine, and runs work items on them."""

    def __init__(self, models: Mapping[str, ModelSetup], threads: int) -> None:
        torch.set_num_threads(threads)
        self._models = models
        self._threads = threads
        self._dense: tuple[tuple[str, str], DenseModel] | None = None
        self._engine: tuple[tuple[str, str], Engine] | None = None
        self._codecs: dict[str, Codec] = {}

    def run(self, item: WorkItem) -> Iterator[Message]:
        """Stream the item's messages.

        Raises:
            ResourceError: the machine lacks what the item needs, and so any item like it.
        """
        open_keys = dict.fromkeys(_keys(item))
        try:
            for message in self._messages(item):
                for key in _settled(message):
                    open_keys.pop(key, None)
                yield message
        except ResourceError:
            raise
        except Exception as error:  # noqa: BLE001 (any fault of evaluation code is a row of the store)
            yield Failed(keys=tuple(open_keys), error=one_line(error), traceback=traceback.format_exc())

    def _messages(self, item: WorkItem) -> Iterator[Message]:
        match item:
            case EvaluateItem():
                return self._evaluate(item)
            case GenerateItem():
                return self._generate(item)
            case CalibrateItem():
                return self._calibrate(item)
            case WeightsItem():
                return self._weights(item)
            case PlanItem():
                return self._plan(item)
            case TogetherItem():
                return self._together(item)

    def _load(self, name: str) -> DenseModel:
        """The dense model for work without an engine, which makes room for it."""
        self._close_engine()
        return self._in_memory(name, self._models[name].device)

    def _in_memory(self, name: str, device: str) -> DenseModel:
        if self._dense is None or self._dense[0] != (name, device):
            self._dense = None
            release_memory()
            setup = self._models[name]
            how: dict[str, Any] = {"dtype": setup.dtype, "attention": setup.attention, "device": device}
            if setup.streamed:
                dense = stream_model(self._open(name), **how)
            else:
                dense = load_model(self._open(name), **how, gpus=setup.gpus)
                if dense.checkpoint.trusted:
                    check_own_forward(dense)
            self._dense = ((name, device), dense)
        return self._dense[1]

    def _engine_of(self, name: str, engine: str) -> Engine:
        """The engine, made where another one was in use before."""
        if self._engine is None or self._engine[0] != (name, engine):
            self._close_engine()
            setup = self._models[name]
            if setup.streamed:
                raise InputError("a streamed model writes no answers: every token would read all its weights")
            made = make_engine(
                setup.engines[engine],
                setup,
                self._open(name),
                self._codec(name),
                lambda device: self._in_memory(name, device),
            )
            self._engine = ((name, engine), made)
        return self._engine[1]

    def _codec(self, name: str) -> Codec:
        if name not in self._codecs:
            self._codecs[name] = Codec(self._open(name))
        return self._codecs[name]

    def _close_engine(self) -> None:
        if self._engine is not None:
            (_, engine), self._engine = self._engine, None
            engine.close()

    def _open(self, name: str) -> Checkpoint:
        setup = self._models[name]
        checkpoint = Checkpoint.open(setup.path, trust_remote_code=setup.trust_remote_code)
        if checkpoint.weights_id != setup.weights_id:
            raise InputError(
                f"the weights at {setup.path} are not those the run started with "
                f"({checkpoint.weights_id[:12]} instead of {setup.weights_id[:12]})"
            )
        return checkpoint

    def _evaluate(self, item: EvaluateItem) -> Iterator[Message]:
        dense = self._load(item.model)
        evaluator = EVALUATORS[item.kind]
        outcomes = evaluator.evaluate(dense, item.plans, item.documents)
        return self._units((item, plan, outcome) for plan, outcome in outcomes)

    def _together(self, item: TogetherItem) -> Iterator[Message]:
        dense = self._load(item.model)
        first = item.items[0]
        if isinstance(first, EvaluateItem):
            parts = [part for part in item.items if isinstance(part, EvaluateItem)]
            return self._units(evaluate_together(dense, parts))
        shards = [part for part in item.items if isinstance(part, CalibrateItem)]
        return self._shards(dense, shards)

    def _shards(self, dense: DenseModel, shards: Sequence[CalibrateItem]) -> Iterator[Message]:
        started = time.perf_counter()
        found = calibrate_streamed(dense, [shard.rows for shard in shards], shards[0].source)
        seconds = (time.perf_counter() - started) / len(shards)
        for shard, stats in zip(shards, found, strict=True):
            yield StatsDone(key=shard.key, data=stats.to_bytes(), seconds=seconds)

    def _units(
        self,
        outcomes: Iterable[
            tuple[EvaluateItem, PruningPlan, tuple[Sample, ...] | InputError | NonFiniteError]
        ],
    ) -> Iterator[Message]:
        started = time.perf_counter()
        for item, plan, outcome in outcomes:
            unit = item.unit.for_plan(plan.plan_id)
            now = time.perf_counter()
            if isinstance(outcome, Exception):
                yield failed(unit, outcome)
            else:
                yield UnitDone(unit=unit, samples=outcome, seconds=now - started)
            started = now

    def _generate(self, item: GenerateItem) -> Iterator[Message]:
        writing = Writing(
            item=item,
            engine=lambda: self._engine_of(item.model, item.engine),
            codec=self._codec(item.model),
            allow_code_execution=self._models[item.model].allow_code_execution,
            threads=self._threads,
        )
        try:
            yield from writing.messages()
        except Exception:
            # What is left of it may write nonsense: the next item starts another.
            self._close_engine()
            raise

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
    match item:
        case EvaluateItem() | GenerateItem():
            return tuple(unit.unit_id for unit in units_of(item))
        case TogetherItem():
            return tuple(key for part in item.items for key in _keys(part))
        case _:
            return (item.key,)


def _settled(message: Message) -> tuple[str, ...]:
    match message:
        case UnitDone():
            return (message.unit.unit_id,)
        case Failed():
            return message.keys
        case StatsDone() | PlanDone():
            return (message.key,)
        case ProbeAnswered() | Generated():
            return ()
