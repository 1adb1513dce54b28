"""Representation and efficiency through a whole run: keys, holes, items, resume and the report."""

import json

import pandas as pd
import pytest

from prunebench.config.experiment import load_experiment
from prunebench.core.unit import EvaluateItem
from prunebench.errors import InputError
from prunebench.evaluation.versions import METRICS
from prunebench.evaluation.worker import Worker
from prunebench.models.hardware import processor_name
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.prepare import prepare
from prunebench.pipeline.progress import Silent
from prunebench.report.render import write_report
from prunebench.store.read import read_samples, read_variants

TASKS = {
    "states": {
        "kind": "representation",
        "text": "builtin:pydoc:perplexity?samples=2&length=48",
        "positions": 20,
    },
    "latency": {
        "kind": "efficiency",
        "protocol": "layertrim",
        "prompt_tokens": 8,
        "steps": 3,
        "warmup": 0,
        "repeats": 2,
    },
    "pass": {"kind": "efficiency", "protocol": "lorp", "prompt_tokens": 8, "warmup": 0, "repeats": 3},
}
METHODS = [{"method": "shortgpt"}, {"method": "layertrim"}, {"method": "last_n"}]


class Noting:
    """A worker that remembers which items it was given."""

    def __init__(self, setups, log):
        self._worker, self._log = Worker(setups, 1), log

    def run(self, item):
        self._log.append(item)
        yield from self._worker.run(item)


def run(path, store, log):
    return run_benchmark(
        load_experiment(path), store, lambda setups: LocalExecutor(lambda: Noting(setups, log)), Silent()
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory, tiny):
    import yaml

    from experiments import settings

    folder = tmp_path_factory.mktemp("measured")
    path, log = folder / "experiment.yaml", []
    changes = {"tasks": TASKS, "methods": METHODS, "budgets": [1]}
    path.write_text(yaml.safe_dump({**settings(tiny("llama")), **changes}))
    assert run(path, folder / "store", log).failures == 0
    return path, folder / "store", log


def test_every_variant_has_a_row_for_every_metric_that_it_can_have(measured):
    _, store, _ = measured
    results = pd.read_parquet(store / "results")
    assert set(results["method"]) == {"dense", "shortgpt", "layertrim", "last_n"}
    latency = results[results["task"] == "latency"]
    assert set(latency["metric"]) == set(METRICS["efficiency"]) - {"peak_memory_gib"}
    assert set(latency["execution"]) == {"deployed"}
    states = results[results["task"] == "states"]
    assert set(states["execution"]) == {"padded"}
    dense = states[states["method"] == "dense"].set_index("metric")["value"]
    assert dense["hidden_nmse"] == dense["attention_kl"] == 0
    assert dense["attention_overlap"] == 1
    changes = states[states["metric"] == "mlp_change"].set_index("method")
    assert changes["status"].to_dict() == {
        "dense": "undefined",
        "shortgpt": "undefined",
        "last_n": "undefined",
        "layertrim": "ok",
    }
    assert changes.loc["shortgpt", "error"] == "no_trimmed_mlp"


def test_deployed_parameters_are_those_of_the_plan(measured):
    _, store, _ = measured
    results = pd.read_parquet(store / "results")
    counted = results[results["metric"] == "parameters"]
    assert (counted["value"] == counted["total_params"]).all()


def test_hardware_threads_and_mode_are_in_the_key(measured):
    _, store, _ = measured
    samples = read_samples(store)
    recipes = {
        unit["task"]: json.loads(unit["recipe"]) for unit in map(json.loads, samples["unit_json"].unique())
    }
    for task in ("latency", "pass"):
        own = recipes[task]
        assert (own["hardware"], own["threads"], own["compiled"]) == (processor_name(), 1, False)
    assert recipes["latency"]["statistic"] == "median"


def test_each_timed_unit_is_an_item_of_its_own(measured):
    _, store, log = measured
    items = [item for item in log if isinstance(item, EvaluateItem) and item.kind == "efficiency"]
    plans = read_variants(store)["plan_id"].nunique()
    assert len(items) == 2 * plans
    assert all(len(item.plans) == 1 for item in items)


def test_the_same_command_times_nothing_again(measured):
    path, store, _ = measured
    log = []
    run(path, store, log)
    assert log == []


def test_the_report_shows_the_metrics_and_the_holes(measured, tmp_path):
    _, store, _ = measured
    text = write_report(store, tmp_path / "report").html.read_text()
    for word in ("prefill_ms", "hidden_nmse", "attention_overlap", processor_name().split()[0]):
        assert word in text
    assert "undefined: no_trimmed_mlp" in text


def test_a_gpu_that_is_neither_here_nor_named_is_refused(write_config):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU to name")
    model = load_experiment(write_config()).models[0]
    cuda = [{**model.model_dump(), "device": "cuda"}]
    path = write_config(models=cuda, tasks={"latency": TASKS["latency"]}, methods=METHODS[2:])
    with pytest.raises(InputError, match=r"task latency: .* set hardware to the name of the workers' GPU"):
        prepare(load_experiment(path))
    named = {"latency": {**TASKS["latency"], "hardware": "NVIDIA A40"}}
    (subject,) = prepare(load_experiment(write_config(models=cuda, tasks=named, methods=METHODS[2:])))
    assert subject.tasks[0].recipe["hardware"] == "NVIDIA A40"
