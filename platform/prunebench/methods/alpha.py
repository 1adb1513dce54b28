"""SimDiff's alpha: which layers each of them removes, exactly, and two ways to find the best.

The paper's importance I = alpha·sigmoid(L_diff) + (1 - alpha)·I_sim is compared through
s' = (1 - alpha)·I_sim - alpha·sigmoid(-L_diff), which differs from it by alpha alone and does not saturate.
It is evaluated in rational arithmetic, so that an alpha given and an alpha found mean the same layers.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from prunebench.core.stats import Array
from prunebench.errors import UnreachableError
from prunebench.methods.space import Piece, shortest

NARROWEST = Fraction(1, 2**53)
"""Spacing of float64 just below 1: a narrower interval may hold no alpha that can be written down."""

NO_FINITE_LOSS = "SimDiff: no alpha gave a finite loss on the probe corpus; give alpha as a number"


class AlphaPiece(NamedTuple):
    """Every alpha from `low` up to the next piece's `low`, or to 1: the same layers are removed."""

    low: Fraction
    high: Fraction
    removed: tuple[int, ...]
    """Ascending."""

    @property
    def narrow(self) -> bool:
        """Whether there need not be a float64 between the ends."""
        return self.high - self.low < NARROWEST

    @property
    def limit(self) -> bool:
        """Whether no alpha in the piece need be a float64: such a piece is listed, not scored."""
        return self.narrow and float(self.low) != self.low

    @property
    def alpha(self) -> float:
        """An alpha in the piece, if it is no limit: the middle where the ends leave room."""
        return float(self.low if self.narrow else (self.low + self.high) / 2)

    def within(self, low: Fraction, high: Fraction) -> "AlphaPiece | None":
        """The part of the piece from `low` to `high`, both included; None where there is none."""
        # A piece does not hold its high end, except the last, whose high end is 1.
        if high < self.low or low > self.high or (low == self.high and self.high < 1):
            return None
        return AlphaPiece(max(low, self.low), min(high, self.high), self.removed)

    @property
    def bounds(self) -> list[float]:
        """Both ends."""
        return [float(self.low), float(self.high)]

    @property
    def plain(self) -> Piece:
        """The piece as a search lists it."""
        low, high = self.bounds
        value = None if self.limit else self.alpha if self.narrow else shortest(low, high)
        return Piece(low, high, value)


class Scores(NamedTuple):
    """What SimDiff ranks L layers by."""

    similarity_L: Array
    """I_sim = L_sim / 2, in [0, 1] (eq. 6)."""
    difference_L: Array
    """L_diff, MSSD or MASD, at least 0 (eq. 3, 4)."""

    @property
    def tail_L(self) -> Array:
        """sigmoid(-L_diff) = 1 - I_diff, in [0, 1/2], accurate where I_diff rounds to 1."""
        decay_L = np.exp(-self.difference_L)
        return decay_L / (1 + decay_L)

    @property
    def saturated(self) -> int:
        """Number of layers whose I_diff (eq. 5) is 1 in float64."""
        return int(np.count_nonzero(1 / (1 + np.exp(-self.difference_L)) == 1))


class Ranking:
    """The exact order of `candidates` at any rational alpha: the float64 scores as integers of one scale."""

    def __init__(self, scores: Scores, candidates: Sequence[int]) -> None:
        """Take over the scores, the candidates sorted by what breaks ties."""
        difference = scores.difference_L.tolist()
        self.layers = sorted(candidates, key=lambda layer: (difference[layer], layer))
        exact = [Fraction(x) for x in np.stack([scores.similarity_L, scores.tail_L])[:, self.layers].flat]
        scale = max(x.denominator for x in exact)
        integers = [int(x * scale) for x in exact]
        self.lines = list(zip(integers[: len(self.layers)], integers[len(self.layers) :], strict=True))
        """I_sim and sigmoid(-L_diff) of each of `layers`."""

    def lowest(self, alpha: Fraction, count: int) -> tuple[int, ...]:
        """The `count` layers of lowest s', ties to the lower L_diff, then to the lower layer; ascending."""
        weight, rest = alpha.numerator, alpha.denominator - alpha.numerator
        values = [rest * similarity - weight * tail for similarity, tail in self.lines]
        order = sorted(range(len(values)), key=values.__getitem__)
        return tuple(sorted(self.layers[k] for k in order[:count]))

    def breakpoints(self) -> list[Fraction]:
        """0, 1 and every alpha between them at which the scores of two candidates cross, ascending."""
        crossings = {Fraction(0), Fraction(1)}
        for k, (similarity, tail) in enumerate(self.lines):
            for other_similarity, other_tail in self.lines[:k]:
                # The other's difference is no higher, so they cross only where its I_sim and tail are higher.
                rise, drop = other_similarity - similarity, other_tail - tail
                if rise > 0 and drop > 0:
                    crossings.add(Fraction(rise, rise + drop))
        return sorted(crossings)


def nearest_change(ranking: Ranking, alpha: Fraction, count: int) -> Fraction | None:
    """The end nearest to `alpha` of the interval in which the same `count` layers are removed as at it.

    None where every alpha in [0, 1] removes the same.
    """
    own, points = ranking.lowest(alpha, count), ranking.breakpoints()
    above = next((p for p in points if p > alpha and ranking.lowest(p, count) != own), None)
    # What holds at a breakpoint holds up to the next: downwards the set ends where the first other one does.
    down = [p for p in points if p <= alpha][::-1]
    below = next((p for p, lower in pairwise(down) if ranking.lowest(lower, count) != own), None)
    return min((p for p in (below, above) if p is not None), key=lambda p: abs(p - alpha), default=None)


def alpha_pieces(scores: Scores, candidates: Sequence[int], count: int) -> list[AlphaPiece]:
    """Which `count` layers each alpha in [0, 1] removes, exactly: ascending pieces that cover [0, 1].

    They change at breakpoints only. Of two layers that tie there the one of lower difference goes first, and
    it is the one that is lower after the breakpoint: so what holds at a breakpoint holds up to the next.
    """
    ranking = Ranking(scores, candidates)
    points = ranking.breakpoints()
    same = groupby(points, key=lambda alpha: ranking.lowest(alpha, count))
    starts = [(next(group), removed) for removed, group in same]
    ends = [*(low for low, _ in starts[1:]), Fraction(1)]
    return [AlphaPiece(low, high, removed) for (low, removed), high in zip(starts, ends, strict=True)]


def ternary_search(
    loss: Callable[[float], float], epsilon: float, max_iterations: int
) -> tuple[float, float]:
    """Algorithm 1: the best alpha met at thirds of a shrinking [0, 1], and its loss; equal losses go left.

    Raises:
        UnreachableError: no loss was finite.
    """
    left, right = 0.0, 1.0
    best, lowest = math.nan, math.inf
    rounds = 0
    while right - left > epsilon and rounds < max_iterations:
        rounds += 1
        third = (right - left) / 3
        lower, upper = left + third, right - third
        loss_lower, loss_upper = loss(lower), loss(upper)
        if loss_lower < lowest:
            best, lowest = lower, loss_lower
        if loss_upper < lowest:
            best, lowest = upper, loss_upper
        if loss_lower > loss_upper:
            left = lower
        else:
            right = upper
    if lowest == math.inf:
        raise UnreachableError(NO_FINITE_LOSS)
    return best, lowest
