import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget
from prunebench.core.stats import WeightStats
from prunebench.errors import InputError
from prunebench.methods.wrp import (
    WRP,
    WRPParams,
    depth_reference,
    eigengap_rule,
    laplacian_gaps,
    weight_similarity,
)


def planned(seen, layers, **params):
    return WRP().plan(seen, Budget(layers), WRPParams(**params))


def stats(norms, cka_o, cka_down):
    return WeightStats(
        source="by hand",
        norm_L7=np.asarray(norms, dtype=float),
        column_square_LI=np.zeros((len(norms), 1)),
        cka_o_LL=np.asarray(cka_o, dtype=float),
        cka_down_LL=np.asarray(cka_down, dtype=float),
    )


def block(*clusters, inside=1.0, across=-1.0):
    L = sum(map(len, clusters))
    S = np.full((L, L), across)
    for cluster in clusters:
        S[np.ix_(cluster, cluster)] = inside
    np.fill_diagonal(S, 1)
    return S


@pytest.fixture
def recorded(golden, symmetric, seen_similarity):
    record = golden("depth_wrp.json")
    record["S"], projections = symmetric(record["S"]), symmetric(record["S_proj"])
    weights = stats(record["norms"], projections, projections)
    record["seen"] = replace(seen_similarity(np.eye(31)), calibration=None, weights=weights)
    return record


def test_the_similarity_worked_by_hand():
    # Norm vectors (3, 0, …), (1, 0, …), (2, 3, 0, …): mean (2, 1), centred (1, -1), (-1, -1), (0, 2).
    norms = np.zeros((3, 7))
    norms[:, 0], norms[:, 1] = [3, 1, 2], [0, 0, 3]
    cka_o = [[1, 0.4, 0.2], [0.4, 1, 0.6], [0.2, 0.6, 1]]
    cka_down = [[1, 0.2, 0.4], [0.2, 1, 0.2], [0.4, 0.2, 1]]
    # Scale: 0 ; -2 / (sqrt(2)·2) = -1/sqrt(2) ; -1/sqrt(2). Projection: 0.3, 0.3, 0.4.
    far = -1 / math.sqrt(2)
    expected = [[1, 0.15, 0.15 + far / 2], [0.15, 1, 0.2 + far / 2], [0.15 + far / 2, 0.2 + far / 2, 1]]
    np.testing.assert_allclose(weight_similarity(stats(norms, cka_o, cka_down)), expected, rtol=1e-11)


def test_a_layer_of_average_norms_has_no_scale_similarity():
    norms = [[1.0] * 7, [2.0] * 7, [3.0] * 7]
    S = weight_similarity(stats(norms, np.eye(3), np.eye(3)))
    np.testing.assert_allclose(S, [[1, 0, -0.5], [0, 1, 0], [-0.5, 0, 1]], atol=1e-11)


def test_the_guard_against_zero_is_1e_minus_12():
    norms = np.full((2, 7), 5.0)
    norms[0, 0] += 2e-6  # centred: ±1e-6, so that the product of the lengths is 1e-12
    S = weight_similarity(stats(norms, np.zeros((2, 2)), np.zeros((2, 2))))
    assert S[0, 1] == pytest.approx(-0.25, rel=1e-6)


def test_it_needs_finite_similarities_of_all_layers(seen):
    with pytest.raises(
        InputError, match=r"^this method needs the CKA between layers, which was not measured$"
    ):
        weight_similarity(replace(seen.weights, cka_o_LL=np.zeros((0, 0)), cka_down_LL=np.zeros((0, 0))))
    broken = seen.weights.cka_o_LL.copy()
    broken[1, 2] = np.nan
    with pytest.raises(InputError, match=r"^1 of 144 similarities between layers are not finite"):
        planned(replace(seen, weights=replace(seen.weights, cka_o_LL=broken)), 2)


def test_the_reference_keeps_only_depth():
    S = np.array([[1, 0.1, 0.5, 0.7], [0.1, 1, 0.2, 0.9], [0.5, 0.2, 1, 0.6], [0.7, 0.9, 0.6, 1]])
    near, far = (0.1 + 0.2 + 0.6) / 3, (0.5 + 0.9) / 2
    expected = [[1, near, far, 0.7], [near, 1, near, far], [far, near, 1, near], [0.7, far, near, 1]]
    np.testing.assert_allclose(depth_reference(S), expected, rtol=1e-15)
    np.testing.assert_allclose(
        depth_reference(0.5 * S), 0.5 * np.array(expected) + 0.5 * np.eye(4), rtol=1e-15
    )


def test_the_gaps_worked_by_hand():
    # Two pairs: A is two blocks of ones, the Laplacian has 0, 0, 1, 1. By distance its reference has
    # A = (1, 2/3, 0, 0) and so 0, 1 - (26 + sqrt(816))/70, 1 - 11/35, 1 - (26 - sqrt(816))/70.
    pairs = block((0, 1), (2, 3))
    assert laplacian_gaps(pairs) == pytest.approx((1, 0), abs=1e-12)
    root = math.sqrt(816)
    expected = ((26 + root) / 70 - 11 / 35, 11 / 35 - (26 - root) / 70)
    assert laplacian_gaps(depth_reference(pairs)) == pytest.approx(expected, rel=1e-12)
    # Three pairs: 0, 0, 0, 1, 1, 1.
    assert laplacian_gaps(block((0, 1), (2, 3), (4, 5))) == pytest.approx((0, 1), abs=1e-12)
    # Three layers have eigenvalues 0, 0, 1: the second gap is 1, there is no third.
    assert laplacian_gaps(block((0, 1), (2,))) == (pytest.approx(1), 0.0)
    assert laplacian_gaps(np.ones((2, 2))) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("gaps", "reference", "rho", "clusters"),
    [
        ((0.5, 0.5), (0.25, 0.25), 0.5, 2),
        ((0.5, 0.5), (0.25, 0.125), 0.4, 4),
        ((0.5, 0.5), (0.125, 0.25), 0.6, 2),
        ((0.5, 0.25), (0.25, 0.5), 1.0, 2),
        ((0.25, 0.5), (0.5, 0.25), 0.0, 4),
        ((0.25, 0.25), (0.5, 0.5), 1.0, 2),
        ((0.25, 0.25), (0.25, 0.25), 1.0, 2),
        ((0.875, 0.25), (0.0, 0.0), 7 / 9, 2),
    ],
)
def test_the_rule_compares_the_excess_over_the_reference(gaps, reference, rho, clusters):
    assert eigengap_rule(gaps, reference) == (pytest.approx(rho, rel=1e-15), clusters)


def seen_of(seen_similarity, S):
    """Measurements whose weight similarity is S: without scale, S is half the mean of the CKAs."""
    S = np.asarray(S, dtype=float)
    weights = stats(np.ones((len(S), 7)), 2 * S, 2 * S)
    return replace(seen_similarity(np.eye(len(S) + 1)), calibration=None, weights=weights)


def test_the_plan_worked_by_hand(seen_similarity):
    # Clusters {0, 1, 2, 3} and {4, 5, 6}, 0 and 6 protected; as LoRP's example.
    S = block((0, 1, 2, 3), (4, 5, 6), inside=0.8, across=0.0)
    S[4:, 4:] = 0.6
    S[1, 2] = S[2, 1] = 0.9
    S[4, 5] = S[5, 4] = 0.7
    seen = seen_of(seen_similarity, S)
    assert planned(seen, 1, clusters=2).plan.removed_layers == (1,)
    assert planned(seen, 1, clusters=2).warnings[0] == "the budget 1 serves only the shallowest of 2 clusters"
    assert planned(seen, 2, clusters=2).plan.removed_layers == (1, 4)
    assert planned(seen, 3, clusters=2).plan.removed_layers == (1, 2, 4)
    assert planned(seen, 4, clusters=2).plan.removed_layers == (1, 2, 3, 4)
    assert planned(seen, 3, clusters=2, protect=(1, 2)).plan.removed_layers == (0, 3, 4)
    answer = planned(seen, 3)
    assert answer.chosen["clusters"] == 2
    assert answer.chosen["members"] == [[0, 1, 2, 3], [4, 5, 6]]
    assert planned(seen, 3, clusters=2).chosen.keys() == {"clusters", "members"}


def test_both_readings_of_the_residual(seen_similarity):
    # Stage 1: 2 and 4. Remaining {0, 1, 3}: (0.1 + 0.1 + 0.7) / 3 = 0.3, {5, 6}: 0.5 -> 5.
    # Eligible {1, 3}: 0.7, {5}: alone -> 1.
    S = block((0, 1, 2, 3), (4, 5, 6), inside=0.5, across=-0.9)
    for i, j, value in (
        (0, 1, 0.1),
        (0, 3, 0.1),
        (1, 3, 0.7),
        (2, 0, 0.9),
        (2, 1, 0.9),
        (2, 3, 0.9),
        (4, 5, 0.6),
    ):
        S[i, j] = S[j, i] = value
    seen = seen_of(seen_similarity, S)
    assert planned(seen, 3, clusters=2).plan.removed_layers == (2, 4, 5)
    assert planned(seen, 3, clusters=2, residual="eligible").plan.removed_layers == (1, 2, 4)


def test_four_clusters_where_the_third_gap_dominates(seen_similarity):
    three = planned(seen_of(seen_similarity, block((0, 5), (1, 3), (2, 4), across=-0.9)), 2)
    assert three.chosen["rho"] < 0.5
    assert three.chosen["clusters"] == 4
    assert len(three.chosen["members"]) == 4


def test_a_ratio_next_to_one_half_is_warned_of(seen_similarity):
    coarse, fine = block((0, 5, 4), (1, 2, 3), across=-0.9), block((0, 5), (1, 3), (2, 4), across=-0.9)

    def answer(t, **params):
        return planned(seen_of(seen_similarity, (1 - t) * coarse + t * fine), 2, **params)

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if answer(middle).chosen["rho"] >= 0.5 else (low, middle)
    assert answer(low).chosen["clusters"] == 2
    assert answer(high).chosen["clusters"] == 4
    assert "rho 0.5 is within 1e-4 of 0.5, where K changes" in answer(low).warnings
    assert not any("rho" in w for t in (0.0, 1.0) for w in answer(t).warnings)
    assert not any("rho" in w for w in answer(low, clusters=2).warnings)


def test_a_model_smaller_than_four_layers_is_clustered_all_the_same(seen_similarity):
    answer = planned(seen_of(seen_similarity, block((0, 1), (2,), across=0.1, inside=0.5)), 1)
    assert answer.plan.removed_layers == (1,)
    assert answer.chosen["clusters"] == 2


def test_clusters_out_of_range_are_refused(seen):
    for clusters in (1, 0, -3):
        with pytest.raises(InputError, match=rf"^clusters {clusters}: has to be at least 2, or 'eigengap'$"):
            WRPParams(clusters=clusters)
    assert len(planned(seen, 3, clusters=12).chosen["members"]) == 12
    with pytest.raises(InputError, match=r"^clusters 13: the model has only 12 layers$"):
        planned(seen, 3, clusters=13)


def test_it_agrees_with_the_record(recorded):
    S = weight_similarity(recorded["seen"].weights)
    np.testing.assert_allclose(S, recorded["S"], atol=1e-12)
    answer = planned(recorded["seen"], 7)
    assert answer.chosen["rho"] == recorded["rho"] == 1.0
    assert answer.chosen["clusters"] == recorded["clusters"] == 2
    assert answer.chosen["gaps"] == pytest.approx(recorded["gaps"], rel=1e-9)
    assert answer.chosen["reference_gaps"] == pytest.approx(recorded["reference_gaps"], rel=1e-9)
    for K, n, counts_protected, order in recorded["runs"]:
        residual = "remaining" if counts_protected else "eligible"
        answer = planned(recorded["seen"], n, clusters=K, residual=residual)
        assert answer.plan.removed_layers == tuple(sorted(order))
        labels = recorded["labels"][str(K)]
        assert answer.chosen["members"] == [[i for i in range(30) if labels[i] == k] for k in range(K)]


def brute_similarity(W_o, W_down, norms):
    """Equations 1 to 3, pair by pair, with the centring matrix written out."""
    L, d = len(W_o), W_o[0].shape[0]
    H = np.eye(d) - np.ones((d, d)) / d
    f = [np.array(n) - np.mean(norms, axis=0) for n in norms]
    S = np.eye(L)
    for i in range(L):
        for j in range(L):
            if i != j:
                s = 0.0
                for W in (W_o, W_down):
                    G_i, G_j = ((H @ W[k]) @ (H @ W[k]).T for k in (i, j))
                    s += np.trace(G_i @ G_j) / (
                        np.sqrt(np.trace(G_i @ G_i)) * np.sqrt(np.trace(G_j @ G_j)) + 1e-12
                    )
                scale = f[i] @ f[j] / (np.linalg.norm(f[i]) * np.linalg.norm(f[j]) + 1e-12)
                S[i, j] = (s / 2 + scale) / 2
    return S


def brute_gaps(S):
    A = (S + 1) / 2
    for i in range(len(S)):
        A[i, i] = 1
    D = np.diag(A @ np.ones(len(S)))
    inverse_root = np.linalg.inv(D) ** 0.5
    values = sorted(np.linalg.eigvals(np.eye(len(S)) - inverse_root @ A @ inverse_root).real)
    return values[2] - values[1], values[3] - values[2]


@given(st.integers(0, 10_000), st.integers(4, 7), st.floats(0.5, 20))
def test_it_is_the_brute_force_over_matrices(seed, L, scale):
    rng = np.random.default_rng(seed)
    W_o, W_down = rng.normal(size=(L, 5, 4)), rng.normal(size=(L, 5, 9))
    norms = rng.uniform(1, 5, size=(L, 7))

    def cka(W):
        X = [w - w.mean(axis=0) for w in W]
        dot = np.array([[np.linalg.norm(a.T @ b) ** 2 for b in X] for a in X])
        return dot / np.sqrt(np.outer(np.diag(dot), np.diag(dot)))

    S = weight_similarity(stats(norms, cka(W_o), cka(W_down)))
    np.testing.assert_allclose(S, brute_similarity(W_o, W_down, norms), atol=1e-10)
    np.testing.assert_allclose(laplacian_gaps(S), brute_gaps(S.copy()), atol=1e-10)
    reference = np.array(
        [
            [
                np.mean([S[a, b] for a in range(L) for b in range(L) if abs(a - b) == abs(i - j)])
                for j in range(L)
            ]
            for i in range(L)
        ]
    )
    np.testing.assert_allclose(depth_reference(S), reference, atol=1e-12)
    # The model-wide scale of the weights says nothing.
    np.testing.assert_allclose(weight_similarity(stats(scale * norms, cka(W_o), cka(W_down))), S, atol=1e-10)
