"""LoRP: cluster layers by the similarity of their inputs, then spread the removals over the clusters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import Array
from prunebench.errors import InputError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.clusters import Stage1, allocate, spectral_clusters
from prunebench.methods.depth import finite, near
from prunebench.methods.space import Distribution, Ints

RLS_BOUNDS = (1.0, 0.7)
"""K is 2 from the first on, 3 from the second on, else 4 (the released code)."""

MOST_CLUSTERS = 6
"""Largest K of the paper's sweep, which starts at 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRPParams(Params):
    """Parameters of LoRP; the first and the last layer are protected by default."""

    protect: tuple[int, ...] = (0, -1)
    clusters: int | Literal["rls"] = "rls"
    """K, or the rule that reads it from the Representation Locality Score."""
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


def clusters_by_locality(rls: float) -> int:
    """K of the released code: 2 for RLS >= 1, 3 for RLS >= 0.7, else 4."""
    return 2 + sum(rls < bound for bound in RLS_BOUNDS)


class LoRP(Method[LoRPParams]):
    """Two-stage allocation over spectral clusters of the (L, L) matrix of mean cos(h_i, h_j), i, j < L."""

    name: ClassVar[str] = "lorp"
    title: ClassVar[str] = "LoRP (Yun et al., 2026)"
    params: ClassVar[type[Params]] = LoRPParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration"})

    def space(self, shape: ModelShape, budget: Budget) -> Mapping[str, Distribution]:
        """K from 2 to 6."""
        return {"clusters": Ints(2, max(2, min(MOST_CLUSTERS, shape.num_layers)))}

    def check(self, shape: ModelShape, budget: Budget, params: LoRPParams) -> None:
        """Refuse budgets that protected layers rule out, and more clusters than layers."""
        super().check(shape, budget, params)
        if params.clusters != "rls" and params.clusters > shape.num_layers:
            raise InputError(f"clusters {params.clusters}: the model has only {shape.num_layers} layers")

    def plan(self, seen: Measurements, budget: Budget, params: LoRPParams) -> Planned:
        """Cluster and allocate. `chosen` holds the RLS, K and the clusters."""
        num_layers = seen.shape.num_layers
        self.check(seen.shape, budget, params)
        S_LL = finite(seen.need_calibration().similarity_BB[:-1, :-1], "similarities between layers")
        rls, warnings = locality_score(S_LL), ()
        if params.clusters == "rls":
            count = min(clusters_by_locality(rls), num_layers)
            if close := [bound for bound in RLS_BOUNDS if near(rls, bound)]:
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
