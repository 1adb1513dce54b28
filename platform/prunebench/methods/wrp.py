"""WRP: LoRP's allocation on a similarity of layers that is read from the weights alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import Array, WeightStats
from prunebench.errors import InputError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.clusters import Residual, affinity, allocate, spectral_clusters
from prunebench.methods.depth import finite, near
from prunebench.methods.space import Distribution, Ints

EPSILON = 1e-12
MOST_CLUSTERS = 6
"""Largest K that a search tries, as in LoRP's sweep: the paper's rule chooses between 2 and 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WRPParams(Params):
    """Parameters of WRP; the first and the last layer are protected by default."""

    protect: tuple[int, ...] = (0, -1)
    clusters: int | Literal["eigengap"] = "eigengap"
    """K, or the rule that chooses 2 or 4 from gaps between the Laplacian's eigenvalues."""
    residual: Residual = "remaining"
    """Whether a cluster's residual redundancy counts its protected layers, as the text reads, or not."""

    def __post_init__(self) -> None:
        """Refuse fewer than two clusters."""
        if self.clusters != "eigengap" and self.clusters < 2:
            raise InputError(f"clusters {self.clusters}: has to be at least 2, or 'eigengap'")


def weight_similarity(weights: WeightStats) -> Array:
    """S (eq. 1-3): half projections (CKA of o and down), half projection scales; in [-1, 1], unit diagonal.

    Raises:
        InputError: CKA was not measured, or is not finite.
    """
    if not weights.cka_o_LL.size:
        raise InputError("this method needs the CKA between layers, which was not measured")
    centred_L7 = weights.norm_L7 - weights.norm_L7.mean(axis=0)
    lengths_L = np.linalg.norm(centred_L7, axis=1)
    scale_LL = centred_L7 @ centred_L7.T / (np.outer(lengths_L, lengths_L) + EPSILON)
    S_LL = ((weights.cka_o_LL + weights.cka_down_LL) / 2 + scale_LL) / 2
    np.fill_diagonal(S_LL, 1.0)
    return finite(S_LL, "similarities between layers")


def depth_reference(S_LL: Array) -> Array:
    """S_0: every entry replaced by the mean at its distance |i - j|, unit diagonal."""
    layers = np.arange(len(S_LL))
    mean_by_distance = np.array([np.diagonal(S_LL, offset=k).mean() for k in layers])
    reference_LL = mean_by_distance[np.abs(np.subtract.outer(layers, layers))]
    np.fill_diagonal(reference_LL, 1.0)
    return reference_LL


def laplacian_gaps(S_LL: Array) -> tuple[float, float]:
    """(lambda_3 - lambda_2, lambda_4 - lambda_3) of the normalised Laplacian of A (eq. 4), counted from 1.

    A keeps its unit diagonal, as written. A model of fewer than four layers lacks gaps: they count as 0.
    """
    A_LL = affinity(S_LL)
    scaling_L = 1 / np.sqrt(A_LL.sum(axis=1))
    laplacian_LL = np.eye(len(A_LL)) - scaling_L[:, None] * A_LL * scaling_L
    gaps = np.diff(np.linalg.eigvalsh(laplacian_LL))
    second, third = np.pad(gaps, (0, 3))[1:3].tolist()
    return second, third


def eigengap_rule(gaps: tuple[float, float], reference: tuple[float, float]) -> tuple[float, int]:
    """Return (rho, K): K = 2 where the second gap exceeds its reference by no less than the third, else 4.

    Equation 5; rho lies in [0, 1] and is 1 where neither gap exceeds its reference.
    """
    coarse, fine = (max(gap - null, 0.0) for gap, null in zip(gaps, reference, strict=True))
    rho = coarse / (coarse + fine) if coarse + fine > 0 else 1.0
    return rho, 2 if rho >= 0.5 else 4


class WRP(Method[WRPParams]):
    """Two-stage allocation over spectral clusters of the weight similarity."""

    name: ClassVar[str] = "wrp"
    title: ClassVar[str] = "WRP (weight redundancy, forward-free)"
    params: ClassVar[type[Params]] = WRPParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"weights", "cka"})
    rule: ClassVar[str] = "K by the eigengap rule"

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """K from 2 to 6."""
        return {"clusters": Ints(2, max(2, min(MOST_CLUSTERS, shape.num_layers)))}

    def check(self, shape: ModelShape, budget: Budget, params: WRPParams) -> None:
        """Refuse budgets that protected layers rule out, and more clusters than layers."""
        super().check(shape, budget, params)
        if params.clusters != "eigengap" and params.clusters > shape.num_layers:
            raise InputError(f"clusters {params.clusters}: the model has only {shape.num_layers} layers")

    def plan(self, seen: Measurements, budget: Budget, params: WRPParams) -> Planned:
        """Cluster and allocate. `chosen` holds K, the clusters and what the rule saw."""
        num_layers = seen.shape.num_layers
        self.check(seen.shape, budget, params)
        S_LL = weight_similarity(seen.need_weights())
        chosen, warnings = {}, ()
        if params.clusters == "eigengap":
            gaps, reference = laplacian_gaps(S_LL), laplacian_gaps(depth_reference(S_LL))
            rho, count = eigengap_rule(gaps, reference)
            count = min(count, num_layers)
            chosen = {"rho": rho, "gaps": list(gaps), "reference_gaps": list(reference)}
            if near(rho, 0.5):
                warnings = (f"rho {rho:.6g} is within 1e-4 of 0.5, where K changes",)
        else:
            count = params.clusters
        clusters = spectral_clusters(S_LL, count)
        removed, cuts = allocate(
            S_LL,
            clusters.members,
            budget.layers,
            params.protected(num_layers),
            stage1="code",
            residual=params.residual,
        )
        return Planned(
            plan=PruningPlan.without(removed, num_layers),
            chosen={**chosen, "clusters": count, "members": [list(c) for c in clusters.members]},
            warnings=(*warnings, *clusters.warnings, *cuts),
        )
