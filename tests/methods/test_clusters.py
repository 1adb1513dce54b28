import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import SpectralClustering

from prunebench.methods.clusters import (
    Residual,
    Stage1,
    affinity,
    allocate,
    mean_pair,
    redundancy,
    spectral_clusters,
)

# Six layers in two clusters, {0, 2, 4} and {1, 3, 5}.
HAND = np.array(
    [
        [1.0, 0.0, 0.5, 0.0, 0.3, 0.0],
        [0.0, 1.0, 0.0, 0.9, 0.0, 0.7],
        [0.5, 0.0, 1.0, 0.0, 0.1, 0.0],
        [0.0, 0.9, 0.0, 1.0, 0.0, 0.6],
        [0.3, 0.0, 0.1, 0.0, 1.0, 0.0],
        [0.0, 0.7, 0.0, 0.6, 0.0, 1.0],
    ]
)
MEMBERS = ((0, 2, 4), (1, 3, 5))


def order(S, members, count, protected=(), stage1: Stage1 = "code", residual: Residual = "remaining"):
    return allocate(S, members, count, protected, stage1=stage1, residual=residual).removed


def test_affinity_maps_cosines_to_0_and_1_with_a_unit_diagonal():
    S = np.array([[0.0, -1.0], [0.5, 7.0]])
    np.testing.assert_array_equal(affinity(S), [[1.0, 0.0], [0.75, 1.0]])
    np.testing.assert_array_equal(S, [[0.0, -1.0], [0.5, 7.0]])


def test_clusters_are_numbered_by_their_shallowest_layer():
    S = np.full((7, 7), -0.8)
    for cluster in ((0, 3), (1, 2, 6), (4, 5)):
        S[np.ix_(cluster, cluster)] = 0.9
    np.fill_diagonal(S, 1)
    assert spectral_clusters(S, 3) == (((0, 3), (1, 2, 6), (4, 5)), ())


def test_one_cluster_and_one_layer_a_cluster_need_no_arithmetic():
    assert spectral_clusters(HAND, 1).members == ((0, 1, 2, 3, 4, 5),)
    assert spectral_clusters(HAND, 6).members == ((0,), (1,), (2,), (3,), (4,), (5,))


def test_scikit_learns_warnings_are_passed_on_once():
    S = np.full((6, 6), -1.0)
    S[:3, :3] = S[3:, 3:] = 1
    members, warnings = spectral_clusters(S, 2)
    assert members == ((0, 1, 2), (3, 4, 5))
    assert len(warnings) == 1
    assert warnings[0].startswith("spectral clustering: Graph is not fully connected")


@pytest.mark.parametrize("seed", range(6))
def test_it_calls_scikit_learn_as_the_released_code_does(seed):
    # Nothing clusters here, so that a different seed or label rule would show.
    S = np.random.default_rng(seed).uniform(-1, 1, size=(20, 20))
    S = (S + S.T) / 2
    np.fill_diagonal(S, 1)
    A = (S + 1) / 2
    labels = SpectralClustering(
        5, affinity="precomputed", random_state=0, assign_labels="kmeans"
    ).fit_predict(A)
    expected = {tuple(np.flatnonzero(labels == k).tolist()) for k in range(5)}
    members, warnings = spectral_clusters(S, 5)
    assert set(members) == expected
    assert [c[0] for c in members] == sorted(c[0] for c in members)
    assert warnings == ()


def test_redundancy_is_the_mean_over_the_other_members():
    r = redundancy(HAND, MEMBERS)
    np.testing.assert_allclose(r, [0.4, 0.8, 0.3, 0.75, 0.2, 0.65], rtol=1e-15)
    assert redundancy(HAND, ((0,), (1, 2), (3, 4, 5)))[0] == -math.inf


def test_residual_redundancy_is_the_mean_over_pairs():
    assert mean_pair(HAND, [1, 3, 5]) == pytest.approx((0.9 + 0.7 + 0.6) / 3)
    assert mean_pair(HAND, [1, 5]) == 0.7
    assert mean_pair(HAND, [3]) == -math.inf
    assert mean_pair(HAND, []) == -math.inf


def test_each_cluster_first_then_the_most_redundant_one():
    # Stage 1 takes 0 (r = 0.4) and 1 (0.8); then mu = S_24 = 0.1 against S_35 = 0.6: 3; then {5} is alone
    # (-inf), so 2 of {2, 4}; then all are alone: the shallower cluster gives 4, then 5.
    assert order(HAND, MEMBERS, 6) == (0, 1, 3, 2, 4, 5)
    for count in range(1, 6):
        assert order(HAND, MEMBERS, count) == (0, 1, 3, 2, 4, 5)[:count]


def test_the_papers_first_stage_serves_the_most_redundant_clusters():
    assert order(HAND, MEMBERS, 1, stage1="paper") == (1,)
    assert order(HAND, MEMBERS, 2, stage1="paper") == (1, 0)


def test_without_a_first_stage_the_residual_decides_from_the_start():
    # mu = 0.3 against 0.7333: 1; then 0.3 against 0.6: 3; then 0.3 against -inf: 0
    assert order(HAND, MEMBERS, 3, stage1="none") == (1, 3, 0)
    assert allocate(HAND, MEMBERS, 1, (), stage1="none", residual="remaining").warnings == ()


def test_protected_layers_count_in_r_and_only_in_one_reading_of_the_residual():
    # 1 and 0 stay. Stage 1: 2 (r = 0.3 over all members) and 3. Then {0, 4}: 0.3, {1, 5}: 0.7 -> 5.
    assert order(HAND, MEMBERS, 4, protected=(0, 1)) == (2, 3, 5, 4)
    # Eligible only: {4} and {5} are alone -> the shallower cluster.
    assert order(HAND, MEMBERS, 4, protected=(0, 1), residual="eligible") == (2, 3, 4, 5)


def test_a_cluster_of_protected_layers_is_passed_over():
    assert order(HAND, MEMBERS, 3, protected=(0, 2, 4)) == (1, 3, 5)
    assert order(HAND, MEMBERS, 1, protected=(0, 2, 4), stage1="paper") == (1,)


def test_layers_alone_come_last_in_the_papers_first_stage():
    members = ((0,), (1, 3, 5), (2, 4))
    assert order(HAND, members, 3, stage1="paper") == (1, 2, 0)


def test_ties_go_to_the_lower_layer_and_the_shallower_cluster():
    S = np.full((6, 6), 0.5)
    np.fill_diagonal(S, 1)
    assert order(S, MEMBERS, 6, stage1="none") == (0, 2, 1, 3, 4, 5)
    assert order(S, MEMBERS, 2, stage1="paper") == (0, 1)
    assert order(S, ((1, 3, 5), (2, 4), (0,)), 2, stage1="paper") == (1, 2)


def test_a_budget_below_the_number_of_clusters_is_reported():
    def warnings(count, stage1):
        return allocate(HAND, MEMBERS, count, (), stage1=stage1, residual="remaining").warnings

    assert warnings(1, "code") == ("the budget 1 serves only the shallowest of 2 clusters",)
    assert warnings(1, "paper") == ("the budget 1 serves only the most redundant of 2 clusters",)
    assert warnings(2, "code") == ()
    assert warnings(2, "paper") == ()
    assert allocate(HAND, MEMBERS, 1, (1, 3, 5), stage1="code", residual="remaining").warnings == ()


def test_near_ties_at_the_cuts_are_reported():
    S = HAND.copy()
    S[2, 4] = S[4, 2] = 0.3  # r of 2 is 0.4, as that of 0; r of 4 is 0.3
    assert allocate(S, MEMBERS, 2, (), stage1="code", residual="remaining").warnings == (
        "redundancy r: layer 0 was preferred to layer 2 by a relative margin under 1e-4 (0.4 and 0.4)",
    )
    assert allocate(S, MEMBERS, 4, (), stage1="code", residual="remaining").warnings == ()
    S[3, 5] = S[5, 3] = 0.30001  # the residuals of {2, 4} and {3, 5} after the first stage
    assert allocate(S, MEMBERS, 3, (), stage1="code", residual="remaining").warnings[0] == (
        "residual redundancy: cluster 1 was preferred to cluster 0 by a relative margin under 1e-4"
        " (0.30001 and 0.3)"
    )
    S = HAND.copy()
    S[0, 2] = S[2, 0] = 1.3  # r of 0 is 0.8, as that of 1
    assert allocate(S, MEMBERS, 1, (), stage1="paper", residual="remaining").warnings == (
        "the budget 1 serves only the most redundant of 2 clusters",
        "redundancy r of the clusters: layer 0 was preferred to layer 1 by a relative margin under 1e-4"
        " (0.8 and 0.8)",
    )


@st.composite
def allocations(draw):
    L = draw(st.integers(3, 10))
    S = np.random.default_rng(draw(st.integers(0, 10_000))).uniform(-1, 1, size=(L, L))
    labels = [0, *draw(st.lists(st.integers(0, 3), min_size=L - 1, max_size=L - 1))]
    members = tuple(tuple(i for i in range(L) if labels[i] == k) for k in dict.fromkeys(labels))
    protected = draw(st.sets(st.integers(0, L - 1), max_size=L - 2))
    count = draw(st.integers(1, L - len(protected)))
    return (S + S.T) / 2, members, protected, count


def brute_force(S, members, count, protected, stage1, residual):
    """Sections 4.3 of LoRP and 3.2 of WRP, step by step, with sets."""
    r = {}
    for cluster in members:
        for layer in cluster:
            rest = [S[layer, m] for m in cluster if m != layer]
            r[layer] = sum(rest) / len(rest) if rest else -math.inf
    best_first = {k: sorted(set(c) - set(protected), key=lambda i: (-r[i], i)) for k, c in enumerate(members)}
    removed = []
    if stage1 != "none":
        pool = [layers[0] for _, layers in sorted(best_first.items()) if layers]
        if stage1 == "paper" and len(pool) > count:
            pool.sort(key=lambda i: (-r[i], i))
        removed = pool[:count]
    while len(removed) < count:
        mu = {}
        for k, cluster in enumerate(members):
            rest = set(cluster) - set(removed) - (set(protected) if residual == "eligible" else set())
            pairs = [S[i, j] for i in rest for j in rest if i < j]
            if set(best_first[k]) - set(removed):
                mu[k] = sum(pairs) / len(pairs) if pairs else -math.inf
        k = min(mu, key=lambda k: (-mu[k], k))
        removed.append(next(i for i in best_first[k] if i not in removed))
    return set(removed)


@given(allocations(), st.sampled_from(["code", "paper", "none"]), st.sampled_from(["remaining", "eligible"]))
def test_it_is_the_brute_force_and_keeps_its_laws(case, stage1, residual):
    S, members, protected, count = case
    removed = order(S, members, count, protected, stage1, residual)
    assert len(set(removed)) == len(removed) == count
    assert not set(removed) & set(protected)
    assert set(removed) == brute_force(S, members, count, protected, stage1, residual)
    # Positive scales and shifts of the similarity change no comparison.
    assert set(order(3 * S + 1, members, count, protected, stage1, residual)) == set(removed)
