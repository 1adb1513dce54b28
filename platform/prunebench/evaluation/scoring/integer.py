"""The last boxed integer after the last think tag."""

import re
from dataclasses import dataclass

from prunebench.core.unit import Generation
from prunebench.data.tasks import Question
from prunebench.evaluation.scoring.base import Graded
from prunebench.evaluation.versions import GRADERS


@dataclass(frozen=True)
class Integer:
    """Compares integers as integers."""

    @property
    def version(self) -> str:
        """The version of keys."""
        return GRADERS["integer"]

    def grade(self, question: Question, generation: Generation) -> Graded:
        """1 where the last box holds the reference."""
        boxes = re.findall(r"\\boxed\{(-?\d+)\}", generation.text.rpartition("</think>")[2])
        right = bool(boxes) and int(boxes[-1]) == int(str(question.reference))
        return Graded(metrics={"acc": float(right)}, detail={"answer": boxes[-1] if boxes else None})
