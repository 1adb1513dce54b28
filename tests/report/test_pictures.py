import json
import math

import numpy as np
import pytest
from markupsafe import Markup

import papers_store
from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.report.concentration import POINTS, concentration_plots, held_by_largest
from prunebench.report.distance import by_distance, distance_plot
from prunebench.report.documents import read_documents
from prunebench.report.heatmap import Borders, heatmap
from prunebench.report.metrics import METRICS
from prunebench.report.papers import paper_tables
from prunebench.report.pareto import front, pareto
from prunebench.report.similarity_maps import similarity_maps
from prunebench.report.source import read_calibrations, read_column_squares, read_source, read_weights
from prunebench.report.tables import leaderboard
from prunebench.report.tested import Pairer, with_tests
from prunebench.report.verdict import names, verdicts

LAYERS = 6


def without(*removed):
    return PruningPlan.without(removed, LAYERS)


def read(store):
    pairer = Pairer(read_documents(store, read_source(store).groups))
    source = read_source(store)
    board = with_tests(leaderboard(source), pairer).boards[0]
    return source, board, paper_tables(board, pairer)


def scored(builder, scores):
    """Dense 9 of 10 right; each method its number of 100 right."""
    units = builder.task("choice", 100)
    builder.score(builder.dense(), units, "acc", [1.0] * 90 + [0.0] * 10)
    for place, (method, right) in enumerate(scores.items()):
        builder.variant(method, without(place), 1)
        builder.score(without(place), units, "acc", [1.0] * right + [0.0] * (100 - right))
    return builder.finish()


def test_the_front_is_what_nothing_beats_on_one_side_without_losing_on_the_other():
    places = [(1, 0.5), (2, 0.4), (3, 0.8), (4, 0.8), (5, 0.9), (5.01, 0.95)]
    # 5 and 5.01 are the same budget, met up to rounding.
    assert front(places, METRICS["acc"], lower=True) == [0, 2, 5]
    assert front(places[:3], METRICS["perplexity"], lower=False) == [1, 2]


def test_quality_is_drawn_against_parameters_latency_and_memory(build, tmp_path):
    builder = build(tmp_path / "store", model="m", shape=papers_store.LLAMA)
    found = papers_store.ask(builder)
    papers_store.zero_shot(builder, found, {"copa": 100})
    papers_store.perplexity(builder, found, windows=20)
    papers_store.efficiency(builder, found)
    _, board, papers = read(builder.finish())
    pictures = pareto(board, papers)
    titles = [str(picture).split('aria-label="')[1].split('"')[0] for picture in pictures]
    assert len(titles) == 2 * 4
    assert titles[0] == "wikitext2: perplexity ↓ against parameters, millions (logarithmic)"
    assert "copa: acc_norm % ↑ against decode latency, ms a token" in titles
    for picture in pictures:
        assert 'stroke-dasharray="4 3"' in picture
        assert "front; layers removed" in picture
        assert "LoRP" in picture


def test_a_model_with_one_row_has_no_front(builder):
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    _, board, papers = read(builder.finish())
    assert pareto(board, papers) == []


def test_clusters_are_framed_and_lettered_and_runs_of_one_cluster_joined():
    picture = heatmap(np.eye(5), "t", "layer", Borders(((0, 2, "A"), (2, 4, "B"), (4, 5, "A"))))
    frames = [part for part in picture.split("<rect")[1:] if 'stroke="#000"' in part]
    assert len(frames) == 3 + 2
    assert sum('stroke-dasharray="4 3"' in frame for frame in frames) == 2
    assert picture.count('class="letter"') == 3


def test_maps_have_the_clusters_that_lorp_and_wrp_noted(builder):
    members = json.dumps({"members": [[0, 1, 4], [2, 3, 5]], "clusters": 2})
    corpus = {"calibration": "default", "calibration_id": "c" * 64}
    builder.calibration(np.full((7, 7), 0.5), "c" * 64)
    builder.weights(np.full((LAYERS, LAYERS), 0.25))
    builder.variant("lorp", without(1), 1, chosen_json=members, **corpus)
    builder.variant("wrp", without(2), 1, chosen_json=canonical_json({"members": [[0], [1]]}))
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    store = builder.finish()
    source, board, _ = read(store)
    calibrated, weights = similarity_maps(
        board, read_calibrations(store, source), read_weights(store, board.weights_id)
    )
    assert "Calibration default (4,096 tokens, float32, sdpa); 2 clusters of LoRP" in calibrated
    assert calibrated.count('class="letter"') == 4
    # Its clusters are not of this model's layers.
    assert 'class="letter"' not in weights


def test_mean_similarity_by_distance_is_that_worked_out_by_hand():
    similarity = np.array([[1.0, 0.8, 0.2], [0.8, 1.0, 0.6], [0.2, 0.6, 1.0]])
    assert by_distance(similarity) == [(0.5, pytest.approx(0.7)), (1.0, pytest.approx(0.2))]
    assert by_distance(np.array([[1.0, math.nan], [math.nan, 1.0]])) == []
    assert by_distance(np.ones((1, 1))) == []


def test_distances_are_drawn_of_calibrations_and_weights(builder):
    assert distance_plot([], None) == Markup("")
    builder.calibration(np.full((7, 7), 0.5), "c" * 64)
    builder.weights(np.full((LAYERS, LAYERS), 0.25))
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    store = builder.finish()
    source, board, _ = read(store)
    picture = distance_plot(read_calibrations(store, source), read_weights(store, board.weights_id))
    assert "(RLS 1.00)" in picture
    assert "weights (WRP)" in picture


def test_importance_held_by_the_largest_features_is_that_worked_out_by_hand():
    score = np.array([[1.0, 3.0, 4.0, 2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    held = held_by_largest(score)
    half, quarter = (POINTS - 1) // 2, (POINTS - 1) // 4
    assert held.shape == (3, POINTS)
    assert held[0, [0, half, -1]] == pytest.approx([0.0, 0.7, 1.0])
    assert held[0, quarter] == pytest.approx(0.4 * quarter / ((POINTS - 1) / 4))
    assert held[1] == pytest.approx(np.linspace(0, 1, POINTS))
    assert np.isnan(held[2]).all()


def test_concentration_names_the_most_and_the_least_concentrated_layer(builder):
    builder.calibration(np.full((7, 7), 0.5), "c" * 64)
    builder.weights(np.full((LAYERS, LAYERS), 0.25))
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    store = builder.finish()
    source, board, _ = read(store)
    (one,) = read_calibrations(store, source)
    squares = read_column_squares(store, board.weights_id)
    assert squares is not None
    assert concentration_plots(one.stats, squares, "c") == []
    one.stats.feature_square_LI[:] = 1.0
    one.stats.feature_square_LI[3, 1:] = 0.01
    over_shares, over_layers = concentration_plots(one.stats, squares, "c")
    assert "most: layer 3" in over_shares
    assert "E[φ²]·‖w‖²" in over_shares
    assert "largest 10% of them" in over_layers
    assert "E[φ²] of" in concentration_plots(one.stats, None, "c")[0]


def test_the_verdict_names_the_best_what_is_not_worse_and_how_many_are(builder):
    store = scored(builder, {"shortgpt": 80, "lorp": 79, "wrp": 40})
    _, board, papers = read(store)
    (verdict,) = verdicts(board, papers)
    (line,) = verdict.lines
    assert (line.best, line.value, line.alike, line.worse) == ("ShortGPT", "80.0", "LoRP", "1")
    assert line.documents == "100"
    assert line.detectable.endswith("points")
    assert verdict.safe == ("ShortGPT", "LoRP")
    assert verdict.sentence == (
        "choose one of ShortGPT, LoRP: no measure shows them to be worse than its best. "
        "ShortGPT has the best value."
    )
    assert verdict.price == (
        "ShortGPT: 1.0k → 860 parameters (16.7 % of those in projections removed); "
        "choice acc 90.0 ±3.0 → 80.0 ±4.0 %."
    )


def test_a_row_that_one_measure_puts_first_and_another_far_behind_is_named_with_its_fault(builder):
    choice, text = builder.task("choice", 100), builder.task("text", 100)
    builder.score(builder.dense(), choice, "acc", [1.0] * 90 + [0.0] * 10)
    for place, (method, right, nats) in enumerate((("shortgpt", 80, 30.0), ("lorp", 82, 60.0))):
        builder.variant(method, without(place), 1)
        builder.score(without(place), choice, "acc", [1.0] * right + [0.0] * (100 - right))
        builder.score(without(place), text, "perplexity", [-nats - i % 3 for i in range(100)], weight=10.0)
    builder.variant("laco", None, 1, status="unreachable", error="no")
    _, board, papers = read(builder.finish())
    (verdict,) = verdicts(board, papers)
    assert verdict.sentence == (
        "choose ShortGPT: no measure shows it to be worse than its best, as some do of every other plan "
        "that has all values. It is best on 1 of 2 measures. "
        "LoRP is best on 1 of 2 measures, but shown to be worse by text perplexity. "
        "Undecided by choice acc: no row is shown to be worse than the best there. "
        "Without a value of each measure, and so not judged: LaCo."
    )
    assert verdict.price.startswith("ShortGPT: ")


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ({"shortgpt": 80}, "only one row has a value: there is nothing to choose."),
        (
            {"shortgpt": 80, "lorp": 20},
            "choose ShortGPT: no measure shows it to be worse than its best, as some do of every other plan.",
        ),
        (
            {"shortgpt": 80, "lorp": 80},
            "no measure shows a row to be worse than its best: choose by what else counts. "
            "ShortGPT, LoRP have the best value.",
        ),
    ],
)
def test_the_verdict_says_where_there_is_no_choice(builder, scores, sentence):
    _, board, papers = read(scored(builder, scores))
    assert sentence in verdicts(board, papers)[0].sentence


def test_many_tasks_are_spoken_for_by_averages_and_those_without_one_by_themselves(build, tmp_path):
    builder = build(tmp_path / "whole", model="Llama-3.1-8B", shape=papers_store.LLAMA)
    found = papers_store.ask(builder)
    papers_store.zero_shot(builder, found, dict.fromkeys(papers_store.COMMON_SENSE, 40))
    papers_store.perplexity(builder, found, windows=20)
    papers_store.reasoning(builder, found)
    _, board, papers = read(builder.finish())
    lines = {line.what: line.documents for line in verdicts(board, papers)[0].lines}
    assert lines == {
        "average of 9 tasks (lorp, wrp)": "360",
        "average of 8 tasks (simdiff)": "320",
        "wikitext2: perplexity ↓": "20",
        "aime25: acc % ↑": "30",
        "gpqa_diamond: acc % ↑": "198",
    }
    # Without COPA and BoolQ no paper's average exists: the mean of all stands for the tasks.
    builder = build(tmp_path / "part", model="Llama-3.1-8B", shape=papers_store.LLAMA)
    found = papers_store.ask(builder)
    some = [name for name in papers_store.COMMON_SENSE if name not in {"copa", "boolq"}]
    papers_store.zero_shot(builder, found, dict.fromkeys(some, 40))
    papers_store.perplexity(builder, found, windows=20)
    _, board, papers = read(builder.finish())
    assert {line.what: line.documents for line in verdicts(board, papers)[0].lines} == {
        "wikitext2: perplexity ↓": "20",
        "mean of 9 tasks: acc_norm % ↑": "360",
    }


def test_the_verdict_of_a_store_whose_units_all_failed_says_that_nothing_has_a_value(builder):
    builder.dense()
    builder.task("choice", 4)
    builder.variant("shortgpt", without(1), 1)
    _, board, papers = read(builder.finish())
    assert verdicts(board, papers)[0].sentence == "nothing has a value yet."


def test_many_names_are_cut():
    assert names([str(i) for i in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"
