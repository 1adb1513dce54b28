"""What a document is asked and what it scores depends on neither ranges, nor workers, nor their order."""

import json

import pytest

from prunebench.core.plan import PruningPlan
from prunebench.data.tasks import HarnessSource
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.harness import build as module
from prunebench.evaluation.harness.build import build
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.models.tokenizer import Encoder

SHOTS = 5
PLANS = [PruningPlan.dense(6), PruningPlan.without([2], 6), PruningPlan.without([2, 3], 6)]


def evaluate(dense, plans, documents):
    """The samples by plan, where every plan has some."""
    seen = {}
    for plan, samples in EVALUATORS["harness"].evaluate(dense, plans, documents):
        assert isinstance(samples, tuple)
        seen[plan] = samples
    return seen


def in_ranges(dense, documents, size, *, backwards):
    """Each range by a worker that has built nothing yet; what is stored, and the log-likelihoods."""
    ranges = [documents[start : start + size] for start in range(0, len(documents), size)]
    scores, likelihoods = {}, {}
    for part in ranges[::-1] if backwards else ranges:
        module._built.cache_clear()
        for plan, samples in evaluate(dense, PLANS, part).items():
            for sample in samples:
                key = plan, sample.doc_id, sample.doc_hash, sample.metric
                scores[key] = sample.value
                likelihoods[key] = json.loads(sample.detail)["logprobs"]
    return scores, likelihoods


def test_five_shot_winogrande_is_the_same_in_ranges_of_any_size_and_order(load_tiny, harness_mirror):
    dense = load_tiny("qwen2")
    encoder = Encoder(dense.checkpoint)
    task = harness_task("winogrande", encoder, name="w", shots=SHOTS, mirror=harness_mirror)
    scores, likelihoods = in_ranges(dense, task.documents, 7, backwards=False)
    assert len(scores) == 7 * len(PLANS)
    for size, backwards in ((1, True), (2, False), (3, True)):
        again, others = in_ranges(dense, task.documents, size, backwards=backwards)
        assert again == scores
        for key, values in likelihoods.items():
            assert others[key] == pytest.approx(values, abs=1e-4)  # other packs round otherwise


def test_prompts_do_not_depend_on_what_was_built_before(harness_mirror):
    def prompts(*tasks):
        module._built.cache_clear()
        sources = [HarnessSource(task=task, shots=SHOTS, mirror=str(harness_mirror)) for task in tasks]
        built = [build(source) for source in sources][-1]
        return [request.args for document in built.documents for request in document.requests]

    assert prompts("winogrande") == prompts("copa", "hellaswag", "winogrande")
    assert len({context for context, _ in prompts("winogrande")}) == 14, "each with examples of its own"


def test_samples_of_a_plan_do_not_depend_on_the_others(load_tiny, harness_mirror):
    dense = load_tiny("llama")
    task = harness_task("hellaswag", Encoder(dense.checkpoint), name="h", mirror=harness_mirror)
    together = evaluate(dense, PLANS, task.documents)
    for plan in PLANS:
        assert evaluate(dense, [plan], task.documents) == {plan: together[plan]}
    assert [sample.metric for sample in together[PLANS[0]]] == ["acc", "acc_norm"] * 7
