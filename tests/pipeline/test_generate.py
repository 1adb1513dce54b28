"""Generative tasks through the whole pipeline, on an engine without a model."""

import json
from dataclasses import replace

import pytest

from prunebench.config.experiment import load_experiment
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import InputError, ResourceError
from prunebench.evaluation import versions
from prunebench.evaluation.worker import Worker
from prunebench.pipeline.benchmark import model_setups
from prunebench.pipeline.estimate import estimate
from prunebench.pipeline.evaluate import evaluate
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.planning import Planned, dense_variant
from prunebench.pipeline.prepare import prepare
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.session import open_session
from prunebench.store.artifacts import save_variant
from prunebench.store.compact import compact
from prunebench.store.diff import diff
from prunebench.store.read import read_failures, read_generations, read_results, read_samples
from prunebench.store.summary import summarise
from prunebench.store.verify import verify
from written import QUESTIONS, calls_of, run_here, write_chat_model, write_experiment

PLANS, SEEDS = 3, (0, 1, 2)
UNITS = PLANS * len(SEEDS) * len(QUESTIONS)


@pytest.fixture(scope="session")
def chat_model(tiny, tmp_path_factory):
    return write_chat_model(tiny("llama"), tmp_path_factory.mktemp("chat") / "tiny")


@pytest.fixture(scope="module")
def undisturbed(chat_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    path = write_experiment(folder, chat_model)
    assert run_here(path, folder / "store").failures == 0
    return folder


def test_every_document_is_written_and_scored_once_for_each_plan_and_seed(undisturbed):
    store = undisturbed / "store"
    texts, samples = read_generations(store), read_samples(store)
    assert len(texts) == samples["unit_id"].nunique() == UNITS
    assert texts["seed"].value_counts().to_dict() == dict.fromkeys(SEEDS, UNITS // len(SEEDS))
    assert texts.groupby("doc_id")["prompt_hash"].nunique().tolist() == [1, 1, 1]
    assert texts["text"].nunique() == UNITS
    first = samples.loc[samples["detail_json"] != "{}"]
    details = [json.loads(text)["generation_id"] for text in first["detail_json"]]
    assert set(details) == set(texts["generation_id"])
    keys = [json.loads(text) for text in samples["unit_json"]]
    assert {key["backend"] for key in keys} == {"fake"}
    assert {key["generation"] for key in keys} == {
        '{"context":2048,"max_tokens":64,"temperature":0.6,"top_p":0.95}'
    }
    assert all(len(key["template_hash"]) == 64 for key in keys)
    assert verify(store) == []
    assert summarise(store)["generations"] == UNITS


def test_each_seed_has_a_row_of_its_own(undisturbed):
    results = read_results(undisturbed / "store")
    rows = results[results["metric"] == "acc"]
    assert len(rows) == PLANS * len(SEEDS)
    assert set(rows["seed"]) == set(SEEDS)
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("seed")["exam_id"].nunique().tolist() == [1, 1, 1]
    samples = read_samples(undisturbed / "store")
    means = samples[samples["metric"] == "acc"].groupby(["plan_id", "seed"])["value"].mean()
    for row in rows.itertuples():
        assert row.value == means[row.plan_id, row.seed]
        assert (row.num_examples, row.units_done, row.units_total) == (3, 3, 3)


def test_a_second_run_asks_no_engine(undisturbed):
    before = calls_of(undisturbed)
    assert run_here(undisturbed / "experiment.yaml", undisturbed / "store").failures == 0
    assert calls_of(undisturbed) == before
    counts = estimate(load_experiment(undisturbed / "experiment.yaml"), undisturbed / "store")
    assert (counts.units, counts.done, counts.to_do) == (UNITS, UNITS, 0)
    assert counts.seconds == 0.0


def test_another_version_of_the_grader_scores_what_is_written_without_an_engine(
    chat_model, tmp_path, monkeypatch
):
    path = write_experiment(tmp_path, chat_model)
    run_here(path, tmp_path / "store")
    calls, texts = calls_of(tmp_path), read_generations(tmp_path / "store")
    (old,) = {json.loads(text)["scorer_version"] for text in read_samples(tmp_path / "store")["unit_json"]}
    name = next(name for name, version in versions.GRADERS.items() if version == old)
    monkeypatch.setitem(versions.GRADERS, name, "later")
    assert run_here(path, tmp_path / "store").failures == 0
    assert calls_of(tmp_path) == calls
    assert read_generations(tmp_path / "store").equals(texts)
    found = [json.loads(text)["scorer_version"] for text in read_samples(tmp_path / "store")["unit_json"]]
    assert found.count("later") == found.count(old) > 0
    assert verify(tmp_path / "store") == []


def test_an_engine_that_dies_in_the_middle_loses_nothing_and_is_asked_again(chat_model, tmp_path):
    questions = (QUESTIONS[0], f"{QUESTIONS[1]} [raise]", QUESTIONS[2])
    path = write_experiment(tmp_path, chat_model, questions, budgets=[1])
    outcome = run_here(path, tmp_path / "store")
    # Both plans: the first question of seed 0 was written before.
    assert outcome.failures == 2 * (3 * 3 - 1)
    assert (
        read_samples(tmp_path / "store")["unit_id"].nunique()
        == len(read_generations(tmp_path / "store"))
        == 2
    )
    results = read_results(tmp_path / "store")
    assert set(results["status"]) == {"incomplete"}
    assert results["error"].str.contains("the engine died as ordered").any()
    assert len(calls_of(tmp_path)) == 2
    run_here(path, tmp_path / "store")
    assert [line.split()[1] for line in calls_of(tmp_path)] == ["9", "9", "8", "8"]


def test_what_the_machine_lacks_ends_the_run_and_what_was_written_stays(chat_model, tmp_path):
    questions = (QUESTIONS[0], f"{QUESTIONS[1]} [lack]")
    path = write_experiment(tmp_path, chat_model, questions)
    with pytest.raises(ResourceError, match="no room for this engine"):
        run_here(path, tmp_path / "store")
    assert len(read_generations(tmp_path / "store")) == 1
    assert set(read_results(tmp_path / "store")["status"]) == {"incomplete"}
    assert read_failures(tmp_path / "store").empty


def test_a_logit_that_is_not_finite_or_a_prompt_that_is_too_long_fails_its_own_units(chat_model, tmp_path):
    questions = (QUESTIONS[0], f"{QUESTIONS[1]} [nan]", "Why? " * 500)
    path = write_experiment(tmp_path, chat_model, questions, methods=[{"method": "last_n"}], budgets=[1])
    assert run_here(path, tmp_path / "store").failures == 2 * 2 * 3
    errors = read_failures(tmp_path / "store")["error"]
    assert errors.str.contains("not finite").sum() == 6
    assert errors.str.contains(r"has 2\d\d\d tokens, and the context of 2048").sum() == 6
    assert read_samples(tmp_path / "store")["doc_id"].unique().tolist() == [0]


def test_loops_and_limits_are_told_apart_from_an_end(chat_model, tmp_path):
    questions = (QUESTIONS[0], "[loop] now", "[limit] now")
    path = write_experiment(tmp_path, chat_model, questions, budgets=[1])
    run_here(path, tmp_path / "store")
    texts = read_generations(tmp_path / "store")
    assert texts.groupby("doc_id")["finish_reason"].first().tolist() == ["stop", "length", "length"]
    looped = texts[texts["doc_id"] == 1]
    assert set(looped["num_tokens"]) == set(looped["text"].str.split().str.len()) == {64}


def test_greedy_decoding_answers_once(chat_model, tmp_path):
    task = {"kind": "reasoning", "benchmark": "gsm8k", "sampling": {"greedy": True, "max_tokens": 64}}
    path = write_experiment(tmp_path, chat_model, tasks={"gsm8k": task}, budgets=[1])
    run_here(path, tmp_path / "store")
    samples = read_samples(tmp_path / "store")
    assert samples["unit_id"].nunique() == 2 * 3
    assert set(samples["seed"]) == {0}
    assert (
        '{"context":2048,"greedy":true,"max_tokens":64}' in json.loads(samples["unit_json"][0])["generation"]
    )


def test_compaction_keeps_every_text(chat_model, tmp_path):
    path = write_experiment(tmp_path, chat_model, budgets=[1])
    run_here(path, tmp_path / "store")
    before = read_generations(tmp_path / "store")
    compact(tmp_path / "store")
    assert read_generations(tmp_path / "store").equals(before)
    assert verify(tmp_path / "store") == []


def test_a_text_under_another_id_and_a_torn_file_are_told(chat_model, tmp_path):
    path = write_experiment(tmp_path, chat_model, budgets=[1])
    run_here(path, tmp_path / "store")
    (part,) = (tmp_path / "store" / "generations").iterdir()
    (part.parent / f"{'0' * 64}.parquet").write_bytes(part.read_bytes()[:-20])
    (finding,) = verify(tmp_path / "store")
    assert finding.path.endswith(f"generations/{'0' * 64}.parquet")


def test_stores_of_different_texts_differ(chat_model, undisturbed, tmp_path):
    path = write_experiment(tmp_path, chat_model, QUESTIONS[:2])
    run_here(path, tmp_path / "store")
    assert any(line.startswith("generations: ") for line in diff(undisturbed / "store", tmp_path / "store"))


def test_a_model_without_chat_template_is_refused_before_anything_starts(tiny, tmp_path):
    path = write_experiment(tmp_path, tiny("llama"))
    with pytest.raises(InputError, match=r"llama has no chat template \(chat_template\.jinja"):
        prepare(load_experiment(path))


def test_a_context_that_the_model_does_not_have_is_refused_with_both_numbers(chat_model, tmp_path):
    engines = {"default": {"kind": "hf", "max_model_len": 4096}}
    path = write_experiment(tmp_path, chat_model, engines=engines)
    with pytest.raises(InputError, match="max_model_len 4096 is more than the 2048 positions"):
        prepare(load_experiment(path))


def test_a_plan_that_the_dense_shape_cannot_hold_is_deployed_and_has_an_exam_of_its_own(chat_model, tmp_path):
    path = write_experiment(tmp_path, chat_model)
    (subject,) = prepare(load_experiment(path))
    twice = PruningPlan(num_layers=6, layers=tuple(LayerSpec(base=i) for i in (0, 1, 1, 2, 5)))
    dense = PruningPlan.dense(6)
    executor = LocalExecutor(lambda: Worker(model_setups((subject,)), 1))
    with open_session(tmp_path / "store", executor, Silent(), {}) as session:
        ours = replace(dense_variant(subject), method="ours", plan_id=twice.plan_id)
        hole = replace(ours, method="hole", plan_id=None, status="failed", error="as ordered")
        for variant in (dense_variant(subject), ours, hole):
            save_variant(session.store, variant)
            session.log.variant(variant.variant_key)
        evaluate(session, [subject], {subject.name: Planned(variants=(), plans=(dense, twice))})
    keys = [json.loads(text) for text in read_samples(tmp_path / "store")["unit_json"]]
    assert {(key["plan_id"], key["execution"]) for key in keys} == {
        (dense.plan_id, "padded"),
        (twice.plan_id, "deployed"),
    }
    lines = [
        json.loads(line) for line in next((tmp_path / "store" / "runs").iterdir()).read_text().splitlines()
    ]
    asked = [line["plan_ids"] for line in lines if line["event"] == "exam"]
    assert sorted(asked) == sorted([[dense.plan_id]] * 3 + [[twice.plan_id]] * 3)
    results = read_results(tmp_path / "store")
    rows = results[results["metric"] == "acc"].groupby(["method", "execution", "status"]).size()
    assert rows.drop("hole").to_dict() == {("dense", "padded", "ok"): 3, ("ours", "deployed", "ok"): 3}
    assert set(results.loc[results["method"] == "hole", "status"]) == {"failed"}
