"""What a grader is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from prunebench.core.fingerprint import Json
from prunebench.core.unit import Generation
from prunebench.data.tasks import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What one answer is worth."""

    metrics: Mapping[str, float]
    """Every document of a task gives the same metrics."""
    detail: Mapping[str, Json]
    """What led to it: the extracted answer, the verdict, diagnostics."""
    status: str = "ok"
    """Of the samples; `ok` also for wrong answers."""


class Grader(Protocol):
    """Turns what was written into metrics."""

    version: str
    """Part of the key of every unit that it grades."""

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Grade one answer; an exception makes its unit fail, and no other."""
        ...
