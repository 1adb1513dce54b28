"""Cells: values from results, holes with their reasons, what is retained, and which are best.

Best and second are told among pruned rows by what is printed, so that equal figures are marked alike.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from prunebench.report.board import Cell, Record, Row
from prunebench.report.columns import Column, MeanColumn
from prunebench.report.metrics import Metric


def cell_of(scores: Mapping[tuple[str, str, str], Record], variant: Record, column: Column) -> Cell:
    """The cell of a variant; `scores` are results by variant key, exam id and metric.

    Under several seeds it is the mean over them, and a hole where one is missing.
    """
    values, stderr, count = [], math.nan, None
    for seed, exam in zip(column.seeds, column.exams, strict=True):
        key = variant["variant_key"], exam
        row = scores.get((*key, column.metric.name)) or scores.get((*key, ""))
        count = None if row is None else row["num_examples"] or None
        if reason := _hole(variant if row is None else row, asked=row is not None):
            return Cell(reason=reason if len(column.seeds) == 1 else f"seed {seed}: {reason}", count=count)
        assert row is not None  # else there was a reason
        values.append(row["value"])
        stderr = row["stderr"]
    cell = filled(column.metric, values, stderr if len(values) == 1 else math.nan)
    return replace(cell, count=count)


def _hole(told: Record, *, asked: bool) -> str:
    """Why there is no value; empty where there is one."""
    if told["status"] == "ok":
        return "" if asked else "not evaluated: no run asked for it"
    progress = ""
    if asked and told["status"] == "incomplete":
        progress = f", {told['units_done']} of {told['units_total']} document ranges are done"
    return f"{told['status']}{progress}" + (f": {told['error']}" if told["error"] else "")


def mean_cell(cells: Sequence[Cell], mean: MeanColumn) -> Cell:
    """The mean over tasks; a hole where one is missing.

    Its error takes the documents of different tasks as independent.
    """
    members = [cells[place] for place in mean.members]
    values = [cell.value for cell in members if cell.value is not None]
    errors = [cell.stderr for cell in members if cell.stderr is not None]
    if len(values) < len(members):
        return Cell(reason=f"no mean: {len(values)} of {len(members)} tasks have a value")
    stderr = math.hypot(*errors) / len(members) if len(errors) == len(members) else math.nan
    return filled(mean.metric, [math.fsum(values) / len(members)], stderr)


def filled(metric: Metric, values: Sequence[float], stderr: float) -> Cell:
    """A cell with its printed forms.

    Args:
        metric: of the column.
        values: the value under each seed.
        stderr: document-level; NaN means that there is none.
    """
    value, sd = _mean_and_sd(values)
    cell = Cell(value=value, text=metric.shown(value))
    if sd is not None and math.isfinite(sd):
        cell = replace(cell, sd=sd, spread=metric.shown_error(sd, value))
    return with_error(cell, metric, stderr)


def with_error(cell: Cell, metric: Metric, stderr: float) -> Cell:
    """The cell with its document-level standard error, where there is one."""
    if cell.value is None or not math.isfinite(stderr) or not math.isfinite(cell.value):
        return cell
    return replace(cell, stderr=stderr, error=metric.shown_error(stderr, cell.value))


def _mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    if len(values) == 1:
        return values[0], None
    # Not fsum, which refuses sums of infinities of both signs.
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def with_retained(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[Row]:
    """Fill in the percentage of the dense row, column by column."""
    dense = next((row.all_cells for row in rows if row.label.dense), ())
    if not dense:
        return list(rows)

    def retained(place: int, cell: Cell) -> Cell:
        whole = dense[place].value
        if cell.value is None or whole is None:
            return cell
        return replace(cell, retained=metrics[place].retained(cell.value, whole))

    return [_replaced(row, [retained(i, cell) for i, cell in enumerate(row.all_cells)]) for row in rows]


def with_ranks(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[Row]:
    """Mark the best and the second best of each column that has a direction and at least two values."""
    places = [_two_best(rows, place, metric) for place, metric in enumerate(metrics)]

    def ranked(place: int, cell: Cell) -> Cell:
        first, second = places[place]
        known = cell.value is not None
        return replace(cell, best=known and cell.text == first, second=known and cell.text == second)

    return [
        row if row.label.dense else _replaced(row, [ranked(i, cell) for i, cell in enumerate(row.all_cells)])
        for row in rows
    ]


def _two_best(rows: Sequence[Row], place: int, metric: Metric) -> tuple[str, str]:
    """The printed forms of the two best values; empty where there are none."""
    cells = [row.all_cells[place] for row in rows if not row.label.dense]
    known = sorted(
        (metric.rank(cell.value), cell.text)
        for cell in cells
        if cell.value is not None and math.isfinite(cell.value)
    )
    if not metric.better or len(known) < 2:
        return "", ""
    first, second, *_ = [*dict.fromkeys(text for _, text in known), "", ""]
    return first, second


def with_notes(rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Number the reasons of the holes; equal reasons share a footnote."""
    reasons = dict.fromkeys(cell.reason for row in rows for cell in row.all_cells if cell.reason)
    numbers = {reason: number for number, reason in enumerate(reasons, start=1)}
    noted = [
        _replaced(row, [replace(cell, note=numbers.get(cell.reason, 0)) for cell in row.all_cells])
        for row in rows
    ]
    return noted, tuple(numbers)


def with_twins(rows: Sequence[Row]) -> list[Row]:
    """Say of each row whose plan an earlier row has that it is the same."""
    first: dict[str, str] = {}
    told = []
    for row in rows:
        plan_id = row.variant["plan_id"]
        if plan_id is None:
            told.append(row)
            continue
        told.append(replace(row, same_as=first.get(plan_id, "")))
        first.setdefault(plan_id, row.label.name)
    return told


def _replaced(row: Row, cells: Sequence[Cell]) -> Row:
    width = len(row.cells)
    return replace(row, cells=tuple(cells[:width]), means=tuple(cells[width:]))
