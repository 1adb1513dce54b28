import math

import numpy as np
import pytest

from prunebench.core.plan import PruningPlan
from prunebench.report.documents import Key, read_documents
from prunebench.report.metric_test import detectable_text
from prunebench.report.metrics import METRICS, Metric
from prunebench.report.resampling import bootstrap_p_values
from prunebench.report.source import read_source
from prunebench.report.statistics import Pairs, bootstrap, holm, mcnemar
from prunebench.report.tables import leaderboard
from prunebench.report.tested import Pairer, with_tests
from prunebench.store.aggregate import standard_error
from prunebench.store.artifacts import exam_group

LAYERS = 6


def without(*removed):
    return PruningPlan.without(removed, LAYERS)


def marked(store):
    return with_tests(
        leaderboard(read_source(store)), Pairer(read_documents(store, read_source(store).groups))
    )


def cells_of(store, place=0):
    """The cell of each method in the first table."""
    table = marked(store).boards[0].tables[0]
    return {row.contender.method: row.all_cells[place] for row in table.rows}


def right(number, count):
    return [1.0] * number + [0.0] * (count - number)


def three_methods(builder, units, metric, values, weight=1.0):
    builder.score(builder.dense(), units, metric, values[0], weight)
    methods = ("shortgpt", "lorp", "wrp")
    for place, (method, own) in enumerate(zip(methods, values[1:], strict=True)):
        builder.variant(method, without(place), 1)
        builder.score(without(place), units, metric, own, weight)
    return builder.finish()


def test_rows_not_shown_worse_than_the_best_are_marked_and_those_shown_worse_are_not(builder):
    """Of 220 items the best has 140; one row lacks 30 of them and has 12 others (p = .008)."""
    best = [1.0] * 110 + [1.0] * 30 + [0.0] * 12 + [0.0] * 68
    near = [1.0] * 110 + [0.0] * 30 + [1.0] * 12 + [0.0] * 68
    equal = [1.0] * 110 + [1.0] * 28 + [0.0] * 2 + [1.0] * 1 + [0.0] * 79
    store = three_methods(builder, builder.task("choice", 220), "acc", [right(200, 220), best, near, equal])
    cells = cells_of(store)
    raw = [mcnemar(12, 30), mcnemar(1, 2)]
    assert [cells["lorp"].holm, cells["wrp"].holm] == pytest.approx(holm(raw))
    assert {method: (cell.best, cell.tie) for method, cell in cells.items()} == {
        "dense": (False, False),
        "shortgpt": (True, False),
        "lorp": (False, False),
        "wrp": (False, True),
    }


def test_the_correction_is_over_all_pairs_of_a_table(builder):
    dense, units = builder.dense(), [builder.task(name, 100) for name in ("a", "b")]
    for task in units:
        builder.score(dense, task, "acc", right(90, 100))
    for place, method in enumerate(("shortgpt", "lorp", "wrp")):
        builder.variant(method, without(place), 1)
        for task in units:
            builder.score(without(place), task, "acc", right(80 - 4 * place, 100))
    table = marked(builder.finish()).boards[0].tables[0]
    # Two tasks and their mean, two rows each against the best.
    assert table.tests == 6
    lorp = next(row for row in table.rows if row.contender.method == "lorp")
    # The p-values of both means and of WRP on both tasks are smaller, and were rejected before.
    assert lorp.cells[0].holm == pytest.approx(2 * mcnemar(4, 0))


def test_rows_of_one_plan_are_one_row_in_the_family(builder):
    units = builder.task("choice", 100)
    builder.score(builder.dense(), units, "acc", right(90, 100))
    for method, removed in (("shortgpt", 0), ("lorp", 0), ("wrp", 1)):
        builder.variant(method, without(removed), 1)
    builder.score(without(0), units, "acc", right(80, 100))
    builder.score(without(1), units, "acc", right(79, 100))
    table = marked(builder.finish()).boards[0].tables[0]
    assert table.tests == 1
    assert [row.cells[0].best for row in table.rows] == [False, True, True, False]


def test_columns_whose_documents_cannot_tell_have_no_marks(builder):
    store = three_methods(
        builder,
        builder.task("text", 4),
        "perplexity",
        [[-10.0, -11, -12, -13], [-20.0, -21, -22, -23], [-90.0, -91, -92, -93], [-99.0, -98, -97, -96]],
        weight=10.0,
    )
    table = marked(store).boards[0].tables[0]
    assert table.mute == (0,)
    assert not any(cell.tie for row in table.rows for cell in row.cells)


@pytest.mark.parametrize("count", [1, 3])
def test_identical_scores_everywhere_leave_every_row_best_and_none_worse(builder, count):
    store = three_methods(builder, builder.task("choice", count), "acc", [right(1, count)] * 4)
    cells = cells_of(store)
    assert all(cells[method].best for method in ("shortgpt", "lorp", "wrp"))
    assert [cells[method].holm for method in ("lorp", "wrp")] == [1.0, 1.0]
    assert marked(store).boards[0].tables[0].detectable == (None,)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_neither_best_nor_marked(builder, odd):
    values = [right(9, 10), right(8, 10), [odd] * 10, right(2, 10)]
    cells = cells_of(three_methods(builder, builder.task("choice", 10), "acc", values))
    assert (cells["lorp"].best, cells["lorp"].tie, cells["lorp"].holm) == (False, False, None)
    assert cells["shortgpt"].best
    assert cells["wrp"].holm is not None


def test_one_method_is_tested_against_nothing(builder):
    units = builder.task("choice", 10)
    builder.score(builder.dense(), units, "acc", right(9, 10))
    builder.variant("shortgpt", without(0), 1)
    builder.score(without(0), units, "acc", right(5, 10))
    table = marked(builder.finish()).boards[0].tables[0]
    assert (table.tests, table.mute, table.detectable) == (0, (), (None,))


def test_seeds_share_a_column_with_their_sd_and_an_error_clustered_by_document(builder):
    dense = builder.dense()
    values = [right(7, 10), right(5, 10), [0.0] * 3 + [1.0] * 6 + [0.0]]
    for seed, own in enumerate(values):
        builder.score(dense, builder.task("aime", 10, seed=seed), "acc", own)
    board = marked(builder.finish()).boards[0]
    (column,) = board.columns
    assert (column.seeds, len(column.exams), column.key["seed"]) == ((0, 1, 2), 3, "0, 1, 2")
    cell = board.tables[0].rows[0].cells[0]
    assert cell.value == pytest.approx(0.6)
    assert cell.sd == pytest.approx(np.std([0.7, 0.5, 0.6], ddof=1))
    sums = np.array(values).sum(axis=0)
    assert cell.stderr == pytest.approx(standard_error("acc", sums, np.full(10, 3.0)))
    assert (cell.text, cell.spread) == ("60.0", "10.0")


def test_a_seed_without_its_value_is_a_hole_that_names_it(builder):
    dense = builder.dense()
    builder.score(dense, builder.task("aime", 4, seed=0), "acc", right(2, 4))
    builder.task("aime", 4, seed=1)
    board = marked(builder.finish()).boards[0]
    columns = {column.metric.name: place for place, column in enumerate(board.columns)}
    cell = board.tables[0].rows[0].cells[columns["acc"]]
    assert cell.value is None
    assert cell.reason.startswith("seed 1: incomplete")


def test_settings_of_sampling_do_not_share_a_column(builder):
    dense = builder.dense()
    for generation in ('{"temperature":0.6}', '{"temperature":1.0}'):
        builder.score(dense, builder.task("aime", 4, generation=generation), "acc", right(2, 4))
    assert len(marked(builder.finish()).boards[0].columns) == 2


def test_pairs_of_plans_are_summed_over_the_seeds_that_both_have(builder):
    dense, other = builder.dense(), without(0)
    builder.variant("shortgpt", other, 1)
    units = [builder.task("aime", 3, seed=seed) for seed in (0, 1)]
    builder.score(dense, units[0], "acc", [1, 0, 1])
    builder.score(dense, units[1], "acc", [1, 1, 1])
    builder.score(other, units[0], "acc", [0, 0, 1])
    store = builder.finish()
    documents = read_documents(store, read_source(store).groups)
    group = exam_group(units[0][0])
    sums = documents.common(Key(dense.plan_id, group, "acc"), Key(other.plan_id, group, "acc"))
    assert sums is not None
    assert sorted(zip(sums[0], sums[2], strict=True)) == [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)]
    assert documents.common(Key(dense.plan_id, group, "acc"), Key("none", group, "acc")) is None


def test_copies_of_one_document_stay_apart(builder):
    dense, (unit,) = builder.dense(), builder.task("choice", 3)
    from prunebench.core.unit import Sample

    samples = tuple(
        Sample(doc_id=i, doc_hash="same", metric="acc", value=value)
        for i, value in enumerate((1.0, 0.0, 1.0))
    )
    builder.add(dense, unit, samples)
    store = builder.finish()
    scores = read_documents(store, read_source(store).groups).of(Key(dense.plan_id, exam_group(unit), "acc"))
    assert scores is not None
    assert len(set(scores.document)) == 3
    assert scores.value.tolist() == [1.0, 0.0, 1.0]


def test_the_shared_bootstrap_is_that_of_single_pairs():
    random = np.random.default_rng(0)
    weights = np.full(40, 7.0)
    pairs = [
        Pairs(random.normal(shift, 1, 40), weights, random.normal(0, 1, 40), weights) for shift in (0, 0.4)
    ]
    unlike = Pairs(random.normal(1, 1, 40), random.uniform(1, 2, 40), random.normal(1, 1, 40), weights)
    every = [*pairs, unlike, Pairs(weights, weights, weights, weights)]
    assert bootstrap_p_values(every) == [bootstrap(one)[2] for one in every]


def test_the_shared_bootstrap_refuses_unlike_documents():
    ones = np.ones(3)
    with pytest.raises(ValueError, match="equally many documents"):
        bootstrap_p_values([Pairs(ones, ones, ones, ones), Pairs(ones[1:], ones[1:], ones[1:], ones[1:])])


@pytest.mark.parametrize(
    ("metric", "difference", "text"),
    [
        (METRICS["acc"], 0.0843, "8.4 points"),
        (METRICS["perplexity"], math.log(1.05), "5.0 %"),
        (METRICS["perplexity"], 9.0, "> 100×"),
        (Metric(name="novel"), 0.1234, "0.123"),
        (METRICS["acc"], None, "–"),
    ],
)
def test_detectable_differences_are_in_points_or_in_percent(metric, difference, text):
    assert detectable_text(metric, difference) == text
