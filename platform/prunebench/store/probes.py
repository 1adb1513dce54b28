"""Answers of probes, remembered: one file of JSON lines a driver, each line durable when it is told."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from prunebench.core.unit import ProbeAnswered
from prunebench.store.append import LineFile, read_lines

SUFFIX = ".jsonl"
ANSWER = ("call_id", "call", "value", "seconds")


def read_answers(root: Path) -> dict[str, ProbeAnswered]:
    """All answers by call id; the first in the order of file names counts."""
    answers: dict[str, ProbeAnswered] = {}
    for path in sorted((root / "probes").glob(f"*{SUFFIX}")):
        for line in read_lines(path, *ANSWER):
            answers.setdefault(line["call_id"], _answer(line))
    return answers


def _answer(line: dict[str, Any]) -> ProbeAnswered:
    return ProbeAnswered(
        call_id=line["call_id"], call=line["call"], value=float(line["value"]), seconds=line["seconds"]
    )


class ProbeMemory:
    """What probes answered in this store, by any driver; new answers go to a file of this driver's own."""

    def __init__(self, root: Path) -> None:
        """Read what is remembered. `root` is an open store."""
        self._root = root
        self._values = {call_id: answer.value for call_id, answer in read_answers(root).items()}
        self._file: LineFile | None = None

    @property
    def answers(self) -> Mapping[str, float]:
        """Call id -> answer, read-only."""
        return MappingProxyType(self._values)

    def remember(self, answer: ProbeAnswered) -> None:
        """Keep an answer; it is durable when this returns. A call that is remembered already is left alone.

        Raises:
            ResourceError: the disk refused.
        """
        if answer.call_id in self._values:
            return
        if self._file is None:
            self._file = LineFile(self._root / "probes" / f"{uuid.uuid4().hex}{SUFFIX}")
        # repr, because JSON has no NaN and no infinity and both are answers.
        self._file.append(
            {
                "call_id": answer.call_id,
                "call": answer.call,
                "value": repr(float(answer.value)),
                "seconds": answer.seconds,
            },
            durable=True,
        )
        self._values[answer.call_id] = answer.value

    def close(self) -> None:
        """Close this driver's file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "ProbeMemory":
        """Return the memory itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the memory."""
        self.close()
