"""What a grader is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from prunebench.core.fingerprint import Json
from prunebench.core.unit import Generation
from prunebench.data.tasks import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What came of one answer."""

    metrics: Mapping[str, float]
    """Every document of a task gives the same metrics."""
    detail: Mapping[str, Json]
    """What led to them."""
    status: str = "ok"
    """Of the samples; also ok for a wrong answer."""


class Grader(Protocol):
    """Grades answers to one kind of question."""

    @property
    def version(self) -> str:
        """Part of the key of what it graded."""
        ...

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Grade one answer; any exception fails its unit, and the rest goes on."""
