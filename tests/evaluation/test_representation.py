"""Representation measures against Transformers' own states and weights, and the laws they obey."""

import base64
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.data.tasks import Document, Measured
from prunebench.errors import NonFiniteError
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.versions import DISTANCES, METRICS
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.view import ModelView
from prunebench.store.aggregate import aggregate

L, I = 6, 44  # noqa: E741
GOLDEN = Path(__file__).parents[1] / "golden"
RNG = np.random.default_rng(6)
REPRESENTATION = EVALUATORS["representation"]


def document(number, ids, positions=None):
    places = np.arange(len(ids)) if positions is None else np.array(positions)
    return Document(doc_id=number, doc_hash=f"hash {number}", payload=Measured(ids=ids, positions=places))


ROWS = [
    (RNG.integers(0, 260, 40), np.array([9, 20, 21, 39])),
    (RNG.integers(0, 260, 33), np.arange(33)),
]
DOCUMENTS = [document(3 + number, *row) for number, row in enumerate(ROWS)]
DENSE = PruningPlan.dense(L)
TRIMMED = PruningPlan(
    num_layers=L,
    layers=tuple(
        LayerSpec(base=i, features=Mask.keep(range(0, I, i + 1), I) if i in (1, 4) else None)
        for i in range(L)
    ),
)
WITHOUT_LAST = PruningPlan.without([2, 5], L)
PLANS = [TRIMMED, WITHOUT_LAST, DENSE, PruningPlan.without([4], L)]


def evaluate(dense, plans, documents=DOCUMENTS):
    """The samples by plan, where every plan has some."""
    samples = {}
    for plan, outcome in REPRESENTATION.evaluate(dense, plans, documents):
        assert isinstance(outcome, tuple)
        samples[plan] = outcome
    return samples


def by_metric(samples):
    found: dict[str, list] = {}
    for sample in samples:
        found.setdefault(sample.metric, []).append(sample)
    return found


def value(samples):
    return aggregate("", math.fsum(s.value for s in samples), math.fsum(s.weight for s in samples))


def test_the_dense_plan_is_at_no_distance_from_itself(family_dense):
    found = by_metric(evaluate(family_dense, [DENSE])[DENSE])
    assert set(found) <= set(METRICS["representation"])
    assert value(found["hidden_nmse"]) == 0
    assert value(found["attention_kl"]) == 0
    for metric in ("attention_overlap", "attention_overlap_from_1", "attention_overlap_from_16"):
        assert all(sample.value == sample.weight for sample in found[metric])
    assert "attention_overlap_from_64" not in found, "no row has a token so far back"
    for metric in ("mlp_score", "mlp_change"):
        assert [(s.weight, s.status) for s in found[metric]] == [(0, "no_trimmed_mlp")] * 2


@torch.no_grad()
def passes(model, ids):
    output = model(input_ids=torch.from_numpy(ids)[None], output_hidden_states=True, output_attentions=True)
    return output.hidden_states[-1][0].double().numpy(), [w[0].double().numpy() for w in output.attentions]


def expected(dense, plan, ids, positions, bases):
    """By Transformers' eager weights: (Σ error, Σ size), Σ KL, overlap counts of the last two blocks."""
    before, weights = passes(dense.model, ids)
    with ModelView(dense).applied(plan) as model:
        after, changed = passes(model, ids)
    error = ((after - before)[positions] ** 2).sum(), (before[positions] ** 2).sum()
    divergence, hits, picks = 0.0, 0, 0
    for base, pruned in zip(bases, changed[-2:], strict=True):
        for p, q in zip(weights[base], pruned, strict=True):
            for place in range(2, len(ids)):
                kept = [w[place, 1 : place + 1] / w[place, 1 : place + 1].sum() for w in (p, q)]
                divergence += (kept[0] * np.log(kept[0] / kept[1])).sum()
                if place > 9:
                    best = [set(np.argsort(-w[:-1])[:8]) for w in kept]
                    hits, picks = hits + len(best[0] & best[1]), picks + 8
    return error, divergence, (hits, picks)


@pytest.mark.parametrize(
    ("plan", "bases"), [(TRIMMED, (4, 5)), (WITHOUT_LAST, (3, 4))], ids=["trim", "depth"]
)
def test_measures_are_those_of_transformers_own_states_and_weights(load_tiny, tiny, plan, bases):
    eager = load_model(Checkpoint.open(tiny("llama")), dtype="float32", attention="eager")
    found = by_metric(evaluate(load_tiny("llama"), [plan])[plan])
    for place, each in enumerate(DOCUMENTS):
        (error, size), divergence, (hits, picks) = expected(eager, plan, *ROWS[place], bases)
        nmse, kl, overlap = (
            found[name][place] for name in ("hidden_nmse", "attention_kl", "attention_overlap")
        )
        assert (nmse.doc_id, nmse.doc_hash) == (each.doc_id, each.doc_hash)
        assert (nmse.value, nmse.weight) == pytest.approx((error, size), rel=1e-4)
        assert (kl.value, kl.weight) == pytest.approx((divergence, 8 * (len(ROWS[place][0]) - 2)), rel=1e-3)
        assert (overlap.value, overlap.weight) == (hits, picks)
        bins = [found[f"attention_overlap_from_{distance}"][place] for distance in DISTANCES[:2]]
        assert sum(sample.value for sample in bins) == hits
        assert sum(sample.weight for sample in bins) == picks


@torch.no_grad()
def test_score_and_change_of_mlp_outputs_are_equation_4(load_tiny):
    dense = load_tiny("phi3")
    found = by_metric(evaluate(dense, [TRIMMED])[TRIMMED])
    for place, (ids, positions) in enumerate(ROWS):
        score = change = 0.0
        details = {}
        for layer in (1, 4):
            seen = []
            down = dense.model.model.layers[layer].mlp.down_proj
            hook = down.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0]))
            dense.model(input_ids=torch.from_numpy(ids)[None])
            hook.remove()
            phi, weight = seen[0][0].double().numpy(), down.weight.double().numpy()
            removed = [j for j in range(I) if j % (layer + 1)]
            own = [0.0, 0.0]
            for position in positions:
                terms = np.array([phi[position, j] * weight[:, j] for j in removed])
                own[0] += (terms**2).sum()
                own[1] += (terms.sum(0) ** 2).sum()
            score, change = score + own[0], change + own[1]
            details[layer] = [x / len(positions) for x in own]
        samples = found["mlp_score"][place], found["mlp_change"][place]
        assert [s.value for s in samples] == pytest.approx([score, change], rel=1e-4)
        assert {s.weight for s in samples} == {len(positions)}
        for layer, *pair in json.loads(samples[0].detail)["layers"]:
            assert pair == pytest.approx(details[layer], rel=1e-4)


def test_samples_do_not_depend_on_the_other_plans(load_tiny):
    for name in ("llama", "gemma3"):
        together = evaluate(load_tiny(name), PLANS)
        assert set(together) == set(PLANS)
        for plan in PLANS:
            assert evaluate(load_tiny(name), [plan]) == {plan: together[plan]}


def test_a_plan_without_attention_has_none_to_compare(load_tiny):
    plan = PruningPlan(num_layers=L, layers=(LayerSpec(base=3, drop=("attention",)),))
    found = by_metric(evaluate(load_tiny("llama"), [plan])[plan])
    assert {(s.weight, s.status) for s in found["attention_kl"]} == {(0, "no_attention")}
    assert value(found["hidden_nmse"]) > 0


def test_a_block_without_attention_is_passed_over(load_tiny):
    layers = [LayerSpec(base=i, drop=("attention",) if i == 4 else ()) for i in range(L)]
    plan = PruningPlan(num_layers=L, layers=tuple(layers))
    found = by_metric(evaluate(load_tiny("llama"), [plan])[plan])
    assert [base for base, _ in json.loads(found["attention_kl"][0].detail)["layers"]] == [3, 5]


def test_a_row_of_three_tokens_has_no_overlap(load_tiny):
    short = [document(0, np.array([5, 6, 7]))]
    found = by_metric(evaluate(load_tiny("llama"), [TRIMMED], short)[TRIMMED])
    assert found["attention_kl"][0].weight == 8
    assert (found["attention_overlap"][0].weight, found["attention_overlap"][0].status) == (
        0,
        "too_few_tokens",
    )


def test_a_plan_without_finite_states_names_itself_and_the_row_and_spoils_no_other(load_tiny):
    overflowing = PruningPlan(num_layers=L, layers=(LayerSpec(base=0), LayerSpec(base=1, blend=((1, 1e39),))))
    seen = dict(REPRESENTATION.evaluate(load_tiny("llama"), [overflowing, TRIMMED], DOCUMENTS))
    error = seen[overflowing]
    assert isinstance(error, NonFiniteError)
    assert str(error) == f"states of plan {overflowing.plan_id} on row 3 are not finite in float32"
    assert seen[TRIMMED] == evaluate(load_tiny("llama"), [TRIMMED])[TRIMMED]


@pytest.mark.real
def test_nmse_of_layertrim_on_the_real_model_is_the_recorded_one(smollm2):
    recorded = json.loads((GOLDEN / "representation.json").read_text())["budgets"]
    kept = json.loads((GOLDEN / "layertrim_kept.json").read_text())["kept"]
    ids = np.load(GOLDEN / "calibration_tokens_16x256.npy").astype(np.int64)
    plans = {}
    for budget, facts in recorded.items():
        errors, sizes = np.array(facts["rows"]).T
        assert errors.sum() / sizes.sum() == pytest.approx(facts["nmse"], rel=1e-5)
        masks = {i: Mask(base64.b64decode(kept[str(i)])) for i in facts["layers"]}
        layers = tuple(LayerSpec(base=i, features=masks.get(i)) for i in range(30))
        plans[PruningPlan(num_layers=30, layers=layers)] = budget
    dense = load_model(Checkpoint.open(smollm2), dtype="float32")
    documents = [document(number, ids[number]) for number in range(2)]
    for plan, samples in evaluate(dense, plans, documents).items():
        found = by_metric(samples)["hidden_nmse"]
        for sample, row in zip(found, recorded[plans[plan]]["rows"], strict=False):
            assert (sample.value, sample.weight) == pytest.approx(row, rel=1e-4)
