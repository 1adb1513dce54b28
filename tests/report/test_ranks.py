import math

import numpy as np
import pytest
from scipy.stats import friedmanchisquare

from prunebench.core.plan import PruningPlan
from prunebench.report.cd_diagram import cd_diagram
from prunebench.report.ranks import critical_difference, friedman, ranking
from prunebench.report.standing import quality_places, standing_of, told
from prunebench.report.tables import leaderboard_table

LAYERS = 6


def without(*removed):
    return PruningPlan.without(removed, LAYERS)


def test_average_ranks_and_win_rates_are_those_worked_out_by_hand():
    # Task 1: a < b < c; task 2: a = b < c.
    found = ranking("abc", ("1", "2"), np.array([[1.0, 5], [2, 5], [3, 9]]))
    assert found.average == (1.25, 1.75, 3.0)
    assert found.wins == (0.875, 0.625, 0.0)
    assert found.critical == pytest.approx(2.3437 * math.sqrt(3 * 4 / (6 * 2)), abs=1e-3)
    assert found.groups == [(1.25, 3.0)]
    assert found.alike("c") == ["a", "b"]


def test_the_critical_difference_is_that_of_the_table_of_q():
    """Demšar 2006, section 3.2.2: 4 classifiers on 14 data sets, q = 2.569."""
    assert critical_difference(4, 14) == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert critical_difference(2, 10) == pytest.approx(1.960 * math.sqrt(2 * 3 / 60), abs=1e-3)


def test_friedman_is_scipy_s_with_ties_and_one_without_any_difference():
    from scipy.stats import rankdata

    values = np.random.default_rng(0).normal(size=(5, 12)).round(1)
    assert friedman(rankdata(values, axis=0)) == pytest.approx(friedmanchisquare(*values).pvalue)
    assert friedman(rankdata(np.ones((3, 4)), axis=0)) == 1.0
    assert math.isnan(friedman(rankdata(values[:2], axis=0)))


def test_groups_are_the_largest_that_are_not_told_apart():
    values = np.tile(np.array([[1.0], [2], [3], [4], [5], [6]]), 12)
    found = ranking("abcdef", tuple(map(str, range(12))), values)
    assert 2 < found.critical < 3
    assert found.groups == [(1.0, 3.0), (2.0, 4.0), (3.0, 5.0), (4.0, 6.0)]


@pytest.mark.parametrize("values", [np.ones((1, 2)), np.ones((2, 0)), np.array([[1.0], [math.nan]])])
def test_a_ranking_refuses_what_it_cannot_rank(values):
    with pytest.raises(ValueError, match="at least 2 names"):
        ranking("ab"[: len(values)], tuple("xy")[: values.shape[1]], values)


@pytest.fixture
def board(builder):
    """Two tasks; LoRP and LLM-Streamline share a plan, WRP lacks one task, LaCo has no plan."""
    tasks = [builder.task(name, 4) for name in ("a", "b")]
    text = builder.task("text", 2)
    rows = {"dense": (builder.dense(), 4), "shortgpt": (without(0), 3), "lorp": (without(1), 2)}
    for method, removed in (("shortgpt", 0), ("lorp", 1), ("llm_streamline", 1), ("wrp", 2)):
        builder.variant(method, without(removed), 1)
    builder.variant("laco", None, 1, status="unreachable", error="no")
    for plan, number in rows.values():
        for task in tasks:
            builder.score(plan, task, "acc", [1.0] * number + [0.0] * (4 - number))
        builder.score(plan, text, "perplexity", [-30.0 / number] * 2, weight=10.0)
    builder.score(without(2), tasks[0], "acc", [1.0, 0, 0, 0])
    return leaderboard_table(builder.finish()).boards[0]


def test_rows_without_every_task_are_not_ranked_and_say_how_many_they_have(board):
    rows = board.tables[0].rows
    standing = standing_of(rows, board.columns, quality_places(board))
    by_method = {row.contender.method: row for row in rows}
    assert standing.tasks == ("text", "a", "b")
    assert {name: standing.covered(row) for name, row in by_method.items()} == {
        "dense": "3 of 3",
        "shortgpt": "3 of 3",
        "llm_streamline": "3 of 3",
        "lorp": "3 of 3",
        "wrp": "1 of 3",
        "laco": "0 of 3",
    }
    assert standing.rank(by_method["shortgpt"]) == 1.0
    assert standing.rank(by_method["lorp"]) == standing.rank(by_method["llm_streamline"]) == 2.0
    assert standing.rank(by_method["wrp"]) is None
    assert standing.left_out == ("WRP", "LaCo")
    assert standing.ranking is not None
    assert "LLM-Streamline = LoRP" in standing.ranking.names
    assert "Over 3 tasks average ranks that differ by less than 1.13" in told(standing)


def test_one_metric_of_each_task_counts_in_ranks(builder):
    dense = builder.dense()
    (unit,) = builder.task("choice", 2)
    from prunebench.core.unit import Sample

    builder.add(
        dense,
        unit,
        tuple(
            Sample(doc_id=i, doc_hash=str(i), metric=metric, value=1.0)
            for i in range(2)
            for metric in ("acc", "acc_norm", "elegance")
        ),
    )
    board = leaderboard_table(builder.finish()).boards[0]
    assert [board.columns[place].metric.name for place in quality_places(board)] == ["acc_norm"]


def test_nothing_is_ranked_where_fewer_than_two_plans_have_every_task(builder):
    builder.score(builder.dense(), builder.task("choice", 2), "acc", [1.0, 0.0])
    board = leaderboard_table(builder.finish()).boards[0]
    standing = standing_of(board.tables[0].rows, board.columns, quality_places(board))
    assert standing.ranking is None
    assert told(standing).startswith("Fewer than two plans")
    assert told(standing_of((), board.columns, ())).startswith("No task with a direction")


def test_the_diagram_names_every_row_with_its_rank_and_joins_what_is_not_told_apart():
    names = [f"row {i} <b>" for i in range(6)]
    values = np.tile(np.arange(6, dtype=np.float64)[:, None], 12)
    picture = cd_diagram(ranking(names, tuple(map(str, range(12))), values), "7 layers")
    for i in range(6):
        assert f"row {i} &lt;b&gt;" in picture
    assert picture.count('stroke-width="4"') == 4
    assert "critical difference 2.18" in picture
    assert "more than the whole axis" not in picture


def test_the_diagram_of_very_many_rows_has_the_best_ones():
    names = [f"row {i}" for i in range(200)]
    picture = cd_diagram(ranking(names, ("a",), np.arange(200, dtype=np.float64)[:, None]), "7 layers")
    assert "the best 40 of 200" in picture
    assert "row 39" in picture
    assert "row 40<" not in picture
    assert "more than the whole axis" in picture
