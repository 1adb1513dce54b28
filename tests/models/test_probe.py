"""The probe against losses and similarities computed from the model itself."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prunebench.core.fingerprint import sha256_text
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import InputError, NonFiniteError
from prunebench.models.probe import Boundaries, ModelProbe
from prunebench.models.scoring import Row, Scorer
from prunebench.models.view import ModelView

L = 6
RNG = np.random.default_rng(11)
ROWS = [RNG.integers(0, 260, length) for length in (32, 32, 20, 32)]
PLANS = [
    PruningPlan.dense(L),
    *(PruningPlan.without([i], L) for i in range(L)),
    PruningPlan.without([1, 2], L),
    PruningPlan(
        num_layers=L, layers=(LayerSpec(base=0), LayerSpec(base=1, blend=((3, 1.0),)), LayerSpec(base=5))
    ),
    PruningPlan(num_layers=L, layers=(LayerSpec(base=0),)),
]
OVERFLOWING = PruningPlan(num_layers=L, layers=(LayerSpec(base=0, blend=((0, 1e39),)),))


def probe_of(dense, remembered=None, corpus_id="rows"):
    answers = []
    return ModelProbe(dense, ROWS, corpus_id, remembered or {}, answers.append), answers


@torch.no_grad()
def forward(dense, plan, ids):
    with ModelView(dense).applied(plan) as model:
        out = model(input_ids=torch.from_numpy(ids)[None], use_cache=False, output_hidden_states=True)
    return out.logits[0], out.hidden_states[-1]


def loss_by_hand(dense, plan):
    losses = [
        torch.nn.functional.cross_entropy(
            forward(dense, plan, ids)[0][:-1], torch.from_numpy(ids[1:]), reduction="none"
        )
        for ids in ROWS
    ]
    return float(torch.cat(losses).mean())


def similarity_by_hand(dense, plan):
    """As LaCo's notebook: the last hidden state, which has passed the final norm, one vector a sample."""
    whole = PruningPlan.dense(L)
    cosines = []
    for ids in ROWS:
        one, other = (
            forward(dense, whole, ids)[1].numpy().ravel(),
            forward(dense, plan, ids)[1].numpy().ravel(),
        )
        cosines.append(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
    return np.mean(cosines)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.parametrize("plan", PLANS)
def test_answers_are_those_of_the_pruned_model(load_tiny, name, plan):
    dense = load_tiny(name)
    probe, _ = probe_of(dense)
    assert probe.loss(plan) == pytest.approx(loss_by_hand(dense, plan), rel=1e-6)
    assert probe.output_similarity(plan) == pytest.approx(similarity_by_hand(dense, plan), abs=1e-6)


def test_the_dense_model_is_like_itself(load_tiny):
    assert probe_of(load_tiny("llama"))[0].output_similarity(PLANS[0]) == pytest.approx(1, abs=1e-15)


@settings(max_examples=10)
@given(st.permutations(range(len(PLANS))), st.booleans())
def test_answers_do_not_depend_on_what_was_asked_before(load_tiny, order, similarity_first):
    dense = load_tiny("qwen3")
    probe, _ = probe_of(dense)
    if similarity_first:
        probe.output_similarity(PLANS[3])
    for i in order:
        fresh, _ = probe_of(dense)
        assert probe.loss(PLANS[i]) == fresh.loss(PLANS[i])
        assert probe.output_similarity(PLANS[i]) == fresh.output_similarity(PLANS[i])


def test_a_remembered_answer_runs_nothing(load_tiny):
    first, answers = probe_of(load_tiny("llama"))
    losses = [first.loss(plan) for plan in PLANS]
    likeness = [first.output_similarity(plan) for plan in PLANS]
    assert len(answers) == 2 * len(PLANS)
    second, again = probe_of(load_tiny("llama"), {answer.call_id: answer.value for answer in answers})
    assert [second.loss(plan) for plan in PLANS] == losses
    assert [second.output_similarity(plan) for plan in PLANS] == likeness
    assert (second.forwards, again) == (0, [])


def test_asking_twice_runs_once(load_tiny):
    probe, answers = probe_of(load_tiny("llama"))
    value = probe.loss(PLANS[1])
    run = probe.forwards
    assert (probe.loss(PLANS[1]), probe.forwards, len(answers)) == (value, run, 1)
    assert answers[0].value == value


def test_a_call_names_all_that_decides_its_answer(load_tiny):
    dense = load_tiny("llama")
    probe, answers = probe_of(dense)
    probe.loss(PLANS[1])
    probe.output_similarity(PLANS[1])
    probe.loss(PLANS[2])
    other, elsewhere = probe_of(dense, corpus_id="other rows")
    other.loss(PLANS[1])
    calls = [*answers, *elsewhere]
    assert len({answer.call_id for answer in calls}) == 4
    assert all(answer.call_id == sha256_text(answer.call) for answer in calls)
    assert json.loads(answers[0].call) == {
        "probe_version": 1,
        "weights_id": dense.checkpoint.weights_id,
        "corpus_id": "rows",
        "dtype": "float32",
        "attention": "sdpa",
        "question": "loss",
        "plan_id": PLANS[1].plan_id,
    }


def test_dropping_each_block_in_turn_shares_the_blocks_before_it(load_tiny):
    probe, _ = probe_of(load_tiny("llama"))
    for i in range(L):
        probe.loss(PruningPlan.without([i], L))
    # Without block 0 all five others run; then block i - 1 and the blocks after i.
    assert probe.forwards == 5 + sum(1 + (L - 1 - i) for i in range(1, L)) < L * (L - 1)


def test_merging_from_the_end_on_down_shares_the_blocks_before_the_merge(load_tiny):
    probe, _ = probe_of(load_tiny("llama"))
    for i in (4, 3, 2, 1):
        probe.output_similarity(PruningPlan.without([i], L))
    # The dense reference, then the blocks after the one that is missing.
    assert probe.forwards == L + 1 + 2 + 3 + 4


@pytest.mark.parametrize("limit", [1, 70_000, 1 << 30])
def test_boundaries_stay_within_their_bytes_and_change_no_bit(load_tiny, limit):
    scorer = Scorer(load_tiny("olmo3"), [Row(ids) for ids in ROWS])
    boundaries = Boundaries(scorer.runner, limit)
    for plan in [*PLANS, *reversed(PLANS)]:
        found = boundaries.normed(plan)
        expected = Boundaries(scorer.runner, 1).normed(plan)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        assert boundaries.nbytes <= limit


def test_a_plan_without_finite_logits_is_an_error_that_is_not_remembered(load_tiny):
    probe, answers = probe_of(load_tiny("llama"))
    with pytest.raises(NonFiniteError, match=f"loss of plan {OVERFLOWING.plan_id}"):
        probe.loss(OVERFLOWING)
    with pytest.raises(NonFiniteError, match="output_similarity"):
        probe.output_similarity(OVERFLOWING)
    assert answers == []
    assert np.isfinite(probe.loss(PLANS[1]))


def test_a_plan_for_another_model_is_refused(load_tiny):
    with pytest.raises(InputError, match="plan is for 5 layers"):
        probe_of(load_tiny("llama"))[0].loss(PruningPlan.dense(5))
