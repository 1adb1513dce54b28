"""Searches for more than one number: several objectives and budgets, constraints, means, hopeless trials."""

import json

import pandas as pd
import pytest

from prunebench.errors import InputError
from prunebench.store.artifacts import load_plan
from prunebench.store.read import read_samples, read_variants
from prunebench.store.trials import read_studies
from searches import LACO, SELECTION, TEST, run, trials

QUIZ = {"kind": "choice", "text": "builtin:pydoc:selection", "items": 4, "role": "selection"}
LORP = [{"method": "lorp"}]
P_LAYER = 7296
"""Projection parameters of a layer of the tiny llama."""


def study_of(store):
    (study,) = read_studies(store)
    return study


def test_several_objectives_over_several_budgets_give_a_front(write_search, tmp_path):
    # Of random weights fewer may well be better: so here more parameters count as better.
    size = {"quantity": "total_params", "direction": "maximize"}
    goals = [{"task": "chosen_by", "metric": "perplexity"}, size]
    path = write_search(methods=LORP, budget=[1, 3], objective=goals)
    found = run(path, tmp_path / "store")
    assert (found.settings, found.asked, found.exhausted) == (10, 10, True)
    assert [goal.direction for goal in found.objectives] == ["minimize", "maximize"]
    assert [rule.method for rule in found.rules] == ["lorp@1", "lorp@3"]
    tried = [trial["values"] for trial in study_of(tmp_path / "store").trials]
    pairs = [tuple(values.values()) for values in tried]
    assert len({size for _, size in pairs}) == 2
    beaten = {a for a in pairs for b in pairs if b != a and b[0] <= a[0] and b[1] >= a[1]}
    front = [tuple(row.values.values()) for row in found.chosen]
    assert set(front) == set(pairs) - beaten
    assert len(front) == len(set(front)) > 1
    # Only the front, the rules and the dense model were put to the test.
    variants = read_variants(tmp_path / "store")
    (dense,) = variants.loc[variants["method"] == "dense", "plan_id"]
    tested = set(read_samples(tmp_path / "store").query("task == 'exam'")["plan_id"])
    assert tested == {dense, *(row.plan_id for row in (*found.chosen, *found.rules))}


def test_bounds_decide_between_budgets(write_search, tmp_path):
    bound = {"quantity": "removed_params", "least": 3 * P_LAYER}
    path = write_search(methods=LORP, budget=[1, 2, 3, 4], constraints=[bound], sampler="grid")
    found = run(path, tmp_path / "store")
    assert found.best is not None
    table = trials(tmp_path / "store")
    kept = table[table["state"] == "complete"]
    assert set(table.loc[table["state"] == "infeasible", "error"]) == {f"not kept: {found.constraints[0]}"}
    assert found.infeasible == (table["state"] == "infeasible").sum() > 0
    assert found.best.value == kept["value"].min()
    assert set(kept["method"]) == {"lorp@3", "lorp@4"}


def test_bounds_that_nothing_keeps_end_without_a_choice(write_search, tmp_path):
    bound = {"quantity": "weights_gib", "most": 1e-9}
    found = run(write_search(methods=LORP, constraints=[bound]), tmp_path / "store")
    assert (found.best, found.infeasible, found.failures) == (None, 5, 0)
    assert found.reasons == ("not kept: weights_gib <= 1e-09",)


def test_means_and_what_is_retained_are_taken_from_the_store(write_search, tmp_path):
    tasks = {
        "chosen_by": SELECTION,
        "other": {**SELECTION, "text": "builtin:pydoc:alpha?samples=6&length=64"},
    }
    goals = [
        {"tasks": ["chosen_by", "other"], "metric": "perplexity"},
        {"tasks": ["chosen_by", "other"], "metric": "perplexity", "retained": True},
    ]
    path = write_search(methods=LORP, tasks=tasks, objective=goals)
    run(path, tmp_path / "store")
    results = pd.read_parquet(tmp_path / "store" / "results").set_index(["variant_key", "task"])["value"]
    variants = read_variants(tmp_path / "store")
    (dense,) = variants.loc[variants["method"] == "dense", "variant_key"]
    for trial in study_of(tmp_path / "store").trials:
        mean, retained = trial["values"].values()
        one, other = (results[trial["variant_key"], task] for task in tasks)
        assert mean == (one + other) / 2
        dense_one, dense_other = (results[dense, task] for task in tasks)
        assert retained == (100 * dense_one / one + 100 * dense_other / other) / 2


def test_a_mean_of_perplexities_under_unlike_recipes_is_refused(write_search, tmp_path):
    tasks = {
        "chosen_by": SELECTION,
        "other": {**SELECTION, "text": "builtin:pydoc:alpha?samples=6&length=32"},
    }
    path = write_search(tasks=tasks, objective={"tasks": list(tasks), "metric": "perplexity"})
    with pytest.raises(InputError, match=r"a mean over unlike recipes \(other length\)"):
        run(path, tmp_path / "store")


def test_a_quantity_alone_needs_no_task(write_search, tmp_path):
    path = write_search(
        methods=[{"method": "layertrim", "space": {"score": ["energy"], "layer_choice": ["block_bi"]}}],
        budget=1,
        objective={"quantity": "weights_gib"},
        tasks={"exam": TEST},
    )
    found = run(path, tmp_path / "store")
    assert found.best is not None
    assert found.best.value is not None
    row = read_variants(tmp_path / "store").set_index("variant_key").loc[found.best.variant_key]
    assert found.best.value == row["total_params"] * 4 / 2**30
    assert found.evaluated == 0


def test_a_hopeless_trial_is_stopped_and_stays_out_of_every_row(write_search, tmp_path):
    tasks = {"chosen_by": {**SELECTION, "text": "builtin:pydoc:selection?samples=12&length=64"}, "exam": TEST}
    methods = [{"method": "random", "space": {"seed": {"low": 0, "high": 9}}}]
    whole = run(write_search(methods=methods, tasks=tasks, budget=3), tmp_path / "whole")
    path = write_search(methods=methods, tasks=tasks, budget=3, pruning={"p": 0.1})
    found = run(path, tmp_path / "store")
    assert found.stopped > 0
    assert (found.asked, found.failed) == (whole.asked, 0)
    assert found.best is not None
    assert whole.best is not None
    table = trials(tmp_path / "store")
    stopped = table[table["state"] == "stopped"]
    assert all("hopeless after " in error for error in stopped["error"])
    assert stopped["value"].isna().all()
    results = pd.read_parquet(tmp_path / "store" / "results")
    finished = set(table.loc[table["state"] == "complete", "plan_id"])
    rows = results[results["variant_key"].isin(stopped["variant_key"]) & (results["task"] == "chosen_by")]
    cut = rows[~rows["plan_id"].isin(finished | {rule.plan_id for rule in found.rules})]
    assert len(cut) > 0
    assert set(cut["status"]) == {"incomplete"}
    assert cut["value"].isna().all()
    assert (cut["units_done"] < cut["units_total"]).all()
    # Fewer units than whole trials would have taken, and the same command again does nothing more.
    assert len(read_samples(tmp_path / "store")) < len(read_samples(tmp_path / "whole"))
    log = []
    assert run(path, tmp_path / "store", log).stopped == found.stopped
    assert log == []


def test_the_bounds_of_the_rls_come_to_the_clusters_between_which_they_decide(write_search, tmp_path):
    methods = [{"method": "lorp", "params": {"clusters": "rls"}}]
    found = run(write_search(methods=methods), tmp_path / "store")
    assert (found.sampler, found.settings, found.asked) == ("grid", 4, 4)
    chosen = read_variants(tmp_path / "store").query("method == 'lorp'")["chosen_json"].map(json.loads)
    assert {one["clusters"] for one in chosen} == {2, 3, 4}
    (rls,) = {one["rls"] for one in chosen}
    below, above = found.pieces["lorp"]["rls_two"]
    assert (below.low, below.high, above.low, above.high) == (0, rls, rls, 2)
    assert below.value is not None
    assert above.value is not None
    assert 0 < below.value < rls < above.value < 2


def test_every_plan_of_laco_that_hits_the_budget_is_in_the_store(write_search, tmp_path):
    methods = [{**LACO, "params": {"hits": "all"}}]
    run(write_search(methods=methods), tmp_path / "store")
    chosen = read_variants(tmp_path / "store").query("method == 'laco' and status == 'ok'")["chosen_json"]
    hits = [hit for text in chosen for hit in json.loads(text).get("hits", [])]
    assert hits
    for hit in hits:
        assert len(load_plan(tmp_path / "store", hit["plan_id"]).removed_layers) == 2
        assert hit["threshold"] < hit["threshold_below"]


def test_the_record_of_a_study_holds_what_the_command_prints(write_search, tmp_path):
    methods = [{"method": "simdiff_masd", "probe": "alpha"}, LACO]
    found = run(write_search(methods=methods), tmp_path / "store")
    study = study_of(tmp_path / "store")
    assert study.record == json.loads(json.dumps(found.to_json()))
    assert len(study.trials) == found.asked
    pieces = study.record["pieces"]["simdiff_masd"]["alpha"]
    assert pieces[0]["low"] == 0
    assert pieces[-1]["high"] == 1
    assert [piece["high"] for piece in pieces[:-1]] == [piece["low"] for piece in pieces[1:]]
    assert set(study.record["importances"]["chosen_by.perplexity"]) >= {"method", "laco.merge_layers"}
