"""Tasks of lm-eval from the config file to the store."""

import numpy as np
import pandas as pd
import pytest

from lm_eval_mirror import hellaswag, winogrande, write_lm_eval_mirror
from mirrors import write_rows
from prunebench.config.experiment import load_experiment
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import EvaluateItem, Failed, UnitDone
from prunebench.data.tasks import HarnessSource
from prunebench.errors import InputError
from prunebench.evaluation.harness.build import build
from prunebench.evaluation.worker import Worker
from prunebench.pipeline.benchmark import model_setups, run_benchmark
from prunebench.pipeline.estimate import estimate
from prunebench.pipeline.evaluate import Exam, exams
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.prefetch import named_splits, prefetch
from prunebench.pipeline.prepare import prepare
from prunebench.pipeline.progress import Silent
from prunebench.store.read import read_samples

TASKS = {
    "arc": {"kind": "harness", "task": "arc_easy"},
    "wino": {"kind": "harness", "task": "winogrande", "shots": 2, "limit": 5},
    "words": {"kind": "harness", "task": "lambada_openai"},
}


@pytest.fixture
def mirror(tmp_path):
    return write_lm_eval_mirror(tmp_path / "mirror")


@pytest.fixture
def experiment_of(write_config, mirror):
    def experiment_of(**changes):
        settings = {"mirror": "mirror", "methods": [{"method": "last_n"}], "budgets": [2], "tasks": TASKS}
        return load_experiment(write_config(**{**settings, **changes}))

    return experiment_of


def run(experiment, store):
    return run_benchmark(experiment, store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent())


def test_a_run_stores_each_tasks_own_metrics_and_resumes(experiment_of, tmp_path):
    experiment, store = experiment_of(), tmp_path / "store"
    outcome = run(experiment, store)
    assert (outcome.plans, outcome.failures) == (2, 0)
    results = pd.read_parquet(store / "results")
    counts = results[results["method"] == "last_n"].set_index(["task", "metric"])["num_examples"].to_dict()
    assert counts == {
        ("arc", "acc"): 7,
        ("arc", "acc_norm"): 7,
        ("wino", "acc"): 5,
        ("words", "acc"): 7,
        ("words", "perplexity"): 7,
    }
    assert (results["status"] == "ok").all()
    before = read_samples(store)
    assert run(experiment, store).failures == 0
    pd.testing.assert_frame_equal(before, read_samples(store))
    assert estimate(experiment, store).to_do == 0
    assert estimate(experiment_of(tasks={"arc": {**TASKS["arc"], "shots": 1}}), store).to_do == 2


def test_perplexity_over_words_is_lm_evals(experiment_of, tmp_path):
    from lm_eval.api.metrics import perplexity

    store = tmp_path / "store"
    run(experiment_of(tasks={"words": TASKS["words"]}), store)
    results = pd.read_parquet(store / "results")
    samples = read_samples(store)
    for plan_id, value in results[results["metric"] == "perplexity"][["plan_id", "value"]].itertuples(
        index=False
    ):
        one = samples[(samples["plan_id"] == plan_id) & (samples["metric"] == "perplexity")]
        assert np.isclose(value, perplexity(one["value"].tolist()), rtol=1e-12)


def test_prefetch_brings_what_the_tasks_read(experiment_of, tmp_path):
    tasks = {**TASKS, "maths": {"kind": "harness", "task": "gsm8k"}}
    experiment = experiment_of(tasks=tasks)
    assert list(map(str, named_splits(experiment))) == [
        "EleutherAI/lambada_openai/default:test",
        "allenai/ai2_arc/ARC-Easy:test",
        "allenai/winogrande/winogrande_xl:train",
        "allenai/winogrande/winogrande_xl:validation",
        "openai/gsm8k/main:test",
        "openai/gsm8k/main:train",
    ]
    assert {done.origin for done in prefetch(experiment, tmp_path / "ours")} == {"copied"}
    assert run(experiment_of(mirror="ours"), tmp_path / "store").failures == 0


def test_text_of_a_test_task_is_not_calibrated_on(experiment_of, tmp_path):
    text = " ".join(hellaswag(i)["endings"][3] for i in range(7)) + " and so on and on. " * 40
    (tmp_path / "text.txt").write_text(text)
    long = {**hellaswag(3), "ctx_a": text}
    write_rows(tmp_path / "mirror", "Rowan/hellaswag/default", "validation", [long, hellaswag(1)])
    experiment = experiment_of(
        tasks={"hella": {"kind": "harness", "task": "hellaswag"}},
        methods=[{"method": "shortgpt"}],
        calibrations={"default": "text:text.txt?samples=1&length=32"},
    )
    with pytest.raises(InputError, match="shares text with the test task hella: 1 of its 2 documents"):
        prepare(experiment)


def test_a_document_that_cannot_be_scored_fails_its_range_and_no_other(experiment_of, mirror, tmp_path):
    write_rows(mirror, "allenai/winogrande/winogrande_xl", "validation", [winogrande(i) for i in range(40)])
    experiment = experiment_of(tasks={"wino": {"kind": "harness", "task": "winogrande"}})
    (subject,) = prepare(experiment)
    source = HarnessSource(task="winogrande", shots=0, mirror=str(mirror.resolve()))
    spoilt = build(source).documents[20].row
    assert isinstance(spoilt, dict)
    spoilt.clear()  # what lm-eval's scoring meets, after its requests were built
    worker = Worker(model_setups((subject,)), 1)
    first, second, third = [
        message
        for exam in exams(subject)
        if isinstance(exam, Exam)
        for message in worker.run(
            EvaluateItem(
                model=subject.name,
                kind=exam.kind,
                unit=exam.unit,
                documents=exam.documents,
                plans=(PruningPlan.dense(6),),
            )
        )
    ]
    assert isinstance(first, UnitDone)
    assert isinstance(second, Failed)
    assert isinstance(third, UnitDone)
    assert "cannot score document 20 of winogrande: KeyError" in second.error
