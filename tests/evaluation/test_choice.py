"""Multiple choice against log-likelihoods summed from the model's own logits."""

import json

import numpy as np
import pytest
import torch

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.data.tasks import Choice, Document
from prunebench.errors import NonFiniteError
from prunebench.evaluation.base import EVALUATORS
from prunebench.models.view import ModelView

L = 6
RNG = np.random.default_rng(8)


def document(number, *, context, lengths, gold, num_bytes=None):
    item = Choice(
        context=RNG.integers(0, 260, context),
        continuations=tuple(RNG.integers(0, 260, length) for length in lengths),
        num_bytes=tuple(num_bytes or lengths),
        gold=gold,
    )
    return Document(doc_id=number, doc_hash=f"hash {number}", payload=item)


DOCUMENTS = [
    document(4, context=20, lengths=(5, 7, 5, 9), gold=0, num_bytes=(5, 14, 10, 9)),
    document(5, context=22, lengths=(3, 5, 7, 1), gold=3),
    document(6, context=30, lengths=(12, 12, 12, 12), gold=1, num_bytes=(9, 30, 30, 30)),
    document(7, context=18, lengths=(4, 8), gold=1),
]
PLANS = [PruningPlan.dense(L), *(PruningPlan.without([i], L) for i in range(L))]
OVERFLOWING = PruningPlan(num_layers=L, layers=(LayerSpec(base=0), LayerSpec(base=1, blend=((1, 1e39),))))
CHOICE = EVALUATORS["choice"]


def evaluate(dense, plans, documents=DOCUMENTS):
    """The samples by plan, where every plan has some."""
    samples = {}
    for plan, outcome in CHOICE.evaluate(dense, plans, documents):
        assert isinstance(outcome, tuple)
        samples[plan] = outcome
    return samples


@torch.no_grad()
def sums_by_hand(dense, plan, item):
    sums = []
    for continuation in item.continuations:
        ids = np.concatenate([item.context, continuation])
        with ModelView(dense).applied(plan) as model:
            logprobs = model(input_ids=torch.from_numpy(ids)[None]).logits[0].log_softmax(-1).double()
        sums.append(sum(float(logprobs[t - 1, ids[t]]) for t in range(len(item.context), len(ids))))
    return sums


def test_each_document_gives_the_plain_and_the_length_normalised_answer(load_tiny):
    dense = load_tiny("llama")
    seen = evaluate(dense, PLANS)
    assert set(seen) == set(PLANS)
    picked = set()
    for plan, samples in seen.items():
        assert [(s.doc_id, s.metric) for s in samples] == [
            (i, m) for i in range(4, 8) for m in ("acc", "acc_norm")
        ]
        for document, plain, normed in zip(DOCUMENTS, samples[::2], samples[1::2], strict=True):
            item = document.payload
            assert isinstance(item, Choice)
            sums = sums_by_hand(dense, plan, item)
            per_byte = [total / count for total, count in zip(sums, item.num_bytes, strict=True)]
            assert plain.value == (sums.index(max(sums)) == item.gold)
            assert normed.value == (per_byte.index(max(per_byte)) == item.gold)
            assert (plain.weight, plain.doc_hash) == (1, document.doc_hash)
            detail = json.loads(plain.detail)
            assert (detail["gold"], detail["bytes"]) == (item.gold, list(item.num_bytes))
            assert detail["logprobs"] == pytest.approx(sums, rel=1e-6)
            assert normed.detail == plain.detail
            picked.add((plain.value, normed.value))
    assert picked == {(0, 0), (0, 1), (1, 0), (1, 1)}, "the documents have to tell the two metrics apart"


def test_the_first_of_equal_continuations_is_picked(load_tiny):
    same = np.array([3, 4, 5])
    for gold in (0, 1):
        item = Choice(context=np.arange(20), continuations=(same, same), num_bytes=(3, 3), gold=gold)
        (samples,) = evaluate(
            load_tiny("llama"), PLANS[:1], [Document(doc_id=0, doc_hash="", payload=item)]
        ).values()
        assert [sample.value for sample in samples] == [1 - gold] * 2


def test_samples_do_not_depend_on_the_other_plans(load_tiny):
    together = evaluate(load_tiny("qwen2"), PLANS)
    for plan in PLANS[::2]:
        assert evaluate(load_tiny("qwen2"), [plan]) == {plan: together[plan]}


def test_a_plan_without_finite_logits_names_itself_and_the_document_and_spoils_no_other(load_tiny):
    seen = dict(CHOICE.evaluate(load_tiny("llama"), [OVERFLOWING, PLANS[1]], DOCUMENTS))
    error = seen[OVERFLOWING]
    assert isinstance(error, NonFiniteError)
    assert str(error) == f"logits of plan {OVERFLOWING.plan_id} on document 4 are not finite"
    assert seen[PLANS[1]] == evaluate(load_tiny("llama"), [PLANS[1]])[PLANS[1]]
