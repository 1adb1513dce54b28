"""Packed rows against the same rows run by themselves, in every family and beyond every window."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.packing import PackedScorer, packed_scores
from prunebench.models.rows import Row, num_tokens, pack
from prunebench.models.scoring import token_logprobs

L = 6
RNG = np.random.default_rng(3)
PLANS = [PruningPlan.dense(L), PruningPlan.without([1, 4], L), PruningPlan.without([1], L)]


def row(*parts, scored):
    ids = np.concatenate(parts)
    return Row(ids, len(ids) - scored)


def draw(length):
    return RNG.integers(0, 260, length)


CONTEXT = draw(30)
SAME = draw(12)
GROUPS = [
    [row(CONTEXT, draw(n), scored=n) for n in (4, 1, 7)],
    [row(draw(25), SAME, scored=9)],
    [row(CONTEXT[:20], draw(3), SAME, scored=12), row(CONTEXT[:20], draw(5), SAME, scored=12)],
    [row(draw(1), draw(3), scored=3), row(draw(1), draw(2), scored=2)],
    [row(CONTEXT, SAME[:1], scored=1), row(CONTEXT, SAME[:2], scored=2), row(CONTEXT, SAME[:1], scored=1)],
]
ROWS = [row for group in GROUPS for row in group]


def check(dense, tolerance):
    alone = dict(token_logprobs(dense, PLANS, ROWS))
    for plan, scores in packed_scores(dense, PLANS, GROUPS):
        for scored, values in zip(scores, alone[plan], strict=True):
            np.testing.assert_allclose(scored.logprobs, values, atol=tolerance)


def test_every_familys_values_are_those_of_the_rows_alone(family_dense):
    check(family_dense, 2e-5)  # float32: other kernels add in another order


def test_eager_attention_too(tiny):
    check(load_model(Checkpoint.open(tiny("gemma3")), dtype="float32", attention="eager"), 2e-5)


def test_greedy_rows_are_those_whose_tokens_are_the_models_own_choice(load_tiny):
    dense = load_tiny("qwen3")
    context = draw(20)
    everything = [row(context, [token], scored=1) for token in range(260)]
    ((_, scores),) = packed_scores(dense, PLANS[:1], [everything])
    best = int(np.argmax([scored.logprobs[0] for scored in scores]))
    assert [token for token, scored in enumerate(scores) if scored.greedy] == [best]


def test_values_of_a_plan_do_not_depend_on_the_others(load_tiny):
    together = dict(packed_scores(load_tiny("mistral"), PLANS, GROUPS))
    for plan in PLANS:
        ((_, scores),) = packed_scores(load_tiny("mistral"), [plan], GROUPS)
        for one, other in zip(scores, together[plan], strict=True):
            assert np.array_equal(one.logprobs, other.logprobs)


def test_a_shared_context_is_run_once(load_tiny):
    assert num_tokens(GROUPS[0]) == 30 + 3 + 0 + 6
    assert num_tokens(GROUPS[1]) == 36
    assert num_tokens(GROUPS[4]) == 30 + 0 + 1 + 0
    scorer = PackedScorer(load_tiny("llama"), GROUPS)
    assert sum(hidden.shape[1] for hidden in scorer.runner.start) == sum(map(num_tokens, GROUPS))


@given(st.lists(st.integers(2, 40), min_size=1, max_size=12), st.integers(1, 64))
def test_packs_keep_the_order_and_the_bound(lengths, tokens):
    groups = [[Row(np.full(length, number), 1)] for number, length in enumerate(lengths)]
    packs = pack(groups, tokens)
    assert np.concatenate([packed.ids for packed in packs]).tolist() == [
        number for number, length in enumerate(lengths) for _ in range(length - 1)
    ]
    for packed in packs:
        assert len(packed.ids) <= tokens or len(set(packed.trees)) == 1
    for left, right in itertools.pairwise(packs):
        first = np.flatnonzero(right.trees == 0).size
        assert len(left.ids) + first > tokens


def test_a_token_outside_the_vocabulary_is_refused(load_tiny):
    with pytest.raises(InputError, match="token id 10000 lies outside"):
        PackedScorer(load_tiny("llama"), [[Row(np.array([1, 10_000]), 1)]])
