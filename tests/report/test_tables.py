import math

import pytest

from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.unit import Sample
from prunebench.errors import InputError
from prunebench.report.board import BudgetTable, Cell, Row
from prunebench.report.tables import leaderboard_table
from prunebench.store.layout import open_store
from prunebench.store.read import read_results

LAYERS = 6


def without(*removed):
    return PruningPlan.without(removed, LAYERS)


def row_of(table: BudgetTable, method: str, params: str = "{}") -> Row:
    return next(r for r in table.rows if r.contender.method == method and r.contender.params_json == params)


def half(right: int, number: int = 4) -> list[float]:
    return [1.0] * right + [0.0] * (number - right)


@pytest.fixture
def two_methods(builder):
    """Dense 0.75, ShortGPT 0.5, LoRP and last_n (same plan) 0.25 on 4 items; perplexities e, e^2, e^3."""
    dense, one, other = builder.dense(), without(2), without(5)
    builder.variant("shortgpt", one, 1)
    builder.variant("lorp", other, 1)
    builder.variant("last_n", other, 1)
    choice, text = builder.task("choice", 4), builder.task("text", 2)
    for plan, right, nats in ((dense, 3, 1), (one, 2, 2), (other, 1, 3)):
        builder.score(plan, choice, "acc", half(right))
        builder.score(plan, text, "perplexity", [-10.0 * nats] * 2, weight=10.0)
    return builder.finish()


def test_every_value_and_error_is_the_store_s(two_methods):
    board = leaderboard_table(two_methods).boards[0]
    results = {
        (row["variant_key"], row["exam_id"], row["metric"]): row
        for row in read_results(two_methods).to_dict("records")
    }
    count = 0
    for table in board.tables:
        for row in table.rows:
            for column, cell in zip(board.columns, row.cells, strict=True):
                stored = results[row.variant["variant_key"], column.exam_id, column.metric.name]
                assert cell.value == stored["value"]
                assert cell.stderr == stored["stderr"]
                count += 1
    assert count == len(results) == 8


def test_perplexity_comes_first_and_numbers_are_those_worked_out_by_hand(two_methods):
    board = leaderboard_table(two_methods).boards[0]
    assert [(c.task, c.metric.name, c.num_examples) for c in board.columns] == [
        ("text", "perplexity", 2),
        ("choice", "acc", 4),
    ]
    perplexity, accuracy = row_of(board.tables[0], "shortgpt").cells
    assert perplexity.value == pytest.approx(math.exp(2))
    assert perplexity.retained == pytest.approx(100 / math.e)
    assert (perplexity.text, perplexity.error, perplexity.retained_text) == ("7.39", "0.00", "36.8")
    assert accuracy.retained == pytest.approx(100 * 2 / 3)
    assert (accuracy.text, accuracy.error, accuracy.retained_text) == ("50.0", "28.9", "66.7")


def test_the_dense_row_comes_first_and_is_never_the_best(two_methods):
    first = leaderboard_table(two_methods).boards[0].tables[0].rows[0]
    assert first.label.dense
    assert [cell.retained for cell in first.cells] == [100.0, 100.0]
    assert not any(cell.best or cell.second for cell in first.cells)


def test_the_best_is_marked_and_rows_with_equal_figures_alike(two_methods):
    table = leaderboard_table(two_methods).boards[0].tables[0]
    marks = {r.contender.method: [(c.best, c.second) for c in r.cells] for r in table.rows}
    assert marks["shortgpt"] == [(True, False)] * 2
    assert marks["lorp"] == marks["last_n"] == [(False, True)] * 2


def test_two_best_rows_are_both_marked(builder):
    builder.dense()
    units = builder.task("choice", 4)
    for method, plan, right in (("shortgpt", without(0), 2), ("lorp", without(1), 2), ("wrp", without(2), 1)):
        builder.variant(method, plan, 1)
        builder.score(plan, units, "acc", half(right))
    table = leaderboard_table(builder.finish()).boards[0].tables[0]
    assert [row_of(table, name).cells[0].best for name in ("shortgpt", "lorp", "wrp")] == [True, True, False]


def test_an_infinite_perplexity_is_printed_and_never_best(builder):
    units = builder.task("text", 2)
    builder.score(builder.dense(), units, "perplexity", [-10.0, -12.0], weight=10.0)
    for method, plan, value in (
        ("shortgpt", without(0), -1e6),
        ("lorp", without(1), -50.0),
        ("wrp", without(2), -60),
    ):
        builder.variant(method, plan, 1)
        builder.score(plan, units, "perplexity", [value] * 2, weight=10.0)
    table = leaderboard_table(builder.finish()).boards[0].tables[0]
    infinite = row_of(table, "shortgpt").cells[0]
    assert (infinite.text, infinite.error, infinite.best, infinite.retained_text) == ("∞", "", False, "0.0")
    assert row_of(table, "lorp").cells[0].best


def test_a_row_names_the_row_whose_plan_it_shares(two_methods):
    table = leaderboard_table(two_methods).boards[0].tables[0]
    assert [(r.contender.method, r.same_as) for r in table.rows] == [
        ("dense", ""),
        ("shortgpt", ""),
        ("lorp", ""),
        ("last_n", "LoRP"),
    ]


def test_holes_keep_their_reasons_and_equal_reasons_share_a_footnote(builder):
    dense, half_done = builder.dense(), without(1)
    choice, text = builder.task("choice", 20), builder.task("text", 2)
    builder.score(dense, choice, "acc", [1.0] * 20)
    builder.score(dense, text, "perplexity", [-10.0, -12.0], weight=10.0)
    builder.variant("shortgpt", half_done, 1)
    builder.score(half_done, choice, "acc", [1.0] * 16)
    builder.ledger.fail(
        choice[1].for_plan(half_done.plan_id).unit_id, "MemoryError: too large", "Traceback", 1
    )
    builder.variant("lorp", None, 1, status="unreachable", error="nearest are 0 and 2")
    builder.variant("wrp", None, 1, status="unsupported", error="no plain MLP")
    table = leaderboard_table(builder.finish()).boards[0].tables[0]
    assert table.notes == (
        "incomplete, 0 of 1 document ranges are done",
        "incomplete, 1 of 2 document ranges are done: MemoryError: too large",
        "unreachable: nearest are 0 and 2",
        "unsupported: no plain MLP",
    )
    assert [cell.note for cell in row_of(table, "shortgpt").cells] == [1, 2]
    assert [cell.note for cell in row_of(table, "lorp").cells] == [3, 3]
    hole = row_of(table, "wrp").cells[0]
    assert (hole.value, hole.text, hole.retained, hole.best) == (None, "–", None, False)


def test_a_method_that_failed_everywhere_is_a_row_of_holes_even_when_nothing_was_evaluated(builder):
    builder.dense()
    builder.task("text", 2)
    builder.variant("shortgpt", None, 1, status="failed", error="ValueError: no")
    board = leaderboard_table(builder.finish()).boards[0]
    assert [(c.task, c.metric.name, c.num_examples) for c in board.columns] == [("text", "", None)]
    assert row_of(board.tables[0], "shortgpt").cells == (Cell(reason="failed: ValueError: no", note=2),)


def test_tasks_with_unlike_keys_are_unlike_columns_that_say_how_they_differ(builder):
    dense = builder.dense()
    for execution in ("padded", "deployed"):
        builder.score(dense, builder.task("choice", 4, execution=execution), "acc", half(3))
    for length in (512, 2048):
        units = builder.task("text", 2, {"length": length})
        builder.score(dense, units, "perplexity", [-10.0, -12.0], weight=10.0)
    board = leaderboard_table(builder.finish()).boards[0]
    assert {column.name for column in board.columns} == {
        "choice (execution padded)",
        "choice (execution deployed)",
        "text (length 512)",
        "text (length 2048)",
    }
    assert board.means == ()


def test_a_mean_is_taken_over_tasks_of_one_metric_and_needs_all_of_them(builder):
    dense, one, other = builder.dense(), without(0), without(1)
    builder.variant("shortgpt", one, 1)
    builder.variant("lorp", other, 1)
    first, second, text = builder.task("a", 4), builder.task("b", 4), builder.task("text", 2)
    builder.score(dense, first, "acc", half(4))
    builder.score(dense, second, "acc", half(2))
    builder.score(dense, text, "perplexity", [-10.0, -12.0], weight=10.0)
    builder.score(one, first, "acc", half(2))
    builder.score(one, second, "acc", half(1))
    builder.score(other, first, "acc", half(1))
    board = leaderboard_table(builder.finish()).boards[0]
    assert [(mean.metric.name, mean.name) for mean in board.means] == [("acc", "mean of 2 tasks")]
    mean = row_of(board.tables[0], "shortgpt").means[0]
    errors = [row_of(board.tables[0], "shortgpt").cells[place].stderr for place in board.means[0].members]
    assert mean.value == 0.375
    assert mean.retained == 50.0
    assert mean.stderr == pytest.approx(math.hypot(*(error or 0 for error in errors)) / 2)
    assert row_of(board.tables[0], "lorp").means[0].value is None


def test_a_metric_of_unknown_direction_has_no_best_row_and_no_percentage(builder):
    dense = builder.dense()
    units = builder.task("novel", 4)
    builder.score(dense, units, "elegance", half(2))
    for method, plan in (("shortgpt", without(0)), ("lorp", without(1))):
        builder.variant(method, plan, 1)
        builder.score(plan, units, "elegance", half(1))
    cells = [row.cells[0] for row in leaderboard_table(builder.finish()).boards[0].tables[0].rows]
    assert [cell.text for cell in cells] == ["0.500", "0.250", "0.250"]
    assert not any(cell.best or cell.second or cell.retained for cell in cells)


def test_rows_of_one_method_show_the_parameters_in_which_they_differ(builder):
    dense = builder.dense()
    builder.score(dense, builder.task("choice", 4), "acc", half(3))
    for rule, removed in (("released", 0), ("rdsc", 1)):
        settings = {"merge_rule": rule, "interval": None, "protect": []}
        builder.variant("laco", without(removed), 1, params_json=canonical_json(settings))
    builder.variant("shortgpt", without(2), 1, params_json=canonical_json({"last_state": "hf"}))
    board = leaderboard_table(builder.finish()).boards[0]
    details = {(label.short, label.detail) for label in board.labels.values() if not label.dense}
    assert {detail for _, detail in details} == {"merge_rule=released", "merge_rule=rdsc", ""}
    assert {label.brief for label in board.labels.values()} >= {"ShortGPT", "LaCo (released)", "LaCo (rdsc)"}


@pytest.mark.parametrize(
    ("alphas", "shown"),
    [
        ((0.009907912549184647, "ternary"), {"alpha=0.009908", "alpha=ternary"}),
        ((0.3333333333333333, 1), {"alpha=0.3333", "alpha=1"}),
        ((0.25001, 0.25002), {"alpha=0.25001", "alpha=0.25002"}),
        ((12345.678, 0.123456), {"alpha=12345.678", "alpha=0.1235"}),
        ((1.5e-17, 0.5), {"alpha=1.5e-17", "alpha=0.5"}),
    ],
)
def test_long_numbers_are_cut_where_rows_stay_apart(builder, alphas, shown):
    builder.score(builder.dense(), builder.task("choice", 4), "acc", half(3))
    for place, alpha in enumerate(alphas):
        builder.variant(
            "simdiff_masd",
            without(place),
            1,
            params_json=canonical_json({"alpha": alpha, "beta": 0.123456789}),
        )
    labels = leaderboard_table(builder.finish()).boards[0].labels.values()
    assert {label.detail for label in labels if not label.dense} == shown


def test_rows_calibrated_differently_are_marked(builder):
    builder.dense()
    default = {"calibration": "default", "calibration_id": "d" * 64}
    builder.variant("shortgpt", without(0), 1, **default)
    builder.variant("shortgpt", without(1), 1, calibration="paper", calibration_id="e" * 64)
    builder.variant("wrp", without(2), 1)
    board = leaderboard_table(builder.finish()).boards[0]
    assert board.calibrations == {"a": "default (token ids dddddddd)", "b": "paper (token ids eeeeeeee)"}
    rows = board.tables[0].rows
    assert [(row.label.detail, row.mark) for row in rows] == [
        ("", ""),
        ("calibration=default", "a"),
        ("calibration=paper", "b"),
        ("", ""),
    ]


def test_one_calibration_for_all_rows_is_not_marked(builder):
    builder.dense()
    builder.variant("shortgpt", without(0), 1, calibration="default", calibration_id="d" * 64)
    builder.variant("wrp", without(2), 1)
    board = leaderboard_table(builder.finish()).boards[0]
    assert not board.calibrations
    assert not any(row.mark for row in board.tables[0].rows)


def test_realised_parameters_are_shown_against_the_requested(builder):
    builder.dense()
    builder.variant("shortgpt", without(0), 1)
    # 4 of 8 features of 12 parameters each, in each of 3 layers: 144 parameters, which is one layer.
    mask = Mask.keep(range(4), 8)
    exact = tuple(LayerSpec(base=i, features=mask if i < 3 else None) for i in range(LAYERS))
    builder.variant("layertrim", PruningPlan(num_layers=LAYERS, layers=exact), 1)
    short = tuple(LayerSpec(base=i, features=mask if i < 2 else None) for i in range(LAYERS))
    builder.variant("trimless", PruningPlan(num_layers=LAYERS, layers=short), 1)
    table = leaderboard_table(builder.finish()).boards[0].tables[0]
    told = {row.contender.method: row.removed_text for row in table.rows}
    assert told == {
        "dense": "0.0",
        "shortgpt": "16.7",
        "layertrim": "16.7",
        "trimless": "11.1 (0.67 of 1)",
    }


def test_a_budget_given_as_a_ratio_says_so(builder):
    builder.dense()
    builder.variant("shortgpt", without(0, 1), "ratio:0.33", budget_layers=2)
    table = leaderboard_table(builder.finish()).boards[0].tables[0]
    assert (table.budget_layers, table.asked) == (2, "ratio:0.33")


def test_few_documents_are_said_to_be_a_demonstration(two_methods):
    told = leaderboard_table(two_methods).demonstration
    assert told.startswith("Differences between rows are a demonstration only")
    assert "choice has 4, text has 2" in told


def test_a_hundred_documents_are_no_demonstration(builder):
    builder.score(builder.dense(), builder.task("choice", 100), "acc", half(70, 100))
    assert leaderboard_table(builder.finish()).demonstration == ""


def test_a_store_with_the_dense_model_alone_has_one_table(builder):
    builder.score(builder.dense(), builder.task("choice", 4), "acc", half(3))
    board = leaderboard_table(builder.finish()).boards[0]
    assert [(table.budget_layers, len(table.rows)) for table in board.tables] == [(0, 1)]


def test_an_empty_store_is_refused_with_the_remedy(tmp_path):
    store = open_store(tmp_path / "store")
    with pytest.raises(InputError, match=r"has no results yet: `prunebench run CONFIG` makes them"):
        leaderboard_table(store)


def test_two_metrics_of_one_task_share_a_heading(builder):
    units = builder.task("choice", 2)
    samples = tuple(
        Sample(doc_id=i, doc_hash="0", metric=metric, value=1.0)
        for i in range(2)
        for metric in ("acc_norm", "acc")
    )
    builder.add(builder.dense(), units[0], samples)
    board = leaderboard_table(builder.finish()).boards[0]
    assert [column.metric.name for column in board.columns] == ["acc", "acc_norm"]
    assert board.groups == (("choice", 2),)
