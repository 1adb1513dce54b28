"""Perplexity, loss and output similarity on the real model against numbers of the authors' own code."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.data.tasks import Document, Window
from prunebench.evaluation.perplexity import Perplexity
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.probe import ModelProbe

pytestmark = [pytest.mark.real]
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "forward_smollm2.json").read_text())
L = 30


@pytest.fixture(scope="module")
def dense(smollm2):
    return load_model(Checkpoint.open(smollm2), dtype="float32")


@pytest.fixture(scope="module")
def laco_probe(dense):
    rows = [np.array(row) for row in GOLDEN["laco"]["rows"]]
    return ModelProbe(dense, rows, "laco", {}, lambda _answer: None)


def test_perplexity_of_dense_and_pruned_models_is_the_recorded_one(dense):
    golden = GOLDEN["perplexity"]
    documents = [
        Document(doc_id=i, doc_hash="", payload=Window(ids=np.array(ids), scored_from=1))
        for i, ids in enumerate(golden["windows"])
    ]
    expected = {PruningPlan.without(removed, L): value for removed, value in golden["removed"]}
    expected[PruningPlan.dense(L)] = golden["dense"]
    for plan, samples in Perplexity().evaluate(dense, expected, documents):
        assert isinstance(samples, tuple)
        mean = sum(sample.value for sample in samples) / sum(sample.weight for sample in samples)
        assert math.exp(-mean) == pytest.approx(expected[plan], rel=5e-6)


def test_loss_without_one_block_is_slebs(dense):
    golden = GOLDEN["sleb"]
    probe = ModelProbe(dense, [np.array(row) for row in golden["rows"]], "sleb", {}, lambda _answer: None)
    for layer, loss in golden["without"]:
        assert probe.loss(PruningPlan.without([layer], L)) == pytest.approx(loss, rel=2e-6)


@pytest.mark.parametrize(("first", "merged", "similarity"), GOLDEN["laco"]["released"])
def test_similarity_of_released_lacos_first_merges(laco_probe, first, merged, similarity):
    plan = merge(first, merged, ((first + merged, 1.0),))
    assert laco_probe.output_similarity(plan) == pytest.approx(similarity, abs=2e-6)


@pytest.mark.parametrize(("first", "merged", "similarity"), GOLDEN["laco"]["paper_formula"])
def test_similarity_of_merges_by_the_papers_formula(laco_probe, first, merged, similarity):
    others = tuple((first + k, 1.0) for k in range(1, merged + 1))
    plan = merge(first, merged, ((first, 1.0 - merged), *others))
    assert laco_probe.output_similarity(plan) == pytest.approx(similarity, abs=2e-6)


def merge(first, merged, blend):
    kept = [i for i in range(L) if not first < i <= first + merged]
    return PruningPlan(
        num_layers=L, layers=tuple(LayerSpec(base=i, blend=blend if i == first else ()) for i in kept)
    )
