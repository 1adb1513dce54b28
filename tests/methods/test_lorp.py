import math

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

from prunebench.core.budget import Budget
from prunebench.errors import InputError
from prunebench.methods.lorp import LoRP, LoRPParams, clusters_by_locality, locality_score

PROTECTED = {0, -1}


def planned(seen, layers, **params):
    return LoRP().plan(seen, Budget(layers), LoRPParams(**params))


def removed(seen, layers, **params):
    return list(planned(seen, layers, **params).plan.removed_layers)


def with_output(S_LL):
    """The (B, B) matrix of block inputs S and a last boundary that LoRP must not look at."""
    L = len(S_LL)
    boundaries = np.eye(L + 1)
    boundaries[:L, :L] = S_LL
    boundaries[L, :L] = boundaries[:L, L] = -0.99
    return boundaries


@pytest.fixture(params=["smollm2", "tiny"])
def recorded(request, golden, symmetric, seen_similarity):
    record = golden("depth_lorp.json")[request.param]
    record["S"] = symmetric(record["S"])
    record["seen"] = seen_similarity(with_output(record["S"]), tokens=4096)
    return record


# Two clusters, {0, 1, 2, 3} and {4, 5, 6}: 0.8 and 0.6 inside but for two pairs, 0 across.
HAND = np.zeros((7, 7))
HAND[:4, :4], HAND[4:, 4:] = 0.8, 0.6
HAND[1, 2] = HAND[2, 1] = 0.9
HAND[4, 5] = HAND[5, 4] = 0.7
np.fill_diagonal(HAND, 1)


def test_worked_by_hand(seen_similarity):
    # r = 0.8, 0.8333, 0.8333, 0.8 | 0.65, 0.65, 0.6; 0 and 6 are protected. Stage 1: 1 and 4.
    # mu: {0, 2, 3} 0.8, {5, 6} 0.6 -> 2; {0, 3} 0.8 -> 3; {0} has no candidate -> 5.
    seen = seen_similarity(with_output(HAND), tokens=3)
    assert removed(seen, 1, clusters=2) == [1]
    assert removed(seen, 2, clusters=2) == [1, 4]
    assert removed(seen, 3, clusters=2) == [1, 2, 4]
    assert removed(seen, 4, clusters=2) == [1, 2, 3, 4]
    assert removed(seen, 5, clusters=2) == [1, 2, 3, 4, 5]
    # Without a first stage: {0..3} 0.8167, {4..6} 0.6333.
    assert removed(seen, 3, clusters=2, stage1="none") == [1, 2, 3]
    # Paper: only eligible layers: {2, 3} 0.8 -> 2; {3} and {5} are alone -> 3, the shallower.
    assert removed(seen, 4, clusters=2, variant="paper") == [1, 2, 3, 4]
    # Only the last layer protected: r of 0 is 0.8, as of 3.
    assert removed(seen, 4, clusters=2, protect=(-1,)) == [0, 1, 2, 4]


def test_what_the_rule_chose_is_told(seen_similarity):
    # 9 of 21 pairs lie inside clusters: 5 · 0.8 + 0.9 + 2 · 0.6 + 0.7 = 6.8; RLS = -log2(6.8 / 21)
    answer = planned(seen_similarity(with_output(HAND)), 2)
    assert answer.chosen["rls"] == pytest.approx(-math.log2(6.8 / 21))
    assert answer.chosen["clusters"] == 2
    assert answer.chosen["members"] == [[0, 1, 2, 3], [4, 5, 6]]
    assert planned(seen_similarity(with_output(HAND)), 2, clusters=3).chosen["clusters"] == 3


@pytest.mark.parametrize(
    ("rls", "clusters"),
    [
        (math.inf, 2),
        (1.149, 2),
        (1.0, 2),
        (0.999999, 3),
        (0.941, 3),
        (0.926, 3),
        (0.7, 3),
        (0.699999, 4),
        (0.685, 4),
        (0.644, 4),
        (-0.0, 4),
    ],
)
def test_k_follows_from_the_locality_score_as_in_table_1(rls, clusters):
    assert clusters_by_locality(rls) == clusters


def test_the_locality_score_is_minus_log2_of_the_mean_pair():
    S = np.array([[1, 0.5, 0.25], [0.5, 1, 0.0], [0.25, 0.0, 1]])
    assert locality_score(S) == 2.0
    assert locality_score(np.ones((4, 4))) == 0.0
    assert locality_score(np.array([[1.0, 0.0], [0.0, 1.0]])) == math.inf
    assert locality_score(np.array([[1.0, -0.5], [-0.5, 1.0]])) == math.inf


def uniform(value, L=8):
    return with_output(np.full((L, L), value) + (1 - value) * np.eye(L))


def test_a_score_next_to_a_threshold_is_warned_of(seen_similarity):
    assert (
        "RLS 1 is within 1e-4 of 1.0, where K changes" in planned(seen_similarity(uniform(0.5)), 3).warnings
    )
    near = planned(seen_similarity(uniform(2**-0.70001)), 3).warnings
    assert "RLS 0.70001 is within 1e-4 of 0.7, where K changes" in near
    assert not any("RLS" in w for w in planned(seen_similarity(uniform(0.5)), 3, clusters=2).warnings)
    assert not any("RLS" in w for w in planned(seen_similarity(uniform(0.55)), 3).warnings)


def test_a_mean_that_has_no_logarithm_counts_as_local(seen_similarity):
    answer = planned(seen_similarity(uniform(-0.1)), 3)
    assert answer.chosen["rls"] is None
    assert answer.chosen["clusters"] == 2
    assert "the mean similarity of all layer pairs is not positive: RLS counts as infinite" in answer.warnings
    assert not any("RLS" in w for w in planned(seen_similarity(uniform(-0.1)), 3, clusters=2).warnings)


def test_small_models_get_no_more_clusters_than_layers(seen_similarity):
    answer = planned(seen_similarity(uniform(0.9, L=3)), 1)
    assert answer.chosen["clusters"] == 3
    assert answer.plan.removed_layers == (1,)


def test_clusters_out_of_range_are_refused(seen_similarity):
    for clusters in (1, 0, -3):
        with pytest.raises(InputError, match=rf"^clusters {clusters}: has to be at least 2, or 'rls'$"):
            LoRPParams(clusters=clusters)
    seen = seen_similarity(uniform(0.5))
    assert len(planned(seen, 3, clusters=8).chosen["members"]) == 8
    with pytest.raises(InputError, match=r"^clusters 9: the model has only 8 layers$"):
        planned(seen, 3, clusters=9)
    with pytest.raises(InputError, match=r"^clusters 9: the model has only 8 layers$"):
        LoRP().check(seen.shape, Budget(1), LoRPParams(clusters=9))


def test_it_refuses_statistics_that_overflowed(seen_similarity):
    boundaries = uniform(0.5)
    boundaries[2, 3] = np.nan
    with pytest.raises(InputError, match=r"^1 of 64 similarities between layers are not finite"):
        planned(seen_similarity(boundaries), 1)
    boundaries = uniform(0.5)
    boundaries[8, 3] = np.nan  # the last boundary is not LoRP's business
    assert len(removed(seen_similarity(boundaries), 1)) == 1


def test_it_agrees_with_the_released_code(recorded):
    L, last = len(recorded["S"]), len(recorded["S"]) - 1
    assert locality_score(recorded["S"]) == pytest.approx(recorded["rls"], rel=1e-9)
    for K, n, expected in recorded["runs"]:
        answer = planned(recorded["seen"], n, clusters=K or "rls")
        assert list(answer.plan.removed_layers) == expected
        assert answer.chosen["clusters"] == (K or recorded["clusters"])
        labels = recorded["labels"][str(answer.chosen["clusters"])]
        assert answer.chosen["members"] == [
            [i for i in range(L) if labels[i] == k] for k in range(max(labels) + 1)
        ]
        assert not {0, last} & set(expected)


def test_every_variant_agrees_with_its_record(golden, symmetric, seen_similarity):
    record = golden("depth_lorp.json")["smollm2"]
    seen = seen_similarity(with_output(symmetric(record["S"])), tokens=4096)
    for K, n, code, paper, second_stage in record["variants"]:
        assert removed(seen, n, clusters=K) == code
        assert removed(seen, n, clusters=K, variant="paper") == paper
        assert removed(seen, n, clusters=K, stage1="none") == second_stage
        assert removed(seen, n, clusters=K, variant="code", stage1="code") == code
        assert removed(seen, n, clusters=K, variant="paper", stage1="paper") == paper
        assert removed(seen, 1, clusters=K, variant="paper", stage1="code") == removed(seen, 1, clusters=K)
    assert any(code != paper for _, _, code, paper, _ in record["variants"])


def dense_clusters(S, K):
    """Ng, Jordan and Weiss on A = (S + 1) / 2 without self-loops, by a full eigendecomposition."""
    A = (S + 1) / 2
    np.fill_diagonal(A, 0)
    root = np.sqrt(A.sum(axis=1))
    _, vectors = np.linalg.eigh(np.eye(len(S)) - A / np.outer(root, root))
    points = vectors[:, :K] / root[:, None]
    best = (math.inf, None)
    for seed in range(60):
        centres, labels = kmeans2(points, K, minit="++", seed=np.random.default_rng(seed), missing="warn")
        inertia = ((points - centres[labels]) ** 2).sum()
        if len(set(labels.tolist())) == K and inertia < best[0] - 1e-12:
            best = (inertia, labels)
    clusters = [set(np.flatnonzero(best[1] == k).tolist()) for k in range(K)]
    return sorted(clusters, key=min)


def paper(S, K, n):
    """Section 4.3 of the paper literally: equations 8 to 11, B = {first, last}."""
    boundary, clusters = {0, len(S) - 1}, dense_clusters(S, K)
    r = {
        i: sum(S[i, m] for m in C - {i}) / (len(C) - 1) if len(C) > 1 else -math.inf
        for C in clusters
        for i in C
    }
    pool = [max(sorted(C - boundary), key=r.__getitem__) for C in clusters if C - boundary]
    pruned = set(sorted(pool, key=lambda i: (-r[i], i))[:n]) if n < len(pool) else set(pool)
    while len(pruned) < n:
        best, choice = None, None
        for C in clusters:
            rest = sorted(C - pruned - boundary)
            pairs = [S[i, j] for i in rest for j in rest if i < j]
            mu = sum(pairs) / len(pairs) if pairs else -math.inf
            if rest and (best is None or mu > best):
                best, choice = mu, max(rest, key=r.__getitem__)
        pruned.add(choice)
    return sorted(pruned)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_papers_variant_is_the_brute_force_for_every_budget(recorded, K):
    S = recorded["S"]
    assert [sorted(c) for c in dense_clusters(S, K)] == planned(recorded["seen"], 1, clusters=K).chosen[
        "members"
    ]
    for n in range(1, len(S) - 1):
        assert removed(recorded["seen"], n, clusters=K, variant="paper") == paper(S, K, n)
