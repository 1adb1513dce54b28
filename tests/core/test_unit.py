import hashlib
import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import (
    KEY_VERSION,
    CalibrateItem,
    EvaluateItem,
    Failed,
    Generated,
    GenerateItem,
    Generation,
    PlanDone,
    PlanItem,
    ProbeAnswered,
    Sample,
    StatsDone,
    Unit,
    UnitDone,
    WeightsItem,
)


@pytest.fixture
def unit():
    return Unit(
        weights_id="w",
        tokenizer_hash="t",
        plan_id="p",
        task="perplexity",
        task_version="1",
        recipe="{}",
        document_hash="d",
        start=0,
        stop=8,
        dtype="float32",
        attention="sdpa",
        scorer_version="1",
    )


def test_the_key_is_flat_json_of_every_field(unit):
    assert unit.to_json() == {
        "weights_id": "w",
        "tokenizer_hash": "t",
        "plan_id": "p",
        "task": "perplexity",
        "task_version": "1",
        "recipe": "{}",
        "document_hash": "d",
        "start": 0,
        "stop": 8,
        "dtype": "float32",
        "attention": "sdpa",
        "scorer_version": "1",
        "backend": "hf",
        "execution": "padded",
        "seed": 0,
        "generation": "",
        "template_hash": "",
        "backend_version": "",
        "key_version": KEY_VERSION,
    }
    assert KEY_VERSION == 1


def test_the_id_is_the_sha256_of_the_canonical_json(unit):
    text = json.dumps(unit.to_json(), sort_keys=True, separators=(",", ":"))
    assert unit.unit_id == hashlib.sha256(text.encode()).hexdigest()
    assert pickle.loads(pickle.dumps(unit)).unit_id == unit.unit_id


@pytest.mark.parametrize("name", [f.name for f in fields(Unit)])
def test_everything_in_the_key_changes_the_id(unit, name):
    value = getattr(unit, name)
    other = replace(unit, **{name: value + 1 if isinstance(value, int) else f"{value}x"})
    assert other.unit_id != unit.unit_id


def test_another_plan_is_another_unit_of_the_same_range(unit):
    assert unit.unit_id  # computed before, so that a stale cache would show
    other = unit.for_plan("q")
    assert other.plan_id == "q"
    assert replace(other, plan_id="p") == unit
    assert other.unit_id != unit.unit_id
    assert other.for_plan("p").unit_id == unit.unit_id


def test_keys_are_values(unit):
    assert unit == replace(unit)
    assert len({unit, replace(unit), unit.for_plan("q")}) == 2
    with pytest.raises(FrozenInstanceError):
        unit.seed = 1


def test_a_sample_weighs_one_and_is_well_unless_told():
    sample = Sample(doc_id=1, doc_hash="h", metric="acc", value=0.5)
    assert (sample.weight, sample.detail, sample.status) == (1.0, "{}", "ok")


def test_items_and_messages_travel_between_processes(unit):
    sample = Sample(doc_id=0, doc_hash="h", metric="nll", value=1.5, weight=9.0)
    plan_item = PlanItem(
        key="k",
        model="m",
        method="laco",
        params=None,
        budget=3,
        calibration=None,
        weights=None,
        corpus_id="c",
        rows=(),
    )
    written = Generation(prompt_hash="h", text="t", num_prompt_tokens=3, num_tokens=1, finish_reason="stop")
    messages = [
        GenerateItem(
            model="m",
            engine="e",
            plan=PruningPlan.dense(2),
            units=(unit,),
            documents=("text",),
            known={unit.generation_id: written},
        ),
        Generated(unit=unit, generation=written, seconds=1.0),
        EvaluateItem(model="m", kind="k", unit=unit, documents=("text",), plans=(PruningPlan.dense(2),)),
        CalibrateItem(key="k", model="m", source="s", rows=()),
        WeightsItem(key="k", model="m", cka=True),
        plan_item,
        UnitDone(unit=unit, samples=(sample,), seconds=1.0),
        StatsDone(key="k", data=b"\x00", seconds=1.0),
        ProbeAnswered(call_id="c", call="{}", value=0.5, seconds=0.1),
        PlanDone(key="k", plan=None, chosen="{}", warnings=(), seconds=0.1),
        Failed(keys=("k",), error="e", traceback="t"),
    ]
    assert pickle.loads(pickle.dumps(messages)) == messages
    assert WeightsItem(key="k", model="m", cka=True).memory is None
    assert plan_item.remembered == {}
    assert PlanDone(key="k", plan=None, chosen="{}", warnings=(), seconds=0.1).unreachable == ""


def test_what_was_written_is_the_same_whoever_grades_it(unit):
    other = replace(unit, scorer_version="2")
    assert other.unit_id != unit.unit_id
    assert other.generation_id == unit.generation_id
    assert replace(unit, seed=1).generation_id != unit.generation_id


def test_a_part_of_an_item_keeps_its_units_documents_and_texts_together(unit):
    units = tuple(replace(unit, seed=seed) for seed in range(3))
    written = Generation(prompt_hash="h", text="t", num_prompt_tokens=3, num_tokens=1, finish_reason="stop")
    item = GenerateItem(
        model="m", engine="e", plan=PruningPlan.dense(2), units=units, documents=("a", "b", "c")
    )
    for one in units[:2]:
        item = item.with_known(one.generation_id, written)
    part = item.only({units[1].unit_id, units[2].unit_id})
    assert (part.units, part.documents) == (units[1:], ("b", "c"))
    assert part.known == {units[1].generation_id: written}
