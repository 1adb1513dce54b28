from dataclasses import replace

import numpy as np
import pytest
import torch

from prunebench.core.plan import PruningPlan
from prunebench.core.stats import CalibrationStats
from prunebench.core.unit import (
    CalibrateItem,
    EvaluateItem,
    Failed,
    PlanDone,
    PlanItem,
    ProbeAnswered,
    StatsDone,
    Unit,
    UnitDone,
    WeightsItem,
)
from prunebench.data.tasks import Document, Window
from prunebench.evaluation.generation.items import one_line
from prunebench.evaluation.setup import ModelSetup
from prunebench.evaluation.worker import Worker
from prunebench.methods import METHODS
from prunebench.models.checkpoint import Checkpoint

ROWS = tuple(np.random.default_rng(0).integers(3, 259, (2, 24)))


@pytest.fixture
def setup(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    return ModelSetup(
        path=str(checkpoint.path),
        weights_id=checkpoint.weights_id,
        dtype="float32",
        attention="sdpa",
        device="cpu",
    )


def evaluation(setup, plans, ids=ROWS[0]):
    unit = Unit(
        weights_id=setup.weights_id,
        tokenizer_hash="t",
        plan_id="",
        task="text",
        task_version="1",
        recipe="{}",
        document_hash="d",
        start=0,
        stop=1,
        dtype="float32",
        attention="sdpa",
        scorer_version="1",
    )
    document = Document(doc_id=0, doc_hash="d", payload=Window(ids=ids, scored_from=1))
    return EvaluateItem(model="m", kind="perplexity", unit=unit, documents=(document,), plans=plans)


def only(messages, kind):
    """The one message, which has to be of that kind."""
    (message,) = messages
    assert isinstance(message, kind)
    return message


def test_every_plan_of_an_item_is_a_unit(setup):
    plans = (PruningPlan.dense(6), PruningPlan.without([2], 6))
    messages = [
        only([message], UnitDone) for message in Worker({"m": setup}, 1).run(evaluation(setup, plans))
    ]
    assert [message.unit.plan_id for message in messages] == [plan.plan_id for plan in plans]
    assert all(message.seconds > 0 for message in messages)


def test_other_weights_than_the_runs_are_refused_by_every_kind_of_item(setup):
    other = replace(setup, weights_id="0" * 64)
    items = [
        evaluation(setup, (PruningPlan.dense(6),)),
        CalibrateItem(key="k", model="m", source="s", rows=ROWS),
        WeightsItem(key="k", model="m", cka=False),
    ]
    for item in items:
        message = only(Worker({"m": other}, 1).run(item), Failed)
        assert "not those the run started with" in message.error


def test_an_exception_fails_what_the_item_still_owed_with_its_traceback(setup):
    outside = np.array([1, 2, 10_000])
    plans = (PruningPlan.dense(6), PruningPlan.without([2], 6))
    item = evaluation(setup, plans, outside)
    message = only(Worker({"m": setup}, 1).run(item), Failed)
    assert message.keys == tuple(item.unit.for_plan(plan.plan_id).unit_id for plan in plans)
    assert "InputError" in message.error
    assert "Traceback" in message.traceback


def test_a_plan_with_logits_that_are_not_finite_fails_alone(setup):
    broken = PruningPlan.dense(6)
    broken = replace(
        broken, layers=(replace(broken.layers[0], blend=((0, 1e38), (1, 1e38))), *broken.layers[1:])
    )
    good = PruningPlan.without([2], 6)
    messages = list(Worker({"m": setup}, 1).run(evaluation(setup, (broken, good))))
    failed = [message for message in messages if isinstance(message, Failed)]
    done = [message for message in messages if isinstance(message, UnitDone)]
    assert len(failed) == len(done) == 1
    assert "not finite" in failed[0].error
    assert done[0].unit.plan_id == good.plan_id


def test_a_probe_methods_answers_arrive_before_its_plan_and_are_not_asked_again(setup):
    shard = CalibrateItem(key="k", model="m", source="s", rows=ROWS)
    stats = only(Worker({"m": setup}, 1).run(shard), StatsDone)
    assert CalibrationStats.from_bytes(stats.data).tokens == 48
    method = METHODS["simdiff_masd"]
    item = PlanItem(
        key="k",
        model="m",
        method=method.name,
        params=method.params(),
        budget=2,
        calibration=stats.data,
        weights=None,
        corpus_id="c",
        rows=ROWS,
    )
    *answers, plan = Worker({"m": setup}, 1).run(item)
    assert answers
    told = [only([answer], ProbeAnswered) for answer in answers]
    again = replace(item, remembered={answer.call_id: answer.value for answer in told})
    assert only(Worker({"m": setup}, 1).run(again), PlanDone).plan == only([plan], PlanDone).plan


def test_a_methods_own_fault_is_reported_under_the_items_key(setup):
    method = METHODS["simdiff_masd"]
    item = PlanItem(
        key="k",
        model="m",
        method=method.name,
        params=method.params(),
        budget=2,
        calibration=None,
        weights=None,
        corpus_id="c",
        rows=ROWS,
    )
    message = only(Worker({"m": setup}, 1).run(item), Failed)
    assert message.keys == ("k",)
    assert "needs calibration statistics" in message.error


def test_a_worker_that_is_told_to_go_blames_no_unit(setup, monkeypatch):
    """Ray's handler of SIGTERM raises SystemExit wherever the worker is: it is lost, and another goes on."""
    worker = Worker({"m": setup}, 1)

    def gone(*_):
        raise SystemExit(1)

    monkeypatch.setattr(worker, "_load", gone)
    with pytest.raises(SystemExit):
        list(worker.run(evaluation(setup, [PruningPlan.dense(6)])))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_unit_that_ran_out_of_memory_says_what_to_lower(error):
    assert one_line(error).endswith("or give each worker more memory")
