"""What a model wrote for a generative task of lm-eval, graded by the task's filters and metrics."""

from dataclasses import dataclass, field
from typing import Any

from prunebench.core.fingerprint import Json
from prunebench.core.unit import Generation
from prunebench.data.tasks import HarnessSource, Question
from prunebench.evaluation.harness.build import build
from prunebench.evaluation.harness.definitions import library_version
from prunebench.evaluation.harness.score import score
from prunebench.evaluation.scoring.base import Graded

_INVALID = "[invalid]"
"""What lm-eval's filters leave where they find no answer."""


def _version() -> str:
    return f"harness-1 {library_version()}"


@dataclass
class HarnessGrader:
    """Every filter's metrics; the verdict is that of the kindest filter.

    Raises:
        ResourceError: lm-eval is not installed.
    """

    version: str = field(default_factory=_version, init=False)
    """The number of this code, and lm-eval's version."""

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Grade one answer.

        Raises:
            InputError: the question is not what lm-eval asks here, or it cannot score the document.
        """
        asked: Any = question.reference
        source = HarnessSource(task=asked["task"], shots=asked["shots"], mirror=asked["mirror"])
        built = build(source)
        document = built.document(asked["index"], asked["doc_hash"])
        scores = score(built.task, document, [generation.text])
        extracted: dict[str, Json] = {name: str(left[0]) for name, left in scores.filtered.items()}
        return Graded(
            metrics=scores.metrics,
            detail={
                "extracted": extracted,
                "target": document.target,
                "verdict": _verdict(scores.metrics, extracted, generation),
            },
        )


def _verdict(metrics: dict[str, float], extracted: dict[str, Json], generation: Generation) -> str:
    if any(value == 1 for value in metrics.values()):
        return "right"
    if generation.finish_reason == "length":
        return "limit_hit"
    return "no_answer" if set(extracted.values()) == {_INVALID} else "wrong"
