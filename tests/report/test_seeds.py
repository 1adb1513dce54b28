"""Several seeds of one exam are one column: their mean, their deviation, and holes as holes."""

import csv
import io
import math
import statistics
from dataclasses import replace

import pytest

from prunebench.core.plan import PruningPlan
from prunebench.report.tables import leaderboard_table
from prunebench.report.text import legend, to_csv
from prunebench.store.artifacts import save_exam
from prunebench.store.read import read_results

SAMPLING = '{"context":99,"max_tokens":9,"temperature":0.6,"top_p":0.95}'
RIGHT = {0: [1, 1, 0, 0], 1: [1, 1, 1, 0], 2: [1, 0, 0, 0]}


def seeded(builder, seeds=(0, 1, 2), generation=SAMPLING):
    """The task under each seed."""
    units = builder.task("choice", 4)
    found = {seed: [replace(unit, seed=seed, generation=generation) for unit in units] for seed in seeds}
    for own in found.values():
        builder.log.exam(save_exam(builder.root, own))
    return found


def columns(board, metric="acc"):
    return [(i, column) for i, column in enumerate(board.columns) if column.metric.name == metric]


def test_seeds_are_one_column_with_their_mean_and_deviation(builder):
    dense = builder.dense()
    for seed, units in seeded(builder).items():
        builder.score(dense, units, "acc", RIGHT[seed])
    board = leaderboard_table(builder.finish()).boards[0]
    ((place, column),) = columns(board)
    assert (column.key["seed"], column.seeds, column.num_examples) == ("0, 1, 2", 3, 4)
    cell = board.tables[0].rows[0].cells[place]
    assert cell.value == 0.5
    assert cell.seed_sd == statistics.stdev([0.5, 0.75, 0.25]) == 0.25
    assert (cell.text, cell.error) == ("50.0", "25.0")
    stored = read_results(builder.root)
    assert cell.stderr == math.fsum(stored.loc[stored["metric"] == "acc", "stderr"]) / 3
    assert any("standard deviation (ddof 1)" in line for line in legend(board))
    assert any("temperature 0.6" in line and "max tokens 9" in line for line in legend(board))


def test_the_file_of_numbers_has_deviation_and_sampling(builder):
    dense = builder.dense()
    for seed, units in seeded(builder).items():
        builder.score(dense, units, "acc", RIGHT[seed])
    rows = list(csv.DictReader(io.StringIO(to_csv(leaderboard_table(builder.finish())))))
    (row,) = [row for row in rows if row["metric"] == "acc"]
    assert (row["seed"], row["value"], row["seed_sd"]) == ("0, 1, 2", "0.5", "0.25")
    assert row["generation"] == SAMPLING


def test_a_seed_that_is_missing_or_unfinished_makes_a_hole_with_its_count(builder):
    dense, pruned = builder.dense(), PruningPlan.without([2], 6)
    builder.variant("shortgpt", pruned, 1)
    for seed, units in seeded(builder).items():
        builder.score(dense, units, "acc", RIGHT[seed])
        if seed < 2:
            builder.score(pruned, units, "acc", RIGHT[seed])
    board = leaderboard_table(builder.finish()).boards[0]
    ((place, _),) = columns(board)
    rows = {row.contender.method: row.cells[place] for row in board.tables[0].rows}
    assert rows["dense"].value == 0.5
    assert rows["shortgpt"].value is None
    assert rows["shortgpt"].reason == "incomplete, 2 of 3 document ranges are done"


def test_other_sampling_is_another_column(builder):
    dense = builder.dense()
    for generation in (SAMPLING, SAMPLING.replace("0.6", "1.0")):
        for seed, units in seeded(builder, generation=generation).items():
            builder.score(dense, units, "acc", RIGHT[seed])
    board = leaderboard_table(builder.finish()).boards[0]
    found = columns(board)
    assert sorted(column.detail for _, column in found) == ["temperature 0.6", "temperature 1.0"]


@pytest.mark.parametrize("seeds", [(0,), (7,)])
def test_one_seed_stays_as_it_is(builder, seeds):
    dense = builder.dense()
    for units in seeded(builder, seeds).values():
        builder.score(dense, units, "acc", RIGHT[0])
    store = builder.finish()
    board = leaderboard_table(store).boards[0]
    ((place, column),) = columns(board)
    cell = board.tables[0].rows[0].cells[place]
    assert cell.seed_sd is None
    assert column.exam_id in set(read_results(store)["exam_id"])
    assert not any("several seeds" in line for line in legend(board))
