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
    """The cell of a variant; `scores` are results by variant key, exam id and metric."""
    key = variant["variant_key"], column.exam_id
    row = scores.get((*key, column.metric.name)) or scores.get((*key, ""))
    told = variant if row is None else row
    if told["status"] != "ok":
        progress = ""
        if row is not None and row["status"] == "incomplete":
            progress = f", {row['units_done']} of {row['units_total']} document ranges are done"
        return Cell(reason=f"{told['status']}{progress}" + (f": {told['error']}" if told["error"] else ""))
    if row is None:
        return Cell(reason="not evaluated: no run asked for it")
    return filled(column.metric, row["value"], row["stderr"], row.get("seed_sd"))


def mean_cell(cells: Sequence[Cell], mean: MeanColumn) -> Cell:
    """The mean over tasks; a hole where one is missing.

    Its error takes the documents of different tasks as independent.
    """
    members = [cells[place] for place in mean.members]
    values = [cell.value for cell in members if cell.value is not None]
    errors = [cell.stderr for cell in members if cell.stderr is not None]
    if len(values) < len(members):
        return Cell()
    stderr = math.hypot(*errors) / len(members) if len(errors) == len(members) else math.nan
    return filled(mean.metric, math.fsum(values) / len(members), stderr)


def filled(metric: Metric, value: float, stderr: float, seed_sd: float | None = None) -> Cell:
    """A cell with its printed forms; a NaN as error or deviation means that there is none."""
    scatter = stderr if seed_sd is None else seed_sd
    known = math.isfinite(value)
    return Cell(
        value=value,
        stderr=stderr if known and not math.isnan(stderr) else None,
        seed_sd=seed_sd if known and seed_sd is not None and not math.isnan(seed_sd) else None,
        text=metric.shown(value),
        error=metric.shown_error(scatter, value) if known and not math.isnan(scatter) else "",
    )


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
    reasons = dict.fromkeys(cell.reason for row in rows for cell in row.cells if cell.reason)
    numbers = {reason: number for number, reason in enumerate(reasons, start=1)}
    noted = [
        replace(row, cells=tuple(replace(cell, note=numbers.get(cell.reason, 0)) for cell in row.cells))
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
