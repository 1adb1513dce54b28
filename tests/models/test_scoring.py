"""Log-probabilities under many plans against the model's own logits."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import InputError
from prunebench.models.scoring import Row, batches_of, token_logprobs
from prunebench.models.view import ModelView

L = 6
RNG = np.random.default_rng(3)
ROWS = [
    Row(RNG.integers(0, 260, length), scored_from)
    for length, scored_from in ((24, 1), (200, 1), (40, 39), (24, 9), (200, 17), (33, 30))
]
PLANS = [
    PruningPlan.dense(L),
    PruningPlan.without([1], L),
    PruningPlan.without([1, 4], L),
    PruningPlan.without([3, 4, 5], L),
    PruningPlan(num_layers=L, layers=(LayerSpec(base=0), LayerSpec(base=1, blend=((2, 0.5), (3, 0.5))))),
]
OVERFLOWING = PruningPlan(num_layers=L, layers=(LayerSpec(base=0), LayerSpec(base=1, blend=((1, 1e39),))))


@torch.no_grad()
def from_logits(dense, pruned, row):
    with ModelView(dense).applied(pruned) as model:
        logits = model(input_ids=torch.from_numpy(row.ids)[None], use_cache=False).logits[0]
    logprobs = logits.float().log_softmax(-1).double().numpy()
    return np.array([logprobs[t - 1, row.ids[t]] for t in range(row.scored_from, len(row.ids))])


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_familys_values_equal_those_of_the_models_logits_bit_for_bit(family_dense):
    seen = dict(token_logprobs(family_dense, PLANS, ROWS))
    assert set(seen) == set(PLANS)
    for pruned, found in seen.items():
        assert all(values.dtype == np.float64 for values in found)
        assert_same(found, [from_logits(family_dense, pruned, row) for row in ROWS])


def test_gemmas_capped_logits_are_among_the_families_compared(load_tiny):
    assert load_tiny("gemma2").model.config.final_logit_softcapping == 30


def test_bfloat16_logits_go_through_a_float32_softmax(tiny):
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.load import load_model

    dense = load_model(Checkpoint.open(tiny("qwen3")), dtype="bfloat16")
    for pruned, found in token_logprobs(dense, PLANS, ROWS):
        assert_same(found, [from_logits(dense, pruned, row) for row in ROWS])


@settings(max_examples=15)
@given(st.sets(st.sampled_from(range(len(PLANS))), min_size=1))
def test_what_a_plan_gets_does_not_depend_on_the_others(load_tiny, chosen):
    dense = load_tiny("olmo3")
    rows = [*ROWS, Row(RNG.integers(0, 260, 3)), Row(RNG.integers(0, 260, 2)), Row(RNG.integers(0, 260, 2))]
    together = dict(token_logprobs(dense, [PLANS[i] for i in chosen], rows))
    for pruned, found in together.items():
        ((_, by_itself),) = token_logprobs(dense, [pruned], rows)
        assert_same(found, by_itself)


def test_rows_of_a_few_tokens_are_right_up_to_rounding(load_tiny):
    dense = load_tiny("llama")
    rows = [Row(np.array([5, 6])), Row(np.array([7, 8, 9]), 2), Row(np.array([1, 2]))]
    ((_, found),) = token_logprobs(dense, [PLANS[1]], rows)
    for values, row in zip(found, rows, strict=True):
        np.testing.assert_allclose(values, from_logits(dense, PLANS[1], row), rtol=1e-5)


@given(st.lists(st.integers(2, 60), max_size=30), st.integers(1, 100))
def test_batches_hold_every_row_once_and_rows_of_one_length_within_the_budget(lengths, tokens):
    batches = batches_of(lengths, tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len({lengths[i] for i in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens
        assert list(batch) == sorted(batch)
    full = {}
    for batch in batches:
        length = lengths[batch[0]]
        assert full.setdefault(length, True), "only the last batch of a length may have room left"
        full[length] = (len(batch) + 1) * length > tokens


@pytest.mark.parametrize(("ids", "scored_from"), [([1], 1), ([], 0), ([1, 2, 3], 0), ([1, 2, 3], 3)])
def test_a_row_needs_context_and_a_scored_token(ids, scored_from):
    with pytest.raises(
        InputError, match=f"row of {len(ids)} tokens cannot be scored from token {scored_from}"
    ):
        Row(np.array(ids), scored_from)


@pytest.mark.parametrize("outside", [-1, 272])
def test_a_token_outside_the_vocabulary_is_refused_with_its_number(load_tiny, outside):
    with pytest.raises(InputError, match=f"token id {outside} lies outside the model's vocabulary of 272"):
        next(token_logprobs(load_tiny("llama"), PLANS, [ROWS[0], Row(np.array([0, 271, outside]))]))


def test_a_plan_that_overflows_spoils_no_other(load_tiny):
    dense = load_tiny("llama")
    seen = dict(token_logprobs(dense, [PLANS[0], OVERFLOWING, PLANS[1]], ROWS))
    assert not any(np.isfinite(values).any() for values in seen[OVERFLOWING])
    assert_same(seen[PLANS[1]], [from_logits(dense, PLANS[1], row) for row in ROWS])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_one_logit_that_is_not_finite_shows_even_where_another_token_is_scored(load_tiny, value):
    dense = replace(load_tiny("llama"), model=copy.deepcopy(load_tiny("llama").model))
    dense.model.lm_head.register_forward_hook(
        lambda _module, _inputs, logits: logits.index_fill(-1, LAST, value)
    )
    ((_, found),) = token_logprobs(dense, [PLANS[0]], ROWS)
    assert not any(np.isfinite(values).any() for values in found)


LAST = torch.tensor([271])
