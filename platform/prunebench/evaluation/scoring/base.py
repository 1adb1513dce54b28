"""What a grader is, and what it says of one generation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.core.unit import Generation, Sample
from prunebench.data.tasks import Document, Question

Verdict: TypeAlias = Literal["right", "wrong", "no_answer", "limit_hit", "timed_out"]
"""One of five, which exclude each other: an answer is right or wrong, or its code ran out of time; without
one, the generation came to its end or was cut at its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The scores of one generation."""

    metrics: Mapping[str, float]
    """Every document of a task gives the same metrics."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of metrics whose aggregate is Σ value / Σ weight over only some documents; 1 where none is given."""
    detail: Mapping[str, Json]
    """What led to them."""
    status: str = "ok"
    """Of the samples; ok also for wrong answers."""

    def samples(self, document: Document) -> tuple[Sample, ...]:
        """The rows of the store; the first holds the detail."""
        detail = canonical_json(self.detail)
        return tuple(
            Sample(
                doc_id=document.doc_id,
                doc_hash=document.doc_hash,
                metric=metric,
                value=value,
                weight=self.weights.get(metric, 1.0),
                detail="{}" if place else detail,
                status=self.status,
            )
            for place, (metric, value) in enumerate(self.metrics.items())
        )


class Grader(Protocol):
    """Reads what a model wrote. Pure, or (code) as good as: equal text gives equal scores."""

    @property
    def version(self) -> str:
        """As `evaluation.versions` has it; part of the key of every unit that it grades."""

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Score one generation. An exception is that unit's failure and no other's."""


def was_cut(generation: Generation) -> bool:
    """Whether the limit on tokens ended it."""
    return generation.finish_reason == "length"


def verdict_of(generation: Generation, correct: bool | None) -> Verdict:
    """The verdict on an answer that is correct or not; None where there is none."""
    if correct is None:
        return "limit_hit" if was_cut(generation) else "no_answer"
    return "right" if correct else "wrong"


def verdict_metrics(verdict: Verdict) -> dict[str, float]:
    """The metrics of a verdict; a wrong answer is what is none of them."""
    return {
        "acc": float(verdict == "right"),
        "no_answer": float(verdict == "no_answer"),
        "limit_hit": float(verdict == "limit_hit"),
        "timed_out": float(verdict == "timed_out"),
    }
