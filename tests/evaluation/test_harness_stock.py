"""Every task against lm-eval's own `simple_evaluate` on the same documents and the same loaded model."""

import json
from pathlib import Path

import pytest

from lm_eval_mirror import TASKS
from lm_eval_stock import stock_scores
from prunebench.core.plan import PruningPlan
from prunebench.data.tasks import Requests
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.harness.build import build
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.tokenizer import Encoder

PRUNED = PruningPlan.without([1, 4], 6)
REAL_MIRROR = Path(__file__).parents[3] / "shared" / "data"


def compare(dense, plan, names, mirror, cache, *, shots=None, limit=None):
    """Equal prompts and metrics, and log-likelihoods within 1e-3; gives the statuses by task."""
    stock = stock_scores(dense, plan, names, mirror, cache, num_fewshot=shots, limit=limit)["samples"]
    statuses = {}
    for name in names:
        encoder = Encoder(dense.checkpoint)
        task = harness_task(name, encoder, name=name, shots=shots, limit=limit, mirror=mirror)
        ((_, samples),) = EVALUATORS["harness"].evaluate(dense, [plan], task.documents)
        assert isinstance(samples, tuple), samples
        own = {(sample.doc_id, sample.metric): sample for sample in samples}
        payload = task.documents[0].payload
        assert isinstance(payload, Requests)
        documents = build(payload.source).documents
        for theirs in stock[name]:
            number = theirs["doc_id"]
            requests = [tuple(request.args) for request in documents[number].requests]
            assert requests == [tuple(arguments) for arguments in theirs["arguments"]], name
            likelihoods = [float(response[0][0]) for response in theirs["resps"]]
            for metric in theirs["metrics"]:
                sample = own.pop((number, metric))
                assert sample.value == pytest.approx(theirs[metric], abs=1e-3), (name, number, metric)
                assert json.loads(sample.detail)["logprobs"] == pytest.approx(likelihoods, abs=1e-3)
        assert not own, "nothing that lm-eval does not have"
        statuses[name] = {sample.status for sample in samples}
    return statuses


def test_prompts_metrics_and_likelihoods_are_lm_evals_own(load_tiny, harness_mirror, hf_cache):
    """Without examples, in a context that some articles do not fit into."""
    names = [*TASKS, "lambada_openai"]
    statuses = compare(load_tiny("llama"), PruningPlan.dense(6), names, harness_mirror, hf_cache)
    assert statuses.pop("race") == {"ok", "truncated"}
    assert set.union(*statuses.values()) == {"ok"}


def test_examples_are_those_that_lm_eval_draws_for_the_first_documents(load_tiny, harness_mirror, hf_cache):
    names = ["winogrande", "hellaswag", "copa", "openbookqa"]
    compare(load_tiny("gemma3"), PRUNED, names, harness_mirror, hf_cache, shots=2, limit=4)


@pytest.mark.real
@pytest.mark.skipif(not REAL_MIRROR.is_dir(), reason="no ../shared/data beside the repository")
def test_real_documents_under_the_real_model_give_lm_evals_scores(smollm2, hf_cache):
    """All but race, whose articles take lm-eval longer than the other ten tasks together."""
    dense = load_model(Checkpoint.open(smollm2), dtype="float32")
    names = [name for name in TASKS if name != "race"]
    compare(dense, PruningPlan.without([25, 14], 30), names, REAL_MIRROR, hf_cache, limit=1)
