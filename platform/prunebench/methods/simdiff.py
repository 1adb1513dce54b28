"""SimDiff: rank blocks by a weighted sum of dissimilarity (cosine) and difference (MSSD or MASD).

Ranking by I = alpha·sigmoid(L_diff) + (1 - alpha)·I_sim is done by s' = (1 - alpha)·I_sim - alpha·sigmoid(-L_diff),
which differs from I by the constant alpha but does not saturate, and in rational arithmetic, so that alpha given
as a number and alpha found by a search always mean the same blocks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, groupby, pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import Array, CalibrationStats
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.depth import finite, span_similarity

NARROWEST = Fraction(1, 2**53)
"""The spacing of float64 below 1: a narrower interval may hold no alpha that can be written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDiffParams(Params):
    """Parameters of SimDiff; no layer is protected by default, as in the paper."""

    alpha: float | Literal["ternary", "exact"] = "ternary"
    """Weight of the difference in 0..1, or how to search it: Algorithm 1, or every alpha that matters."""
    epsilon: float = 0.01
    """Width at which the ternary search stops (unstated in the paper)."""
    max_iterations: int = 20
    """Most rounds of the ternary search (unstated in the paper)."""
    mssd_reduction: Literal["sum", "mean"] = "sum"
    """MSSD over the hidden dimension: `sum` is eq. 3, `mean` keeps the sigmoid from saturating."""

    def __post_init__(self) -> None:
        """Refuse what no search or ranking can use."""
        if isinstance(self.alpha, str):
            if self.alpha not in ("ternary", "exact"):
                raise InputError(f"alpha '{self.alpha}': write a number from 0 to 1, ternary or exact")
        elif not 0 <= self.alpha <= 1:
            raise InputError(f"alpha {self.alpha}: has to lie between 0 and 1")
        if not 0 < self.epsilon < 1:
            raise InputError(f"epsilon {self.epsilon}: has to lie between 0 and 1, ends excluded")
        if self.max_iterations < 1:
            raise InputError(f"max_iterations {self.max_iterations}: has to be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What SimDiff ranks by; arrays of shape (L,)."""

    similarity_L: Array
    """I_sim = L_sim / 2, in [0, 1] (eq. 6)."""
    difference_L: Array
    """L_diff, MSSD or MASD (eq. 3 and 4)."""

    @property
    def tail_L(self) -> Array:
        """sigmoid(-L_diff) = 1 - I_diff, in [0, 1/2] and accurate where I_diff is 1."""
        decay = np.exp(-self.difference_L)
        return decay / (1 + decay)

    @property
    def saturated(self) -> int:
        """Number of layers whose I_diff (eq. 5) is 1 in float64."""
        return int(np.count_nonzero(1 / (1 + np.exp(-self.difference_L)) == 1))


@dataclass(frozen=True, slots=True)
class AlphaPiece:
    """A largest range of alpha, `low` to `high`, over which the same layers are removed."""

    low: Fraction
    high: Fraction
    removed: tuple[int, ...]
    """Ascending."""
    open: bool
    """Whether both ends are outside: one interval between two breakpoints."""

    @property
    def limit(self) -> bool:
        """Whether no float64 alpha need fall into the range: it is listed, not scored."""
        return self.open and self.high - self.low < NARROWEST

    @property
    def alpha(self) -> float:
        """The middle."""
        return float((self.low + self.high) / 2)


class _Ranking:
    """The order of the candidates at any rational alpha, exactly: the float64 scores as integers."""

    def __init__(self, scores: Scores, candidates: Sequence[int]) -> None:
        differences = scores.difference_L.tolist()
        self.layers = sorted(candidates, key=lambda layer: (differences[layer], layer))
        similarity = [Fraction(x) for x in scores.similarity_L[self.layers].tolist()]
        tail = [Fraction(x) for x in scores.tail_L[self.layers].tolist()]
        scale = max(x.denominator for x in (*similarity, *tail))
        self.similarity = [int(x * scale) for x in similarity]
        self.tail = [int(x * scale) for x in tail]

    def lowest(self, alpha: Fraction, count: int) -> tuple[int, ...]:
        """The `count` layers of lowest s', ties to the lower L_diff, then to the lower layer; ascending."""
        up, down = alpha.numerator, alpha.denominator - alpha.numerator
        values = [down * i - up * t for i, t in zip(self.similarity, self.tail, strict=True)]
        order = sorted(range(len(values)), key=values.__getitem__)
        return tuple(sorted(self.layers[k] for k in order[:count]))

    def breakpoints(self) -> list[Fraction]:
        """0, 1 and every alpha between at which two candidates' scores cross, ascending."""
        lines = {(i, i + t) for i, t in zip(self.similarity, self.tail, strict=True)}
        ordered = sorted(lines)
        crossings = {
            (i - other_i, slope - other_slope)
            for k, (i, slope) in enumerate(ordered)
            for other_i, other_slope in ordered[:k]
            if 0 < i - other_i < slope - other_slope
        }
        return sorted({Fraction(0), Fraction(1), *(Fraction(*crossing) for crossing in crossings)})


def alpha_pieces(scores: Scores, candidates: Sequence[int], count: int) -> list[AlphaPiece]:
    """Every set of `count` layers that some alpha in [0, 1] removes, in the order of alpha, exactly.

    Evaluated at 0, 1 and each breakpoint and inside each open interval between; neighbours that remove the same
    layers are one piece, so the pieces partition [0, 1].
    """
    ranking = _Ranking(scores, candidates)
    points = ranking.breakpoints()
    intervals = [(low, high) for low, high in pairwise(points)]
    spans = [(0, points[0], points[0]), *chain(*((low, high), (high, high)) for low, high in intervals)]
    return spans


def removed_at(scores: Scores, candidates: Sequence[int], count: int, alpha: float) -> tuple[int, ...]:
    """The `count` candidates of lowest importance at one alpha, ascending."""
    return _Ranking(scores, candidates).lowest(Fraction(alpha), count)
