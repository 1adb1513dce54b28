"""One run on one store: the only place where messages become files."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from prunebench.core.fingerprint import Json
from prunebench.core.lease import Delivery
from prunebench.core.text import printable
from prunebench.core.unit import (
    Failed,
    Generated,
    PlanDone,
    ProbeAnswered,
    StatsDone,
    Unit,
    UnitDone,
    WorkItem,
    units_of,
)
from prunebench.pipeline.executor import Executor
from prunebench.pipeline.progress import Progress
from prunebench.pipeline.provenance import provenance
from prunebench.store.artifacts import save_planned, save_stats
from prunebench.store.derive import derive_results
from prunebench.store.ledger import Ledger
from prunebench.store.probes import ProbeMemory
from prunebench.store.runs import RunLog

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Session:
    """The store, the executor and the run's log. Whatever arrives is committed at once."""

    store: Path
    executor: Executor
    progress: Progress
    ledger: Ledger
    probes: ProbeMemory
    log: RunLog
    failures: dict[str, str] = field(default_factory=dict)
    """Key -> error of everything that failed in this run."""
    _items: Sequence[WorkItem] = ()
    _units: dict[str, Unit] = field(default_factory=dict)
    """Of `_items`, once one of them failed."""

    def work(self, stage: str, items: Sequence[WorkItem], steps: int, *, done: int = 0) -> None:
        """Run the items to their end; `steps` results are expected, and `done` were there before."""
        if not items:
            return
        self._items, self._units = items, {}
        self.progress.start(stage, done + steps, done=done)
        for delivery in self.executor.run(items):
            self._commit(delivery)
        self.progress.finish()

    def _commit(self, delivery: Delivery) -> None:
        match delivery.message:
            case UnitDone() as done:
                self.log.unit(
                    done.unit,
                    worker=delivery.worker,
                    host=delivery.host,
                    seconds=done.seconds,
                    attempt=delivery.attempt,
                )
                self.ledger.commit(done)
                self.progress.advance()
            case Generated() as written:
                self.ledger.keep(written)
            case StatsDone() as done:
                save_stats(self.store, done)
                self.progress.advance()
            case PlanDone() as done:
                save_planned(self.store, done)
                self.progress.advance()
            case ProbeAnswered() as answer:
                self.probes.remember(answer)
            case Failed() as failed:
                for key in failed.keys:
                    where: dict[str, Json] = {"worker": delivery.worker, "host": delivery.host}
                    where |= {"attempt": delivery.attempt, **self._of_unit(key)}
                    self.fail(key, failed.error, failed.traceback, **where)
                    self.progress.advance(failed=True)

    def _of_unit(self, key: str) -> dict[str, Json]:
        """The plan and the task of a unit of the work in hand; nothing for other items."""
        if not self._units:
            self._units = {unit.unit_id: unit for item in self._items for unit in units_of(item)}
        unit = self._units.get(key)
        return {} if unit is None else {"plan_id": unit.plan_id, "task": unit.task}

    def fail(self, key: str, error: str, traceback: str, **where: Json) -> None:
        """Record a failure: shown in the report, tried again by the next run.

        `where` goes into the run's log, as in `RunLog.failure`.
        """
        logger.error("%s failed: %s", key[:16], printable(error))
        self.log.failure(key, error, **where)
        self.failures[key] = error
        self.ledger.fail(key, error, traceback, self.ledger.attempts(key) + 1)


@contextmanager
def open_session(
    store: Path, executor: Executor, progress: Progress, record: dict[str, Json]
) -> Iterator[Session]:
    """Open the store for one run, and record how the run ended.

    Raises:
        InputError: the store was written by a newer version, or the folder is no store.
    """
    with ExitStack() as stack:
        stack.callback(executor.close)
        ledger = stack.enter_context(Ledger(store))
        probes = stack.enter_context(ProbeMemory(store))
        log = stack.enter_context(RunLog.start(store, {**provenance(), **record}))
        session = Session(
            store=store, executor=executor, progress=progress, ledger=ledger, probes=probes, log=log
        )
        try:
            yield session
        except BaseException as error:
            log.end(
                "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", asdict(executor.faults)
            )
            raise
        else:
            log.end("failed" if session.failures else "done", asdict(executor.faults))
        finally:
            if told := str(executor.faults):
                logger.warning("%s", told)
            # Also after an interruption: results always say what the store holds.
            ledger.fold()
            derive_results(store)
