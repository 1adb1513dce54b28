"""Which cells of a table are not shown to be worse than the best of their column.

Each row is paired with the best pruned row of the column on their common documents; p-values are corrected
over all such pairs of the table (Holm). Rows with one plan are one row here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from scipy.stats import norm

from prunebench.report.board import Board, BudgetTable, Cell, Leaderboard, Row
from prunebench.report.columns import Column
from prunebench.report.documents import Documents, Key
from prunebench.report.metric_test import factor_of, is_exact, is_ratio, untestable
from prunebench.report.metrics import Metric
from prunebench.report.resampling import bootstrap_p_values
from prunebench.report.scores import with_error
from prunebench.report.statistics import (
    LEVEL,
    RESAMPLES,
    Pairs,
    holm,
    mcnemar,
    paired_error,
    smallest_detectable,
)
from prunebench.store.aggregate import standard_error

MOST_RESAMPLES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """One plan against the best of a column, on the metric's scale (ln of the ratio for perplexities)."""

    p_value: float
    difference: float
    stderr: float
    """NaN where the documents cannot tell."""
    detectable: float
    """As `PairedTest.detectable`."""
    documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What came of the tests of one table."""

    detectable: tuple[float | None, ...] = ()
    """As `BudgetTable.detectable`."""
    number: int = 0
    mute: tuple[int, ...] = ()
    """As `BudgetTable.mute`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The part of a table that is tested: columns of measured scores, and means over some of them."""

    columns: Sequence[Column]
    means: Sequence[tuple[Metric, Sequence[int]]]
    """Metric and places of the members of each mean."""

    @property
    def metrics(self) -> list[Metric]:
        """The metric of every column and mean."""
        return [*(column.metric for column in self.columns), *(metric for metric, _ in self.means)]


class Pairer:
    """Pairs of plans by their documents; a pair that several tables show is tested once."""

    def __init__(self, documents: Documents) -> None:
        self.documents = documents
        self._known: dict[tuple[str, str, str, str, int], Versus] = {}

    def column(self, column: Column, best: str, others: Sequence[str], resamples: int) -> dict[str, Versus]:
        """Each plan against the best, plan - best; without those that no common document can test."""
        metric = column.metric.name

        def key(plan_id: str) -> tuple[str, str, str, str, int]:
            return column.group, metric, best, plan_id, resamples

        bootstrapped: dict[int, dict[str, Pairs]] = {}
        for plan_id in others:
            if key(plan_id) in self._known or (pairs := self._pairs(column, plan_id, best)) is None:
                continue
            if is_exact(metric, pairs):
                self._known[key(plan_id)] = _exact(pairs)
            else:
                bootstrapped.setdefault(len(pairs), {})[plan_id] = pairs
        for alike in bootstrapped.values():
            p_values = bootstrap_p_values(list(alike.values()), resamples=resamples)
            for (plan_id, pairs), p_value in zip(alike.items(), p_values, strict=True):
                detectable = smallest_detectable(paired_error(pairs))
                self._known[key(plan_id)] = _versus(pairs, metric, p_value, detectable)
        return {plan_id: self._known[key(plan_id)] for plan_id in others if key(plan_id) in self._known}

    def mean(self, columns: Sequence[Column], best: str, others: Sequence[str]) -> dict[str, Versus]:
        """Each plan against the best by the mean of its differences; documents of unlike tasks are unlike.

        The normal distribution stands for that of a mean over so many documents; p is 1 where a task has one
        document, which tells nothing of the error.
        """
        found = {}
        for plan_id in others:
            pairs = [(column, self._pairs(column, plan_id, best)) for column in columns]
            parts = [_versus(one, column.metric.name, math.nan, math.nan) for column, one in pairs if one]
            if len(parts) == len(columns):
                found[plan_id] = _mean(parts)
        return found

    def _pairs(self, column: Column, plan_id: str, best: str) -> Pairs | None:
        """The common documents of a plan and the best; None where they cannot be tested."""
        metric = column.metric.name
        sums = self.documents.common(Key(plan_id, column.group, metric), Key(best, column.group, metric))
        return None if sums is None or untestable(*sums) else Pairs(*sums)


def with_tests(leaderboard: Leaderboard, pairer: Pairer) -> Leaderboard:
    """The leaderboard with errors over documents and seeds, corrected p-values and marks of ties."""
    return replace(leaderboard, boards=tuple(_tested_board(board, pairer) for board in leaderboard.boards))


def _tested_board(board: Board, pairer: Pairer) -> Board:
    grid = Grid(columns=board.columns, means=[(mean.metric, mean.members) for mean in board.means])
    return replace(board, tables=tuple(_tested_table(table, grid, pairer) for table in board.tables))


def _tested_table(table: BudgetTable, grid: Grid, pairer: Pairer) -> BudgetTable:
    rows, tests = tested_rows(table.rows, grid, pairer)
    return replace(table, rows=tuple(rows), detectable=tests.detectable, tests=tests.number, mute=tests.mute)


def tested_rows(rows: Sequence[Row], grid: Grid, pairer: Pairer) -> tuple[list[Row], Family]:
    """Rows with errors and marks, and what the tests tell of each column."""
    rows = [_with_errors(row, grid, pairer.documents) for row in rows]
    width = len(grid.columns)
    pairs = [_plans(rows, place, metric) for place, metric in enumerate(grid.metrics)]
    size = sum(len(others) for _, others in pairs)
    resamples = min(max(RESAMPLES, round(2.5 * size / LEVEL)), MOST_RESAMPLES)
    found: list[dict[str, Versus]] = []
    for place, (best, others) in enumerate(pairs):
        if place < width:
            found.append(pairer.column(grid.columns[place], best, others, resamples))
        else:
            members = [grid.columns[member] for member in grid.means[place - width][1]]
            found.append(pairer.mean(members, best, others))
    corrected = iter(holm([one.p_value for tests in found for one in tests.values()]))
    p_values = [{plan_id: float(next(corrected)) for plan_id in tests} for tests in found]
    mute = tuple(place for place, tests in enumerate(found) if _mute(tests))
    best = ["" if place in mute else name for place, (name, _) in enumerate(pairs)]
    return [_marked(row, p_values, best) for row in rows], Family(
        detectable=tuple(_typical(tests.values()) for tests in found), number=sum(map(len, found)), mute=mute
    )


def _mute(tests: Mapping[str, Versus]) -> bool:
    """Whether no corrected p-value of the column could get below the level, whatever the scores.

    No test of d pairs goes below 2^(1-d), and Holm multiplies the least of a column by its number of tests or
    by more.
    """
    most = max((one.documents for one in tests.values()), default=0)
    return bool(tests) and len(tests) * 2.0 ** (1 - most) >= LEVEL


def _with_errors(row: Row, grid: Grid, documents: Documents) -> Row:
    """Fill in the errors of cells of several seeds, and of the means over them."""
    cells = [
        cell if cell.stderr is not None else _with_error(cell, column, row, documents)
        for cell, column in zip(row.cells, grid.columns, strict=True)
    ]
    means = []
    for cell, (metric, members) in zip(row.means, grid.means, strict=True):
        errors = [cells[place].stderr for place in members]
        known = [error for error in errors if error is not None]
        whole = len(known) == len(errors)
        means.append(with_error(cell, metric, math.hypot(*known) / len(errors) if whole else math.nan))
    return replace(row, cells=tuple(cells), means=tuple(means))


def _with_error(cell: Cell, column: Column, row: Row, documents: Documents) -> Cell:
    if cell.value is None or len(column.seeds) == 1:
        return cell
    sums = documents.by_document(Key(row.variant["plan_id"], column.group, column.metric.name))
    if sums is None:
        return cell
    values, weights = sums
    if not np.isfinite(values).all():
        return cell
    return with_error(cell, column.metric, standard_error(column.metric.name, values, weights))


def _plans(rows: Sequence[Row], place: int, metric: Metric) -> tuple[str, list[str]]:
    """The plan of the best pruned row of a column, and the other plans with a finite value."""
    values: dict[str, float] = {}
    for row in rows:
        value = row.all_cells[place].value
        if not row.label.dense and value is not None and math.isfinite(value):
            values.setdefault(row.variant["plan_id"], value)
    averaged = place >= len(rows[0].cells)
    # The mean of perplexities is no function of the mean of their logs, which is what documents pair.
    if not metric.better or len(values) < 2 or (averaged and is_ratio(metric.name)):
        return "", []
    best = min(values, key=lambda plan_id: metric.rank(values[plan_id]))
    return best, [plan_id for plan_id in values if plan_id != best]


def _exact(pairs: Pairs) -> Versus:
    wins, losses = int((pairs.signs > 0).sum()), int((pairs.signs < 0).sum())
    detectable = smallest_detectable(math.sqrt(wins + losses) / len(pairs))
    return _versus(pairs, "", mcnemar(wins, losses), detectable if detectable <= 1 else math.nan)


def _versus(pairs: Pairs, metric: str, p_value: float, detectable: float) -> Versus:
    above, below = pairs.ratios
    factor = factor_of(metric)
    return Versus(
        p_value=p_value,
        difference=(above - below) * factor,
        stderr=paired_error(pairs) * abs(factor),
        detectable=detectable * abs(factor),
        documents=len(pairs),
    )


def _mean(parts: Sequence[Versus]) -> Versus:
    """The mean of the differences of several tasks."""
    difference = math.fsum(part.difference for part in parts) / len(parts)
    stderr = math.hypot(*(part.stderr for part in parts)) / len(parts)
    return Versus(
        p_value=float(2 * norm.sf(abs(difference) / stderr)) if stderr > 0 else 1.0,
        difference=difference,
        stderr=stderr,
        detectable=smallest_detectable(stderr),
        documents=sum(part.documents for part in parts),
    )


def _marked(row: Row, p_values: Sequence[Mapping[str, float]], best: Sequence[str]) -> Row:
    plan_id = row.variant["plan_id"]
    if row.label.dense or plan_id is None:
        return row
    cells = [
        replace(cell, holm=p[plan_id], tie=bool(first) and p[plan_id] >= LEVEL and not cell.best)
        if plan_id in p and cell.value is not None
        else replace(cell, tie=plan_id == first and not cell.best)
        for cell, p, first in zip(row.all_cells, p_values, best, strict=True)
    ]
    width = len(row.cells)
    return replace(row, cells=tuple(cells[:width]), means=tuple(cells[width:]))


def _typical(tests: Iterable[Versus]) -> float | None:
    """The median of the smallest detectable differences; None where no pair tells."""
    known = [one.detectable for one in tests if math.isfinite(one.detectable)]
    return median(known) if known else None
