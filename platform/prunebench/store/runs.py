"""Runs: one file of JSON lines for every attempt: what was asked, who computed what, how long it took."""

import secrets
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from prunebench.core.fingerprint import Json
from prunebench.core.unit import Unit
from prunebench.store.append import LineFile
from prunebench.store.layout import file_key


def new_run_id() -> str:
    """An id that sorts by time: UTC date and time, and 6 random hex digits."""
    return f"{_now():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def _now() -> datetime:
    return datetime.now(UTC)


class RunLog:
    """The log of one attempt. Its first line is the start record; lines after it are events."""

    def __init__(self, run_id: str, file: LineFile) -> None:
        """Wrap an open file; use `start`."""
        self.run_id = run_id
        self._file = file

    @classmethod
    def start(cls, root: Path, record: Mapping[str, Json], run_id: str | None = None) -> "RunLog":
        """Begin a run; `record` is what it was started with (configuration, versions, hardware).

        Raises:
            ResourceError: the disk refused.
        """
        name = file_key(run_id or new_run_id())
        log = cls(name, LineFile(root / "runs" / f"{name}.jsonl"))
        log._file.append(
            {"event": "start", "run_id": name, "started_at": _now().isoformat(), "record": dict(record)},
            durable=True,
        )
        return log

    def exam(self, exam_id: str, plan_ids: Collection[str] | None = None) -> None:
        """This run asks the exam of every variant of the same weights, or of those with these plans only."""
        only: dict[str, Json] = {} if plan_ids is None else {"plan_ids": sorted(plan_ids)}
        self._append("exam", {"exam_id": exam_id, **only})

    def variant(self, variant_key: str) -> None:
        """This run asks about the variant."""
        self._append("variant", {"variant_key": variant_key})

    def unit(self, unit: Unit, *, worker: str, host: str, seconds: float, attempt: int) -> None:
        """A unit came back. Logged before it is committed, so that every committed unit has its time."""
        facts: dict[str, Json] = {
            "unit_id": unit.unit_id,
            "plan_id": unit.plan_id,
            "task": unit.task,
            "worker": worker,
            "host": host,
            "seconds": seconds,
            "attempt": attempt,
        }
        self._append("unit", {**facts, "at": _now().isoformat()})

    def failure(self, key: str, error: str, **where: Json) -> None:
        """A unit or item failed; `key` names it as in failures/.

        `where` holds what is known of it: plan_id and task of a unit, and worker, host and attempt.
        """
        self._append("failure", {"key": key, "error": error, **where, "at": _now().isoformat()})

    def _append(self, event: str, facts: Mapping[str, Json], *, durable: bool = False) -> None:
        self._file.append({"event": event, "run_id": self.run_id, **facts}, durable=durable)

    def end(self, status: str, faults: Mapping[str, float] | None = None) -> None:
        """The run ended: `done`, `failed` or `interrupted`. A run without this line was killed.

        `faults` counts what happened to its workers.
        """
        facts: dict[str, Json] = {"status": status, "faults": dict(faults or {})}
        self._append("end", {**facts, "ended_at": _now().isoformat()}, durable=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "RunLog":
        """Return the log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the log."""
        self.close()
