"""What is timed is the deployed model's own greedy writing; times themselves are not tested."""

import json
import statistics

import pytest
import torch

from fake_driver import unit_of
from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.unit import EvaluateItem, Failed
from prunebench.data.protocols import efficiency_task
from prunebench.data.tasks import Workload
from prunebench.errors import UnsupportedError
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.efficiency import GIB, time_model
from prunebench.evaluation.setup import ModelSetup
from prunebench.evaluation.worker import Worker
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.hardware import Meter, processor_name
from prunebench.models.view import ModelView

L, I = 6, 44  # noqa: E741
SIZES = {"layertrim": {"prompt_tokens": 12, "steps": 5, "warmup": 1, "repeats": 4}}
SIZES["simdiff"] = {"batch": 3, "prompt_tokens": 4, "steps": 12, "warmup": 0, "repeats": 3}
SIZES["lorp"] = {"prompt_tokens": 20, "warmup": 1, "repeats": 3}
TRIMMED = PruningPlan(
    num_layers=L,
    layers=tuple(
        LayerSpec(base=i, features=Mask.keep(range(9), I) if i in (2, 3) else None)
        for i in range(L)
        if i != 1
    ),
)
PLANS = [PruningPlan.dense(L), PruningPlan.without([1, 4], L), TRIMMED]


def task_of(protocol, *, vocab_size=272, hardware=None, threads=1, compiled=False, **sizes):
    return efficiency_task(
        protocol,
        name="speed",
        vocab_size=vocab_size,
        hardware=hardware or processor_name(),
        threads=threads,
        sizes={**SIZES[protocol], **sizes},
        compiled=compiled,
    )


def workload(task) -> Workload:
    (document,) = task.documents
    assert isinstance(document.payload, Workload)
    return document.payload


def evaluate(dense, plans, task):
    torch.set_num_threads(1)
    seen = {}
    for plan, outcome in EVALUATORS["efficiency"].evaluate(dense, plans, task.documents):
        assert isinstance(outcome, tuple)
        seen[plan] = {sample.metric: sample for sample in outcome}
    return seen


@pytest.mark.parametrize("protocol", SIZES)
def test_every_metric_is_the_protocols_statistic_of_its_repeats(load_tiny, protocol):
    dense, task = load_tiny("llama"), task_of(protocol)
    timed = {"prefill_ms", "tokens_per_s"} | ({"decode_ms_per_token"} if protocol != "lorp" else set())
    middle = statistics.median if protocol == "layertrim" else statistics.fmean
    for plan, found in evaluate(dense, PLANS, task).items():
        assert set(found) == timed | {"peak_rss_growth_gib", "parameters"}
        for metric in timed:
            detail = json.loads(found[metric].detail)
            assert len(detail["repeats"]) == SIZES[protocol]["repeats"]
            assert min(detail["repeats"]) > 0
            assert found[metric].value == middle(detail["repeats"])
            assert detail["sd"] == pytest.approx(statistics.stdev(detail["repeats"]))
        assert found["parameters"].value == plan.total_params(dense.checkpoint.shape)
        weights = json.loads(found["peak_rss_growth_gib"].detail)["weights_bytes"]
        assert weights >= 4 * plan.total_params(dense.checkpoint.shape)


def test_tokens_per_second_count_what_the_protocol_counts(load_tiny):
    def repeats(protocol, metric):
        (found,) = evaluate(load_tiny("llama"), PLANS[:1], task_of(protocol, repeats=2)).values()
        return json.loads(found[metric].detail)["repeats"], found

    speeds, found = repeats("layertrim", "tokens_per_s")
    steps = json.loads(found["decode_ms_per_token"].detail)["repeats"]
    assert speeds == pytest.approx([1000 / step for step in steps])
    speeds, found = repeats("lorp", "tokens_per_s")
    passes = json.loads(found["prefill_ms"].detail)["repeats"]
    assert speeds == pytest.approx([20 * 1000 / each for each in passes])
    speeds, found = repeats("simdiff", "tokens_per_s")
    steps = json.loads(found["decode_ms_per_token"].detail)["repeats"]
    prompts = json.loads(found["prefill_ms"].detail)["repeats"]
    expected = [3 * 12 * 1000 / (12 * step + prompt) for step, prompt in zip(steps, prompts, strict=True)]
    assert speeds == pytest.approx(expected)


@pytest.mark.parametrize("protocol", ["layertrim", "simdiff"])
def test_what_is_timed_is_greedy_writing(family_dense, protocol):
    """Tokens that go into each forward pass, against the best after all before them, without a cache."""
    work = workload(task_of(protocol, repeats=1))
    given = []
    with ModelView(family_dense).applied(TRIMMED, deployed=True) as model:
        hook = model.register_forward_pre_hook(
            lambda _module, _positional, named: given.append(named["input_ids"]), with_kwargs=True
        )
        time_model(model, work, "cpu")
        hook.remove()
        expected = torch.from_numpy(work.ids)
        with torch.no_grad():
            for _ in range(work.protocol.steps):
                logits = model(input_ids=expected, use_cache=False).logits[:, -1:]
                expected = torch.cat([expected, logits.argmax(-1)], dim=1)
    one_run = given[-work.protocol.steps - 1 :]
    assert torch.equal(torch.cat(one_run, dim=1), expected)
    runs = work.protocol.warmup + 1
    assert len(given) == 1 + runs * (work.protocol.steps + 1)


def test_lorps_pass_keeps_nothing_and_computes_all_logits(load_tiny):
    dense, work = load_tiny("llama"), workload(task_of("lorp"))
    seen = []
    hook = dense.model.register_forward_hook(
        lambda _module, _positional, named, output: seen.append((named, output)), with_kwargs=True
    )
    time_model(dense.model, work, "cpu")
    hook.remove()
    for named, output in seen[1:]:
        assert named["use_cache"] is False
        assert output.past_key_values is None
        assert output.logits.shape == (1, 20, 272)


def test_the_dense_model_is_back_afterwards(load_tiny):
    dense, ids = load_tiny("qwen3"), torch.arange(9)[None]
    with torch.no_grad():
        before = dense.model(input_ids=ids).logits
        evaluate(dense, PLANS, task_of("layertrim"))
        assert torch.equal(dense.model(input_ids=ids).logits, before)


def test_a_plan_without_a_deployed_shape_is_refused(load_tiny):
    plan = PruningPlan(num_layers=L, layers=(LayerSpec(base=0, drop=("attention",)), LayerSpec(base=1)))
    with pytest.raises(UnsupportedError, match="drops the attention of layer 0"):
        evaluate(load_tiny("llama"), [plan], task_of("lorp"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hardware": "Abacus 3000"}, "but the task is for Abacus 3000: set the task's hardware to"),
        ({"threads": 7}, "this worker has 1 CPU threads, but the task is for 7"),
    ],
)
def test_a_worker_elsewhere_fails_the_unit_with_a_sentence(tiny, settings, sentence):
    weights_id = Checkpoint.open(tiny("llama")).weights_id
    setup = ModelSetup(
        path=str(tiny("llama")), weights_id=weights_id, dtype="float32", attention="sdpa", device="cpu"
    )
    task, unit = task_of("lorp", **settings), unit_of("text", 0)
    item = EvaluateItem(model="m", kind="efficiency", unit=unit, documents=task.documents, plans=(PLANS[0],))
    (message,) = Worker({"m": setup}, 1).run(item)
    assert isinstance(message, Failed)
    assert sentence in message.error
    assert message.keys == (unit.for_plan(PLANS[0].plan_id).unit_id,)


def test_a_compiled_step_is_compiled_once_a_model(load_tiny):
    dense, work = load_tiny("llama"), workload(task_of("layertrim", compiled=True))
    torch._dynamo.utils.counters.clear()
    with ModelView(dense).applied(PruningPlan.without(range(1, L), L), deployed=True) as model:
        timing = time_model(model, work, "cpu")
    assert len(timing.repeats) == 4
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.utils.counters.clear()


def test_the_meter_tells_how_far_memory_rose():
    meter = Meter("cpu")
    meter.take_baseline()
    meter.reset_peak()
    block = torch.ones(64 * 2**20, dtype=torch.uint8)
    del block
    growth = meter.growth()
    assert growth is None or 0.9 * 64 * 2**20 < growth < GIB
