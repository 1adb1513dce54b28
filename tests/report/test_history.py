"""What stands behind the numbers: runs and their differences, holes, failures, and how close plans were."""

import json
import math
import re

import numpy as np
import pytest

from prunebench.core.plan import PruningPlan
from prunebench.report.history import history_of
from prunebench.report.margins import margins_of
from prunebench.report.render import write_report
from prunebench.report.source import read_calibrations, read_source, read_weights
from prunebench.report.tables import leaderboard
from prunebench.store.derive import derive_results
from prunebench.store.runs import RunLog

LAYERS = 6
CORPUS = "c" * 64
CALIBRATED = {"calibration": "default", "calibration_id": CORPUS}


def record(torch="2.13.0", budgets=(1,)):
    return {
        "command": ["prunebench", "run"],
        "packages": {"torch": torch, "numpy": "2.3.5"},
        "experiment": {"budgets": list(budgets), "base": f"/home/{torch}", "executor": {"kind": "local"}},
    }


def history(store):
    source = read_source(store)
    return history_of(source, leaderboard(source).boards)


def test_facts_that_are_not_the_same_in_all_runs_are_named_with_their_runs(build, tmp_path):
    builder = build(tmp_path / "store", record=record())
    builder.score(builder.dense(), builder.task("text", 2), "acc", [1.0, 0.0])
    store = builder.finish()
    for name, told in (("b", record("2.14.0")), ("c", record(budgets=[1, 3]))):
        with RunLog.start(store, told, run_id=name) as run:
            run.end("done")
    found = history(store).differences
    assert [(one.name, one.keyed) for one in found] == [
        ("packages.torch", False),
        ("experiment.budgets", True),
    ]
    assert dict(found[0].values) == {"2.13.0": ("20260101T000000-abcdef", "c"), "2.14.0": ("b",)}
    assert dict(found[1].values) == {"[1]": ("20260101T000000-abcdef", "b"), "[1,3]": ("c",)}
    page = write_report(store, tmp_path / "out").html.read_text()
    assert "What differs between the 3 runs" in page
    assert "/home/" not in page


def test_a_single_run_differs_in_nothing_and_tells_what_it_computed(build, tmp_path):
    builder = build(tmp_path / "store", record=record())
    builder.score(builder.dense(), builder.task("text", 40), "acc", [1.0] * 40)
    found = history(builder.finish())
    assert found.differences == found.unfinished == ()
    (run,) = found.runs
    assert dict(run.facts)["computed"] == "3 units in 3.0 s of work by 1 worker on h"


def test_holes_are_listed_with_what_is_missing_and_why(builder, tmp_path):
    dense, plan = builder.dense(), PruningPlan.without([1], LAYERS)
    units = builder.task("text", 40)
    builder.variant("shortgpt", plan, 1)
    builder.variant("laco", None, 1, status="unreachable", error="nearest counts: 2")
    builder.score(dense, units, "acc", [1.0] * 40)
    builder.score(plan, units, "acc", [1.0] * 16)
    builder.ledger.fail(units[1].for_plan(plan.plan_id).unit_id, "OutOfMemoryError: 3 GiB", "Traceback", 1)
    found = history(builder.finish())
    assert [(one.name, one.budget, one.what, one.why) for one in found.unfinished] == [
        ("LaCo", "1", "no plan", "unreachable: nearest counts: 2"),
        ("ShortGPT", "1", "text: 1 of 3 document ranges done", "OutOfMemoryError: 3 GiB"),
    ]
    assert [failure.error for failure in found.failures] == ["OutOfMemoryError: 3 GiB"]


def test_a_store_in_which_everything_failed_gives_a_page_of_reasons(builder, tmp_path):
    builder.dense()
    units = builder.task("text", 2)
    for method in ("shortgpt", "lorp"):
        builder.variant(method, None, 1, status="failed", error="ValueError: no")
    builder.ledger.fail(units[0].unit_id, "RuntimeError: no", "Traceback", 1)
    page = write_report(builder.finish(), tmp_path / "out").html.read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "3 holes: rows without a plan or without all of their results" in text
    assert "failed: ValueError: no" in text
    assert "RuntimeError: no" in text


PROBED = {"params_json": '{"merge_rule":"released"}'}


@pytest.fixture
def planned(builder):
    """Plans of three methods from a similarity whose first off-diagonal is 0.9, 0.8, 0.8, 0.7, 0.6, 0.5."""
    first = np.array([0.9, 0.8, 0.799, 0.7, 0.6, 0.5])
    similarity_BB = np.full((LAYERS + 1, LAYERS + 1), 0.4)
    np.fill_diagonal(similarity_BB, 1.0)
    for layer, value in enumerate(first):
        similarity_BB[layer, layer + 1] = similarity_BB[layer + 1, layer] = value
    builder.calibration(similarity_BB, CORPUS)
    builder.score(builder.dense(), builder.task("text", 2), "acc", [1.0, 0.0])
    last = {"params_json": '{"last_state":"prenorm","protect":[]}', **CALIBRATED}
    builder.variant("shortgpt", PruningPlan.without([0, 1], LAYERS), 2, **last)
    builder.variant("shortgpt", PruningPlan.without([0, 1, 2, 3], LAYERS), 4, **last)
    start = {"chosen_json": '{"start":0}', **last}
    builder.variant("llm_streamline", PruningPlan.without([0], LAYERS), 1, **start)
    members = {
        "chosen_json": '{"members":[[0,1,2],[3,4,5]]}',
        "params_json": '{"protect":[0,-1]}',
        **CALIBRATED,
    }
    builder.variant("lorp", PruningPlan.without([1, 4], LAYERS), 2, **members)
    return builder


def margins(store):
    source = read_source(store)
    (board,) = leaderboard(source).boards
    calibrations = read_calibrations(store, source)
    return margins_of(board, source, calibrations, read_weights(store, board.weights_id))


def test_the_closest_decision_of_a_plan_is_told_with_its_margin(planned):
    found = {(one.name, one.budget): one for one in margins(planned.finish())}
    close, wide = found["ShortGPT", "2"], found["ShortGPT", "4"]
    assert (close.taken, close.left) == ("layer 1 (0.2)", "layer 2 (0.201)")
    assert close.relative == pytest.approx(0.001 / 0.201)
    assert (close.near, wide.near) == (True, False)
    assert (wide.taken, wide.left) == ("layer 3 (0.3)", "layer 4 (0.4)")
    window = found["LLM-Streamline", "1"]
    assert (window.taken, window.left) == ("start 0 (0.9)", "start 1 (0.8)")
    assert window.relative == pytest.approx(0.1 / 0.9)


def test_clusters_are_cut_one_by_one_and_protected_layers_are_no_choice(planned):
    lorp = next(one for one in margins(planned.finish()) if one.name == "LoRP")
    # Of 1 and 2 in the first cluster r is (0.9 + 0.8) / 2 and (0.4 + 0.8) / 2; of 3 and 4 in the second
    # (0.7 + 0.4) / 2 and (0.7 + 0.6) / 2. The second is the closer one.
    assert (lorp.taken, lorp.left) == ("layer 4 (0.65)", "layer 3 (0.55)")
    assert lorp.relative == pytest.approx(0.1 / 0.65)


def test_simdiff_is_cut_at_the_alpha_that_its_search_found(planned):
    searched = {
        "params_json": '{"alpha":"ternary","probe_corpus":"ab"}',
        "chosen_json": '{"alpha":0.5}',
        **CALIBRATED,
    }
    planned.variant("simdiff_masd", PruningPlan.without([0, 1], LAYERS), 2, **searched)
    given = {"params_json": '{"alpha":0.0}', **CALIBRATED}
    planned.variant("simdiff_mssd", PruningPlan.without([0, 1], LAYERS), 2, **given)
    found = {one.name: one for one in margins(planned.finish())}
    # I_sim of 1 and 2 is 0.1 and 0.1005; the differences are nearly 0, and so alpha's part is -0.5 * 0.5.
    assert (found["SimDiff-MASD"].taken, found["SimDiff-MASD"].left) == (
        "layer 1 (-0.2)",
        "layer 2 (-0.1997)",
    )
    assert found["SimDiff-MASD"].relative == pytest.approx(0.00025 / 0.2, rel=1e-3)
    assert found["SimDiff-MSSD"].relative == pytest.approx(0.0005 / 0.1005)


def test_simdiff_tells_the_nearest_alpha_at_which_other_layers_go(builder):
    similarity_BB = np.full((LAYERS + 1, LAYERS + 1), 0.4)
    for layer, value in enumerate([0.9, 0.8, 0.799, 0.7, 0.6, 0.5]):
        similarity_BB[layer, layer + 1] = similarity_BB[layer + 1, layer] = value
    builder.calibration(similarity_BB, CORPUS, masd_L=[0.0, math.log(3), 0.0, 0.0, 0.0, 0.0])
    builder.score(builder.dense(), builder.task("text", 2), "acc", [1.0, 0.0])
    given = {"params_json": '{"alpha":0.001}', **CALIBRATED}
    builder.variant("simdiff_masd", PruningPlan.without([0, 1], LAYERS), 2, **given)
    (one,) = margins(builder.finish())
    # I_sim of 1 and 2 is 0.1 and 0.1005, their tails 1/4 and 1/2: alpha·(1/2 - 1/4) = (1 - alpha)·0.0005.
    assert one.what == "importance less alpha at alpha 0.001 (others from 0.001996)"
    assert (one.taken, one.left) == ("layer 1 (0.09965)", "layer 2 (0.0999)")


def test_laco_is_cut_at_its_threshold_and_among_windows(planned):
    plan = PruningPlan.without([1], LAYERS)
    chosen = {"merge_layers": 2, "interval": 1, "threshold_below": 0.9, "output_similarity": 0.95}
    near = {**chosen, "threshold": 0.899}
    planned.variant("laco", plan, 1, chosen_json=json.dumps(near), **PROBED)
    second = {**chosen, "interval": 3, "output_similarity": 0.9499}
    told = {**chosen, "threshold": math.nextafter(0.9, -math.inf), "runner_up": second}
    planned.variant("laco", PruningPlan.without([1, 2], LAYERS), 2, chosen_json=json.dumps(told), **PROBED)
    two, one = [one for one in margins(planned.finish()) if one.name == "LaCo"]
    assert one.taken == "least similar merge accepted (0.9)"
    assert one.left == "most similar merge refused (0.899)"
    assert one.relative == pytest.approx(0.001 / 0.9)
    assert (two.taken, two.left) == ("C=2, I=1 (0.95)", "C=2, I=3 (0.9499)")


def test_a_plan_that_the_ranking_does_not_give_back_is_left_out(planned):
    params = {"params_json": '{"last_state":"prenorm","protect":[],"other":1}', **CALIBRATED}
    planned.variant("shortgpt", PruningPlan.without([5], LAYERS), 1, **params)
    store = planned.finish()
    assert not [one for one in margins(store) if one.name.startswith("ShortGPT") and one.budget == "1"]


def test_near_ties_stand_on_the_page(planned, tmp_path):
    store = planned.finish()
    derive_results(store)
    text = re.sub(
        r"\s+", " ", re.sub(r"<[^>]+>", " ", write_report(store, tmp_path / "out").html.read_text())
    )
    assert "1 of 4 plans hang on less than 1" in text
    assert "layer 1 (0.2) layer 2 (0.201) 0.50" in text
