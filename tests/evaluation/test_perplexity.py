"""Samples of windows against the model's own loss."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.data.tasks import Document, Window
from prunebench.errors import InputError, NonFiniteError
from prunebench.evaluation.base import EVALUATORS
from prunebench.models.view import ModelView

L = 6
RNG = np.random.default_rng(5)
DOCUMENTS = [
    Document(
        doc_id=8 + i,
        doc_hash=f"hash {i}",
        payload=Window(ids=RNG.integers(0, 260, length), scored_from=start),
    )
    for i, (length, start) in enumerate(((32, 1), (32, 20), (32, 1), (19, 2)))
]
PLANS = [PruningPlan.dense(L), PruningPlan.without([2], L), PruningPlan.without([2, 3], L)]
OVERFLOWING = PruningPlan(num_layers=L, layers=(LayerSpec(base=0), LayerSpec(base=1, blend=((1, 1e39),))))
PERPLEXITY = EVALUATORS["perplexity"]


def evaluate(dense, plans, documents=DOCUMENTS):
    """The samples by plan, where every plan has some."""
    samples = {}
    for plan, outcome in PERPLEXITY.evaluate(dense, plans, documents):
        assert isinstance(outcome, tuple)
        samples[plan] = outcome
    return samples


@torch.no_grad()
def mean_loss(dense, plan, window):
    labels = torch.from_numpy(window.ids)[None].clone()
    labels[0, : window.scored_from] = -100
    with ModelView(dense).applied(plan) as model:
        return float(model(input_ids=torch.from_numpy(window.ids)[None], labels=labels).loss)


def test_a_sample_is_the_log_likelihood_and_the_number_of_a_windows_scored_tokens(load_tiny):
    dense = load_tiny("gemma2")
    seen = evaluate(dense, PLANS)
    assert set(seen) == set(PLANS)
    for plan, samples in seen.items():
        assert [(s.doc_id, s.doc_hash, s.metric, s.weight) for s in samples] == [
            (8, "hash 0", "perplexity", 31),
            (9, "hash 1", "perplexity", 12),
            (10, "hash 2", "perplexity", 31),
            (11, "hash 3", "perplexity", 17),
        ]
        for sample, document in zip(samples, DOCUMENTS, strict=True):
            assert -sample.value / sample.weight == pytest.approx(
                mean_loss(dense, plan, document.payload), rel=1e-6
            )


def test_samples_do_not_depend_on_the_other_plans(load_tiny):
    together = evaluate(load_tiny("llama"), PLANS)
    for plan in PLANS:
        assert evaluate(load_tiny("llama"), [plan]) == {plan: together[plan]}


def test_a_plan_without_finite_logits_names_itself_and_the_window_and_spoils_no_other(load_tiny):
    dense = load_tiny("llama")
    seen = dict(PERPLEXITY.evaluate(dense, [OVERFLOWING, *PLANS], DOCUMENTS))
    error = seen.pop(OVERFLOWING)
    assert isinstance(error, NonFiniteError)
    assert str(error) == f"logits of plan {OVERFLOWING.plan_id} on window 8 are not finite"
    assert seen == evaluate(dense, PLANS)


def test_one_token_without_finite_logits_fails_the_window(load_tiny):
    dense = replace(load_tiny("llama"), model=copy.deepcopy(load_tiny("llama").model))
    fifth = torch.tensor([5])
    dense.model.lm_head.register_forward_hook(
        lambda _module, _inputs, logits: logits.index_fill(0, fifth, torch.nan)
    )
    ((_, error),) = PERPLEXITY.evaluate(dense, PLANS[:1], DOCUMENTS)
    assert isinstance(error, NonFiniteError)


def test_plans_are_given_as_they_are_finished(load_tiny):
    dense = load_tiny("llama")
    run = []
    hook = dense.model.model.layers[L - 1].register_forward_hook(lambda *_: run.append(1))
    plan, _ = next(PERPLEXITY.evaluate(dense, PLANS, DOCUMENTS))
    hook.remove()
    assert plan == PLANS[0]
    assert len(run) == 2, "one pass of the last block over each of the two lengths"


def test_a_window_of_another_vocabulary_is_refused(load_tiny):
    strange = Document(doc_id=0, doc_hash="", payload=Window(ids=np.array([1, 300]), scored_from=1))
    with pytest.raises(InputError, match="token id 300"):
        next(PERPLEXITY.evaluate(load_tiny("llama"), PLANS, [strange]))
