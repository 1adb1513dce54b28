"""What LoRP and WRP share: spectral clusters of layers and the two-stage allocation of removals to them.

Sources: LoRP (arXiv:2605.27786, eq. 5-11 and its released code) and WRP section 3.2, which restates it.
"""

import math
import warnings
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from prunebench.core.stats import Array
from prunebench.methods.depth import Selection, tie_warning

Stage1: TypeAlias = Literal["code", "paper", "none"]
"""Which clusters get a first removal when the budget is short: the shallowest, those of highest r, none."""

Residual: TypeAlias = Literal["remaining", "eligible"]
"""Whether a cluster's residual redundancy counts its protected layers."""


class Clusters(NamedTuple):
    """Disjoint clusters in the order of their shallowest layer, each ascending."""

    members: tuple[tuple[int, ...], ...]
    warnings: tuple[str, ...]


def affinity(S_LL: Array) -> Array:
    """A = (S + 1) / 2 with unit diagonal (LoRP eq. 7), in [0, 1]."""
    A_LL = (S_LL + 1) / 2
    np.fill_diagonal(A_LL, 1.0)
    return A_LL


def _labels(S_LL: Array, count: int) -> np.ndarray:
    # Imported here because the command line lists methods without clustering anything.
    from sklearn.cluster import SpectralClustering

    model = SpectralClustering(
        n_clusters=count, affinity="precomputed", random_state=0, assign_labels="kmeans"
    )
    return model.fit_predict(affinity(S_LL))


def spectral_clusters(S_LL: Array, count: int) -> Clusters:
    """Cluster the layers by similarity, as the released code does (scikit-learn drops the diagonal of A).

    Args:
        S_LL: similarities in [-1, 1] of shape (L, L).
        count: K, from 1 to L.
    """
    num_layers = len(S_LL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if count == 1:
            labels = np.zeros(num_layers, dtype=int)
        elif count == num_layers:
            labels = np.arange(num_layers)
        else:
            labels = _labels(S_LL, count)
    by_depth = dict.fromkeys(labels.tolist())
    members = tuple(tuple(np.flatnonzero(labels == label).tolist()) for label in by_depth)
    messages = dict.fromkeys(f"spectral clustering: {warning.message}" for warning in caught)
    return Clusters(members, tuple(messages))


def redundancy(S_LL: Array, members: Sequence[Sequence[int]]) -> Array:
    """r(l): mean similarity of each layer to the others of its cluster (eq. 8), -inf where it is alone."""
    r_L = np.full(len(S_LL), -math.inf)
    for cluster in members:
        for layer in cluster:
            if others := [m for m in cluster if m != layer]:
                r_L[layer] = S_LL[layer, others].mean()
    return r_L


def mean_pair(S_LL: Array, layers: Sequence[int]) -> float:
    """Mean similarity of all pairs among `layers` (eq. 10), -inf for fewer than two."""
    if len(layers) < 2:
        return -math.inf
    rows, columns = np.triu_indices(len(layers), k=1)
    chosen = np.asarray(layers)
    return float(S_LL[chosen[rows], chosen[columns]].mean())


def allocate(
    S_LL: Array,
    members: Sequence[Sequence[int]],
    count: int,
    protected: Collection[int],
    *,
    stage1: Stage1,
    residual: Residual,
) -> Selection:
    """Remove `count` layers: one of each cluster first, then from the cluster of highest residual redundancy.

    r is computed once over all members. Ties go to the lower layer and the shallower cluster; when every
    cluster's residual is -inf, the shallowest cluster that still has a candidate is next.

    Args:
        S_LL: similarities of shape (L, L).
        members: disjoint clusters in depth order.
        count: at most the number of layers that are not protected.
        protected: layers that stay.
        stage1: which clusters are served first when the budget is smaller than their number.
        residual: what eq. 10 averages over.
    """
    r_L = redundancy(S_LL, members)
    queues = [sorted(set(c) - set(protected), key=lambda layer: (-r_L[layer], layer)) for c in members]
    removed, messages = _first_stage(queues, r_L, count, stage1)
    last_choice: tuple[str, ...] = ()
    while len(removed) < count:
        left_out = set(removed) | (set(protected) if residual == "eligible" else set())
        mu = {
            k: mean_pair(S_LL, [m for m in members[k] if m not in left_out])
            for k, queue in enumerate(queues)
            if queue
        }
        best, *others = sorted(mu, key=lambda k: (-mu[k], k))
        last_choice = (
            tie_warning("residual redundancy", best, others[0], mu, unit="cluster") if others else ()
        )
        removed.append(queues[best].pop(0))
    cuts = [
        warning
        for queue, cluster in zip(queues, members, strict=True)
        if queue and (gone := [layer for layer in removed if layer in cluster])
        for warning in tie_warning("redundancy r", gone[-1], queue[0], r_L)
    ]
    return Selection(tuple(removed), (*messages, *last_choice, *cuts))


def _first_stage(
    queues: list[list[int]], r_L: Array, count: int, stage1: Stage1
) -> tuple[list[int], tuple[str, ...]]:
    """Take the first of each queue, as far as `count` reaches; the queues lose what is taken."""
    if stage1 == "none":
        return [], ()
    served = [k for k, queue in enumerate(queues) if queue]
    if stage1 == "paper":
        served.sort(key=lambda k: (-r_L[queues[k][0]], queues[k][0]))
    messages: tuple[str, ...] = ()
    if count < len(served):
        kept_by = "shallowest" if stage1 == "code" else "most redundant"
        messages = (f"the budget {count} serves only the {kept_by} of {len(served)} clusters",)
        if stage1 == "paper":
            heads = [queues[k][0] for k in served]
            messages += tie_warning("redundancy r of the clusters", heads[count - 1], heads[count], r_L)
    return [queues[k].pop(0) for k in served[:count]], messages
