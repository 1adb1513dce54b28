"""The part of the page on searches, from a store that is written by hand."""

import json
import math
import re

import pytest

from prunebench.core.plan import PruningPlan
from prunebench.methods.space import Piece
from prunebench.pipeline.found import Found, Goal, Row
from prunebench.report.gaps import comparison
from prunebench.report.layers import ranges_of, told_of
from prunebench.report.render import write_report
from prunebench.report.searching import search_section
from prunebench.report.source import read_source
from prunebench.report.studies import studies_of
from prunebench.report.tables import leaderboard
from prunebench.search.trials import State
from prunebench.store.trials import save_study

GOAL = "chosen_by.perplexity"
SIZE = "total_params"


def without(*removed):
    return PruningPlan.without(removed, 6)


HITS = [
    {"merge_layers": 3, "interval": 1, "threshold": 0.8, "threshold_below": 0.9, "output_similarity": 0.9},
    {"merge_layers": 3, "interval": 1, "threshold": 0.5, "threshold_below": 0.6, "output_similarity": 0.6},
]
PIECES = (Piece(0.0, 0.25, 0.1), Piece(0.25, 0.25, None), Piece(0.25, 1.0, 0.6))


@pytest.fixture(scope="module")
def store(build, tmp_path_factory):
    """A rule, four kinds of branches, and one trial of each state; nats per token stand for quality."""
    builder = build(tmp_path_factory.mktemp("searches") / "store", record={"kind": "search"})
    selection, exam = builder.task("chosen_by", 4), builder.task("exam", 4)
    dense = builder.dense()

    def score(plan, nats, units):
        builder.score(plan, units, "perplexity", [-10.0 * nats] * 4, weight=10.0)

    def row(trial, method, params, plan, nats, chosen="{}", state: State = "complete", **more):
        variant = builder.variant(method, plan, 1, params_json=json.dumps(params), chosen_json=chosen)
        values = (
            {} if nats is None else {GOAL: math.exp(nats), SIZE: float(600 - 100 * len(plan.removed_layers))}
        )
        if nats is not None:
            score(plan, nats, selection)
        key = variant.variant_key
        return Row(
            method=method, budget=1, params=params, trial=trial, state=state, values=values,
            plan_id=None if plan is None else plan.plan_id, variant_key=key, **more,
        )  # fmt: skip

    score(dense, 1.0, selection)
    rule = row(None, "lorp", {}, without(1), 2.0, chosen='{"clusters":4}', rule="K by the RLS rule")
    told = json.dumps({"threshold": 0.8, "hits": [{**hit, "plan_id": "p"} for hit in HITS]})
    trials = [
        row(0, "lorp", {"clusters": 2}, without(2), 1.5),
        row(1, "lorp", {"clusters": 3}, without(3), 1.2),
        row(2, "lorp", {"clusters": 4}, without(1), 2.0),
        row(3, "simdiff_masd", {"alpha": 0.1}, without(4), 1.4),
        row(4, "simdiff_masd", {"alpha": 0.7}, without(3), 1.2),
        row(
            5,
            "laco",
            {"merge_layers": 3, "interval": 1},
            without(1, 2),
            1.3,
            told,
        ),
        row(6, "laco", {"merge_layers": 2, "interval": 2}, None, None, state="infeasible", error="<no T>"),
        row(7, "layertrim", {"k": 2, "score": "energy"}, without(5), None, state="stopped", error="hopeless"),
        row(8, "layertrim", {"k": 3, "score": "energy"}, without(2, 3), 2.2),
        row(9, "layertrim", {"k": 3, "score": "weight"}, without(0), 2.4),
    ]
    chosen = (trials[1], trials[5])
    for plan, nats in ((dense, 1.0), (without(1), 1.8), (without(3), 1.4), (without(1, 2), 1.5)):
        score(plan, nats, exam)
    found = Found(
        run_id="r", store=builder.root, study="tune", model="tiny", weights_id=builder.weights_id,
        objectives=(
            Goal(name=GOAL, direction="minimize", tasks=("chosen_by",), metric="perplexity"),
            Goal(name=SIZE, direction="minimize", tasks=(), metric=None),
        ),
        constraints=("weights_gib <= 2",), sampler="grid", seed=0, settings=10, asked=10, distinct=7,
        evaluated=6, infeasible=1, stopped=1, failed=0, exhausted=True, chosen=chosen, rules=(rule,),
        importances={GOAL: {"lorp.clusters": 0.75, "method": 0.25}, SIZE: {}},
        pieces={"lorp": {}, "laco": {}, "layertrim": {}, "simdiff_masd": {"alpha": PIECES}},
        reasons=("<no T>",), failures=0,
    )  # fmt: skip
    save_study(builder.root, "tune", found.to_json(), trials)
    return builder.finish()


@pytest.fixture(scope="module")
def page(store):
    return write_report(store, store.parent / "out").html.read_text()


def test_trials_stay_out_of_the_leaderboard_but_for_the_chosen_and_the_rules(store):
    (board,) = leaderboard(read_source(store)).boards
    (table,) = board.tables
    assert [(row.label.short, row.variant["params_json"]) for row in table.rows] == [
        ("Dense", "{}"),
        ("LoRP", '{"clusters": 3}'),
        ("LoRP", "{}"),
        ("LaCo", '{"merge_layers": 3, "interval": 1}'),
    ]


def test_the_choice_stands_beside_the_rule_on_both_sides_with_its_gap(store):
    source = read_source(store)
    (study,) = studies_of(store, source)
    table = comparison(study, source)
    assert table.columns == (("exam", "perplexity"),)
    assert [(row.name, row.told, row.chosen) for row in table.rows] == [
        ("dense model", "", False),
        ("lorp", "K by the RLS rule", False),
        ("lorp clusters=3", "trial 1", True),
        ("laco interval=1 merge_layers=3", "trial 5", True),
    ]
    # Retained is exp(1) / exp(nats): 81.9 % of the dense model on selection, and 67.0 % on the exam.
    chosen = table.rows[2]
    assert [side.text for side in (*chosen.selection, *chosen.tests)] == ["3.32", "500", "4.06"]
    assert [side.retained_text for side in (chosen.selection[0], chosen.tests[0])] == ["81.9", "67.0"]
    assert [row.gaps[0] for row in table.rows] == ["", "-8.1", "+14.8", "+13.4"]


def test_every_link_of_a_trial_leads_to_its_plan(page):
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert len(links) == 8
    assert links <= set(re.findall(r'id="([^"]+)"', page))
    assert not set(re.findall(r'href="([^"#][^"]*)"', page))
    assert "removes 1–2" in page


def test_the_page_says_what_was_asked_distinct_and_evaluated(page):
    assert (
        "10 trials asked of 10 settings, all of them asked (sampler grid, seed 0); 7 distinct plans" in page
    )
    assert "of which 6 had to be evaluated for it; 1 infeasible; 1 stopped." in page
    assert "demanded weights_gib &lt;= 2" in page
    assert "&lt;no T&gt;" in page
    assert "<no T>" not in page


def test_each_kind_of_space_has_its_picture(store):
    source = read_source(store)
    (study,) = studies_of(store, source)
    section = search_section(study, source, {"tiny": 8})
    pictures = "".join((*section.figures, *section.maps))
    names = re.findall(r'aria-label="([^"]*)"', pictures)
    assert names == [
        "History: chosen_by.perplexity ↓",
        "Importance of parameters for chosen_by.perplexity",
        "History: total_params ↓",
        "chosen_by.perplexity ↓ against total_params ↓",
        "lorp: chosen_by.perplexity ↓ against clusters",
        "simdiff_masd: chosen_by.perplexity ↓ against alpha",
        "laco: chosen_by.perplexity ↓ by interval and merge_layers",
        "laco: thresholds that remove exactly the budget",
        "layertrim: chosen_by.perplexity ↓ against k",
    ]
    alpha = section.maps[1]
    assert "0 to 0.25: 4.06, trial 3" in alpha
    assert "0.25 to 0.25: narrower than the numbers it could hold" in alpha
    assert [(piece.low, piece.high, piece.value) for piece in section.pieces["simdiff_masd: alpha"]] == [
        ("0", "0.25", "4.06"),
        ("0.25", "0.25", "–"),
        ("0.25", "1", "3.32"),
    ]


@pytest.mark.parametrize(
    ("numbers", "told"), [([3], "3"), ([5, 3, 4, 9], "3–5, 9"), ([1, 2], "1–2"), ([0, 2, 4], "0, 2, 4")]
)
def test_runs_of_layers_are_drawn_together(numbers, told):
    assert ranges_of(numbers) == told


def test_a_plan_is_told_in_a_sentence():
    assert told_of(without(), None) == "removes nothing"
    assert told_of(without(0, 1, 4), None) == "removes 0–1, 4"
