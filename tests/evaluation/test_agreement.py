"""KL and overlap against numpy written from the paper's formulas, and worked by hand."""

import math

import numpy as np
import pytest
import torch

from prunebench.evaluation.agreement import agreement
from prunebench.evaluation.versions import DISTANCES
from prunebench.models.attention import Attention


def attention(query, key, *, allowed=None, scaling=1.0, softcap=None):
    return Attention(
        torch.tensor(query, dtype=torch.float32),
        torch.tensor(key, dtype=torch.float32),
        None if allowed is None else torch.tensor(allowed),
        scaling,
        softcap,
    )


def weights(query, key, allowed, scaling, softcap):
    """Attention weights (heads, queries, tokens) without the first token, rescaled."""
    heads, groups = len(query), len(key)
    found = []
    for head in range(heads):
        scores = query[head] @ key[head * groups // heads].T * scaling
        if softcap is not None:
            scores = np.tanh(scores / softcap) * softcap
        kept = np.where(allowed, np.exp(scores), 0.0)
        kept[:, 0] = 0
        found.append(kept / np.maximum(kept.sum(1, keepdims=True), 1e-300))
    return np.array(found)


def brute_force(dense, pruned, allowed):
    divergence, distributions = 0.0, 0
    common, picked = dict.fromkeys(DISTANCES, 0), dict.fromkeys(DISTANCES, 0)
    for p, q in zip(dense, pruned, strict=True):
        for place in range(2, len(p)):
            distributions += 1
            divergence += sum(a * math.log(a / b) for a, b in zip(p[place], q[place], strict=True) if a > 0)
            earlier = [token for token in range(1, place) if allowed[place, token]]
            if len(earlier) <= 8:
                continue
            best = [sorted(earlier, key=lambda token, w=w: -w[place, token])[:8] for w in (p, q)]
            for token in best[0]:
                begin = max(distance for distance in DISTANCES if distance <= place - token)
                picked[begin] += 1
                common[begin] += token in best[1]
    return divergence, distributions, list(common.values()), list(picked.values())


@pytest.mark.parametrize("window", [None, 12])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_both_measures_follow_the_papers_definitions(window, softcap):
    random = np.random.default_rng(3)
    tokens, heads, groups, width = 90, 4, 2, 5
    place = np.arange(tokens)
    allowed = place[None, :] <= place[:, None]
    if window is not None:
        allowed &= place[:, None] - place[None, :] < window
    drawn = [(random.normal(size=(heads, tokens, width)), random.normal(size=(groups, tokens, width)))]
    drawn.append((drawn[0][0] + random.normal(size=(heads, tokens, width)) / 3, drawn[0][1]))
    given = allowed if window is not None else None
    found = agreement(*(attention(q, k, allowed=given, scaling=0.4, softcap=softcap) for q, k in drawn))
    dense, pruned = (weights(q, k, allowed, 0.4, softcap) for q, k in drawn)
    expected = brute_force(dense, pruned, allowed)
    assert found.divergence == pytest.approx(expected[0], rel=1e-4)
    assert found.distributions == expected[1] == heads * (tokens - 2)
    assert found.common_B.tolist() == expected[2]
    assert found.picked_B.tolist() == expected[3]
    assert 0 < sum(expected[2]) < sum(expected[3])
    assert (expected[3][1] > 0) == (window is None), "a window of 12 has no token 16 back"


def test_two_tokens_by_hand():
    """The third token may attend to itself and the second: 1/4 and 3/4 become 1/2 each."""
    key = [[[9.0], [0.0], [1.0]]]
    dense = attention([[[0.0], [0.0], [math.log(3)]]], key)
    pruned = attention([[[0.0], [0.0], [0.0]]], key)
    found = agreement(dense, pruned)
    assert found.divergence == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5), rel=1e-6)
    assert (found.distributions, found.picked_B.sum()) == (1, 0)


def test_the_first_token_counts_for_nothing():
    random = np.random.default_rng(4)
    query, key = random.normal(size=(1, 30, 3)), random.normal(size=(1, 30, 3))
    moved = key.copy()
    moved[0, 0] += 5
    found = agreement(attention(query, key), attention(query, moved))
    assert found.divergence == 0
    assert (found.common_B == found.picked_B).all()


def test_chunks_of_queries_change_no_count(monkeypatch):
    random = np.random.default_rng(5)
    pair = [attention(random.normal(size=(2, 70, 4)), random.normal(size=(1, 70, 4))) for _ in range(2)]
    whole = agreement(*pair)
    monkeypatch.setattr("prunebench.evaluation.agreement.CELLS", 2 * 70 * 3)
    parts = agreement(*pair)
    assert parts.divergence == pytest.approx(whole.divergence, rel=1e-6)
    assert parts.distributions == whole.distributions
    assert (parts.picked_B == whole.picked_B).all()
    assert (parts.common_B == whole.common_B).all()
