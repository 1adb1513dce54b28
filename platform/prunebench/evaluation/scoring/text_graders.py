"""Graders of answers in words and numbers: AIME, GSM8K, GPQA."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from prunebench.core.unit import Generation
from prunebench.data.tasks import Question
from prunebench.evaluation.scoring.answers import (
    boxed_letter,
    final_part,
    integer,
    last_box,
    last_number,
    number,
    plain,
    stated_letter,
)
from prunebench.evaluation.scoring.arithmetic import equalities
from prunebench.evaluation.scoring.base import Graded, verdict_metrics, verdict_of, was_cut
from prunebench.evaluation.versions import GRADERS

AIME_MOST = 999
"""AIME's answers are integers from 0 to this."""
_SHOWN = 200
"""Characters of an answer that are kept."""


@dataclass(frozen=True)
class IntegerGrader:
    """AIME: the last box as an integer from 0 to 999, compared with the reference as integers.

    An answer in no box is none; a box that holds no such integer is a wrong answer. An unfinished response
    with the right box is right, as in LayerTrim's scoring.
    """

    version = GRADERS["integer"]

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Score one generation; the reference is an integer."""
        box = _box(generation)
        value = None if box is None else integer(plain(box), AIME_MOST)
        correct = None if box is None else value == question.reference
        return _graded(generation, correct, answer=value, box=box)


@dataclass(frozen=True)
class NumberGrader:
    """GSM8K as a chat: the last box as an exact number; without a box, the last number that is written.

    A response that was cut counts by its box alone: its last number may be anything.
    """

    version = GRADERS["number"]

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Score one generation; the reference is the number as text."""
        box = _box(generation)
        value = None if box is None else number(plain(box))
        if box is None and not was_cut(generation):
            value = last_number(final_part(generation.text))
        truth = Fraction(str(question.reference))
        correct = None if box is None and value is None else value == truth
        return _graded(generation, correct, answer=None if value is None else str(value), box=box)


@dataclass(frozen=True)
class LetterGrader:
    """GPQA: the letter in the last box; without one, the last letter that is stated as the answer.

    A response that was cut counts by its box alone: what it says of a letter may be anything.
    """

    version = GRADERS["letter"]

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Score one generation; the reference is {"letter": A to D, "permutation": ...}."""
        reference: Any = question.reference
        box = _box(generation)
        letter = None if box is None else boxed_letter(plain(box))
        if letter is None and not was_cut(generation):
            letter = stated_letter(final_part(generation.text))
        correct = None if box is None and letter is None else letter == reference["letter"]
        return _graded(generation, correct, answer=letter, box=box)


def _box(generation: Generation) -> str | None:
    """The last box of the final part; an empty one is none."""
    box = last_box(final_part(generation.text))
    return box if box and box.strip() else None


def _graded(
    generation: Generation, correct: bool | None, *, answer: str | int | None, box: str | None
) -> Graded:
    verdict = verdict_of(generation, correct)
    held, total = equalities(generation.text)
    return Graded(
        metrics={**verdict_metrics(verdict), "arithmetic": float(held)},
        weights={"arithmetic": float(total)},
        detail={
            "verdict": verdict,
            "answer": answer,
            "box": None if box is None else box[:_SHOWN],
            "equalities": [held, total],
        },
    )
