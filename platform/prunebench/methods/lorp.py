"""LoRP: cluster layers by the similarity of their inputs, then spread the removals over the clusters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import Array
from prunebench.errors import InputError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.clusters import Stage1, allocate, spectral_clusters
from prunebench.methods.depth import finite, near
from prunebench.methods.space import Distribution, Floats, Ints, Piece, shortest

MOST_CLUSTERS = 6
"""Largest K of the paper's sweep, which starts at 2."""
RLS_RANGE = Floats(0.0, 2.0)
"""Where a search looks for the bounds of the RLS: the paper's models lie between 0.64 and 1.15."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRPParams(Params):
    """Parameters of LoRP; the first and the last layer are protected by default."""

    protect: tuple[int, ...] = (0, -1)
    clusters: int | Literal["rls"] = "rls"
    """K, or the rule that reads it from the Representation Locality Score."""
    rls_two: float = 1.0
    """The RLS from which on the rule takes K = 2 (as in the released code)."""
    rls_three: float = 0.7
    """The RLS from which on it takes 3, and below it 4."""
    variant: Literal["code", "paper"] = "code"
    """Whether a cluster's residual redundancy counts its protected layers (code), or not (paper, eq. 10)."""
    stage1: Literal["variant"] | Stage1 = "variant"
    """Clusters served if N < K: the shallowest (code), the most redundant (paper); `none`: no first stage."""

    def __post_init__(self) -> None:
        """Refuse fewer than two clusters."""
        if self.clusters != "rls" and self.clusters < 2:
            raise InputError(f"clusters {self.clusters}: has to be at least 2, or 'rls'")


def locality_score(S_LL: Array) -> float:
    """RLS = -log2 of the mean similarity of all pairs (eq. 5-6); +inf where that mean is not positive."""
    mean = S_LL[np.triu_indices(len(S_LL), k=1)].mean()
    return -math.log2(mean) if mean > 0 else math.inf


def clusters_by_locality(rls: float, bounds: tuple[float, float] = (1.0, 0.7)) -> int:
    """K of the released code: 2, and one more for each bound that the RLS does not reach."""
    return 2 + sum(rls < bound for bound in bounds)


def between_layers(seen: Measurements) -> Array:
    """S: mean cosine between the inputs of every two layers, in [-1, 1], of shape (L, L).

    Raises:
        InputError: it was not measured, or is not finite.
    """
    return finite(seen.need_calibration().similarity_BB[:-1, :-1], "similarities between layers")


def reached(rls: float, bounds: Floats) -> tuple[Piece, ...]:
    """The bounds that an RLS reaches, and those that it does not, as far as the range has any."""
    low, high = bounds.low, bounds.high
    ends = [(low, min(rls, high))] if low <= rls else []
    ends += [(max(rls, low), high)] if rls < high else []
    return tuple(Piece(start, stop, shortest(start, stop)) for start, stop in ends)


class LoRP(Method[LoRPParams]):
    """Two-stage allocation over spectral clusters of the (L, L) matrix of mean cos(h_i, h_j), i, j < L."""

    name: ClassVar[str] = "lorp"
    title: ClassVar[str] = "LoRP (Yun et al., 2026)"
    params: ClassVar[type[Params]] = LoRPParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration"})
    rule: ClassVar[str] = "K by the RLS rule"

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """K from 2 to 6; the rule's two bounds where `clusters` is fixed to the rule."""
        if fixed.get("clusters") == "rls":
            return {"rls_two": RLS_RANGE, "rls_three": RLS_RANGE}
        return {"clusters": Ints(2, max(2, min(MOST_CLUSTERS, shape.num_layers)))}

    def distinct(
        self, seen: Measurements, budget: Budget, params: LoRPParams, space: Mapping[str, Distribution]
    ) -> Mapping[str, tuple[Piece, ...]]:
        """Two pieces of each bound: those that the model's RLS reaches, and those that it does not."""
        rls = locality_score(between_layers(seen))
        bounds = ((name, space.get(name)) for name in ("rls_two", "rls_three"))
        return {name: reached(rls, bound) for name, bound in bounds if isinstance(bound, Floats)}

    def check(self, shape: ModelShape, budget: Budget, params: LoRPParams) -> None:
        """Refuse budgets that protected layers rule out, and more clusters than layers."""
        super().check(shape, budget, params)
        if params.clusters != "rls" and params.clusters > shape.num_layers:
            raise InputError(f"clusters {params.clusters}: the model has only {shape.num_layers} layers")

    def plan(self, seen: Measurements, budget: Budget, params: LoRPParams) -> Planned:
        """Cluster and allocate. `chosen` holds the RLS, K and the clusters."""
        num_layers = seen.shape.num_layers
        self.check(seen.shape, budget, params)
        S_LL = between_layers(seen)
        rls, warnings = locality_score(S_LL), ()
        if params.clusters == "rls":
            bounds = params.rls_two, params.rls_three
            count = min(clusters_by_locality(rls, bounds), num_layers)
            if close := [bound for bound in bounds if near(rls, bound)]:
                warnings = (f"RLS {rls:.6g} is within 1e-4 of {close[0]}, where K changes",)
            if rls == math.inf:
                warnings = ("the mean similarity of all layer pairs is not positive: RLS counts as infinite",)
        else:
            count = params.clusters
        clusters = spectral_clusters(S_LL, count)
        removed, cuts = allocate(
            S_LL,
            clusters.members,
            budget.layers,
            params.protected(num_layers),
            stage1=params.variant if params.stage1 == "variant" else params.stage1,
            residual="remaining" if params.variant == "code" else "eligible",
        )
        return Planned(
            plan=PruningPlan.without(removed, num_layers),
            chosen={
                "rls": rls if math.isfinite(rls) else None,
                "clusters": count,
                "members": [list(c) for c in clusters.members],
            },
            warnings=(*warnings, *clusters.warnings, *cuts),
        )
