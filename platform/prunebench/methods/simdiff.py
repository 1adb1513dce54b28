"""SimDiff: rank blocks by a weighted sum of dissimilarity (cosine) and difference (MSSD or MASD).

The paper's importance I = alpha·sigmoid(L_diff) + (1 - alpha)·I_sim is compared through
s' = (1 - alpha)·I_sim - alpha·sigmoid(-L_diff), which differs from it by alpha alone and does not saturate.
It is evaluated in rational arithmetic, so that an alpha given and an alpha found mean the same layers.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import Array, CalibrationStats
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.depth import finite, span_similarity
from prunebench.methods.space import Choices, Distribution, Floats

NARROWEST = Fraction(1, 2**53)
"""Spacing of float64 just below 1: a narrower interval may hold no alpha that can be written down."""

NO_FINITE_LOSS = "SimDiff: no alpha gave a finite loss on the probe corpus; give alpha as a number"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDiffParams(Params):
    """Parameters of SimDiff; no layer is protected by default, as in the paper."""

    alpha: float | Literal["ternary", "exact"] = "ternary"
    """Weight of the difference, 0..1, or how to find it: Algorithm 1, or every alpha that matters."""
    epsilon: float = 0.01
    """Width of the interval at which the ternary search stops (unstated in the paper)."""
    max_iterations: int = 20
    """Most rounds of the ternary search (unstated in the paper)."""

    def __post_init__(self) -> None:
        """Refuse what no ranking or search can use."""
        if not isinstance(self.alpha, str) and not 0 <= self.alpha <= 1:
            raise InputError(f"alpha {self.alpha}: has to lie between 0 and 1")
        if not 0 < self.epsilon < 1:
            raise InputError(f"epsilon {self.epsilon}: has to lie between 0 and 1, both excluded")
        if self.max_iterations < 1:
            raise InputError(f"max_iterations {self.max_iterations}: has to be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDiffMSSDParams(SimDiffParams):
    """Parameters of SimDiff with MSSD."""

    mssd_reduction: Literal["sum", "mean"] = "sum"
    """Over the hidden dimension: `sum` is eq. 3; `mean` keeps the sigmoid from saturating."""


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


SimDiffParamsT = TypeVar("SimDiffParamsT", bound=SimDiffParams)
Removed: TypeAlias = tuple[int, ...]


class SimDiff(Method[SimDiffParamsT]):
    """Remove the N layers of lowest importance (eq. 7 to 9); subclasses say what the difference is."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration", "probe"})

    def needs(self, params: SimDiffParamsT) -> frozenset[Requirement]:
        """A probe only where alpha is searched."""
        return self.requires if isinstance(params.alpha, str) else frozenset({"calibration"})

    @abstractmethod
    def difference(self, stats: CalibrationStats, params: SimDiffParamsT) -> Array:
        """L_diff, of shape (L,)."""

    def remedy(self, params: SimDiffParamsT) -> str:
        """What to do about a saturated sigmoid."""
        return ""

    def scores(self, stats: CalibrationStats, params: SimDiffParamsT) -> Scores:
        """I_sim and L_diff of every layer.

        Raises:
            InputError: a score is not finite.
        """
        similarity_L = (1 - span_similarity(stats, 1, "prenorm")) / 2
        return Scores(similarity_L, finite(self.difference(stats, params), "differences between blocks"))

    def space(self, shape: ModelShape, budget: Budget) -> Mapping[str, Distribution]:
        """alpha from 0 to 1."""
        return {"alpha": Floats(0.0, 1.0)}

    def distinct(
        self,
        seen: Measurements,
        budget: Budget,
        params: SimDiffParamsT,
        space: Mapping[str, Distribution],
    ) -> Mapping[str, Choices]:
        """One alpha for each piece of the range: what the `exact` policy scores, but for any objective."""
        alpha = space.get("alpha")
        if not isinstance(alpha, Floats):
            return {}
        scores = self.scores(seen.need_calibration(), params)
        pieces = alpha_pieces(scores, params.prunable(seen.shape.num_layers), budget.layers)
        inside = (piece.within(Fraction(alpha.low), Fraction(alpha.high)) for piece in pieces)
        alphas = dict.fromkeys(piece.alpha for piece in inside if piece is not None and not piece.limit)
        return {"alpha": Choices(tuple(alphas))}

    def plan(self, seen: Measurements, budget: Budget, params: SimDiffParamsT) -> Planned:
        """Rank at the alpha given or found and remove the N lowest.

        Raises:
            UnreachableError: alpha is searched and no loss was finite.
        """
        self.check(seen.shape, budget, params)
        num_layers, count = seen.shape.num_layers, budget.layers
        scores = self.scores(seen.need_calibration(), params)
        candidates = params.prunable(num_layers)
        chosen: dict[str, Any] = {}
        if isinstance(params.alpha, str):
            probe = seen.need_probe()
            loss = cache(lambda removed: probe.loss(PruningPlan.without(removed, num_layers)))
            if params.alpha == "ternary":
                removed, chosen = _ternary(Ranking(scores, candidates), count, loss, params)
            else:
                removed, chosen = _exact(alpha_pieces(scores, candidates, count), loss)
            chosen["evaluated"] = loss.cache_info().currsize
        else:
            removed = Ranking(scores, candidates).lowest(Fraction(params.alpha), count)
        warnings = _saturation(scores, self.remedy(params))
        return Planned(plan=PruningPlan.without(removed, num_layers), chosen=chosen, warnings=warnings)


def _ternary(
    ranking: Ranking, count: int, loss: Callable[[Removed], float], params: SimDiffParams
) -> tuple[Removed, dict[str, Any]]:
    alpha, value = ternary_search(
        lambda alpha: loss(ranking.lowest(Fraction(alpha), count)), params.epsilon, params.max_iterations
    )
    return ranking.lowest(Fraction(alpha), count), {"alpha": alpha, "loss": value}


def _exact(pieces: list[AlphaPiece], loss: Callable[[Removed], float]) -> tuple[Removed, dict[str, Any]]:
    best, lowest = None, math.inf
    for piece in pieces:
        if not piece.limit and loss(piece.removed) < lowest:
            best, lowest = piece, loss(piece.removed)
    if best is None:
        raise UnreachableError(NO_FINITE_LOSS)
    return best.removed, {
        "alpha": best.alpha,
        "interval": best.bounds,
        "loss": lowest,
        "distinct_sets": len({piece.removed for piece in pieces}),
        "limits": [[*piece.bounds, list(piece.removed)] for piece in pieces if piece.limit],
    }


def _saturation(scores: Scores, remedy: str) -> tuple[str, ...]:
    if not scores.saturated:
        return ()
    layers = f"{scores.saturated} of {len(scores.difference_L)} layers"
    return (f"sigmoid(L_diff) is 1 in float64 for {layers}: their differences count for nothing{remedy}",)


class SimDiffMSSD(SimDiff[SimDiffMSSDParams]):
    """Difference = mean over tokens of ||h_{l+1} - h_l||_2^2 (eq. 3)."""

    name: ClassVar[str] = "simdiff_mssd"
    title: ClassVar[str] = "SimDiff-MSSD (Similarity and Difference)"
    params: ClassVar[type[Params]] = SimDiffMSSDParams

    def difference(self, stats: CalibrationStats, params: SimDiffMSSDParams) -> Array:
        """MSSD, of shape (L,)."""
        size = stats.hidden_size if params.mssd_reduction == "mean" else 1
        return stats.squared_change_L / (stats.tokens * size)

    def remedy(self, params: SimDiffMSSDParams) -> str:
        """The mean over the hidden dimension is smaller."""
        return " (try mssd_reduction=mean)" if params.mssd_reduction == "sum" else ""


class SimDiffMASD(SimDiff[SimDiffParams]):
    """Difference = mean over tokens and hidden dimension of |h_{l+1} - h_l| (eq. 4)."""

    name: ClassVar[str] = "simdiff_masd"
    title: ClassVar[str] = "SimDiff-MASD (Similarity and Difference)"
    params: ClassVar[type[Params]] = SimDiffParams

    def difference(self, stats: CalibrationStats, params: SimDiffParams) -> Array:
        """MASD, of shape (L,)."""
        return stats.absolute_change_L / (stats.tokens * stats.hidden_size)
