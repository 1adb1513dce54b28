"""SimDiff: rank blocks by a weighted sum of dissimilarity (cosine) and difference (MSSD or MASD)."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import Array, CalibrationStats
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.alpha import (
    NO_FINITE_LOSS,
    AlphaPiece,
    Ranking,
    Scores,
    alpha_pieces,
    ternary_search,
)
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.depth import finite, span_similarity
from prunebench.methods.space import Distribution, Floats, Piece


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


SimDiffParamsT = TypeVar("SimDiffParamsT", bound=SimDiffParams)
Removed: TypeAlias = tuple[int, ...]


class SimDiff(Method[SimDiffParamsT]):
    """Remove the N layers of lowest importance (eq. 7 to 9); subclasses say what the difference is."""

    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration", "probe"})
    rule: ClassVar[str] = "alpha by ternary search (Algorithm 1)"

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

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """alpha from 0 to 1."""
        return {"alpha": Floats(0.0, 1.0)}

    def distinct(
        self,
        seen: Measurements,
        budget: Budget,
        params: SimDiffParamsT,
        space: Mapping[str, Distribution],
    ) -> Mapping[str, tuple[Piece, ...]]:
        """Every set of layers that some alpha removes: what `exact` scores, but for any objective."""
        alpha = space.get("alpha")
        # Another parameter of the space may move the pieces.
        if not isinstance(alpha, Floats) or len(space) > 1:
            return {}
        scores = self.scores(seen.need_calibration(), params)
        pieces = alpha_pieces(scores, params.prunable(seen.shape.num_layers), budget.layers)
        inside = (piece.within(Fraction(alpha.low), Fraction(alpha.high)) for piece in pieces)
        return {"alpha": tuple(piece.plain for piece in inside if piece is not None)}

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
