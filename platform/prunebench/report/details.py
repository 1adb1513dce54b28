"""What a click on a number shows: its key, n, error and plan, and where its documents' scores lie.

A `Details` is handed to the template. It is told every cell as the cell is written, and says in what the cell
is marked with; at the end of the page it writes what it was told as JSON for the page's script.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.report.board import Board, Cell, Record, Row
from prunebench.report.columns import Column
from prunebench.report.labels import Label
from prunebench.report.metrics import HOLE, Metric, counted
from prunebench.report.papers import PaperTable
from prunebench.report.source import parsed
from prunebench.store.read import plans_by_file
from prunebench.store.record import DENSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One thing that rows or columns are filtered by."""

    name: str
    options: tuple[tuple[str, str], ...]
    """(value, text)."""


@dataclass(slots=True)
class Details:
    """The cells of one page, and the rows and columns that they are in."""

    store: Path
    _columns: dict[tuple[str, int], int] = field(default_factory=dict)
    """(table, place of the column in it) -> number on the page."""
    _facts: list[Json] = field(default_factory=list)
    _rows: dict[str, dict[str, Json]] = field(default_factory=dict)
    _cells: dict[str, dict[str, Json]] = field(default_factory=dict)
    """Variant key -> number of the column -> what is known of the cell."""
    _plans: dict[str, str] = field(default_factory=dict)
    """Variant key -> plan id."""

    def board_cell(self, board: Board, row: Row, place: int) -> int:
        """Keep the cell of a row at a place of `Board.all_columns`; returns the number of its column."""
        column = board.all_columns[place]
        name = board.weights_id, place
        if isinstance(column, Column):
            return self._keep(name, [column], column.name, column.metric, row, row.all_cells[place])
        members = [board.columns[member] for member in column.members]
        return self._keep(name, members, column.name, column.metric, row, row.all_cells[place])

    def paper_cell(self, paper: PaperTable, row: Row, place: int) -> int:
        """The same for a place among the columns of a paper's table and, after them, its average."""
        name = canonical_json([row.variant["weights_id"], paper.recipe.name, paper.setting]), place
        if place < len(paper.columns):
            column = paper.columns[place]
            return self._keep(name, [column], column.name, column.metric, row, row.all_cells[place])
        members = [c for asked, c in zip(paper.asked, paper.columns, strict=True) if asked.averaged]
        title = f"{paper.recipe.average} of {counted(len(members), 'task')}"
        return self._keep(name, members, title, paper.recipe.average_metric, row, row.all_cells[place])

    def _keep(
        self, table: tuple[str, int], columns: list[Column], name: str, metric: Metric, row: Row, cell: Cell
    ) -> int:
        """Keep a cell that is made of one column, or is a mean over several."""
        if table not in self._columns:
            self._columns[table] = len(self._columns)
            self._facts.append({"name": name, "metric": metric.name, **_about(columns)})
        number = self._columns[table]
        key = row.variant["variant_key"]
        if key not in self._rows:
            self._rows[key] = _row(row.variant, row.label)
            self._cells[key] = {}
            if row.variant["plan_id"] is not None:
                self._plans[key] = row.variant["plan_id"]
        self._cells[key][str(number)] = _told(cell)
        return number

    def json(self) -> Markup:
        """Everything that was kept, as JSON that no text of a method or model can break out of.

        Raises:
            InputError: a torn file of samples, named.
        """
        files: dict[str, list[str]] = {}
        for path, plans in plans_by_file(self.store).items():
            for plan_id in set(plans) & set(self._plans.values()):
                files.setdefault(plan_id, []).append(str(path.relative_to(self.store)))
        rows: dict[str, Json] = {
            key: {**row, "cells": self._cells[key], "files": files.get(self._plans.get(key, ""), [])}
            for key, row in self._rows.items()
        }
        return script_json({"dense": DENSE, "columns": self._facts, "rows": rows})


def facets_of(boards: Iterable[Board]) -> list[Facet]:
    """Model, budget, method, task and backend, each where it has at least two values."""
    boards = tuple(boards)
    columns = [column for board in boards for column in board.columns]
    labels = [(contender, label) for board in boards for contender, label in board.labels.items()]
    budgets = sorted({table.budget_layers for board in boards for table in board.tables})
    found = {
        "model": [(board.model, board.model) for board in boards],
        "budget": [(str(budget), counted(budget, "layer")) for budget in budgets],
        "method": [(contender.method, label.title) for contender, label in labels if not label.dense],
        "task": [(column.task, column.task) for column in columns],
        "backend": [(column.key["backend"], column.key["backend"]) for column in columns],
    }
    unique = {name: tuple(dict(options).items()) for name, options in found.items()}
    return [Facet(name=name, options=options) for name, options in unique.items() if len(options) > 1]


def script_json(value: Json) -> Markup:
    """JSON for a script element: what ends or opens an element is written as an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    escapes = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
    return Markup(text.translate(escapes))


def _about(columns: Sequence[Column]) -> dict[str, Json]:
    """What a column is filtered by, and its key; a mean has the tasks of its members and no key."""
    about: dict[str, Json] = {
        "task": list(dict.fromkeys(column.task for column in columns)),
        "backend": list(dict.fromkeys(column.key["backend"] for column in columns)),
    }
    if len(columns) != 1:
        return {**about, "key": []}
    (column,) = columns
    recipe: Mapping[str, Json] = parsed(column.key["recipe"] or "{}")
    key = {**{name: value for name, value in column.key.items() if name != "recipe"}, **recipe}
    shown = [[name, _shown(value)] for name, value in key.items() if value not in (None, "")]
    return {**about, "key": [*shown, ["exam", ", ".join(column.exams)]]}


def _row(variant: Record, label: Label) -> dict[str, Json]:
    layers = "" if label.dense else f", {variant['budget_layers']} of {variant['num_layers']} layers"
    facts = {
        "model": variant["model"],
        "weights": variant["weights_id"],
        "plan": variant["plan_id"] or HOLE,
        "variant": variant["variant_key"],
        "parameters": variant["params_json"],
        "chosen": variant["chosen_json"],
        "calibration": " ".join(filter(None, (variant["calibration"], variant["calibration_id"]))),
        "removed layers": ", ".join(str(layer) for layer in variant["removed_layers"]),
    }
    return {
        "name": f"{label.name}{layers}",
        "method": variant["method"],
        "plan": variant["plan_id"],
        "facts": [[name, value] for name, value in facts.items() if value not in ("", "{}")],
    }


def _told(cell: Cell) -> dict[str, Json]:
    """Everything that is known of one number, by the names that readers see."""
    facts = {
        "value": _number(cell.value),
        "standard error": _number(cell.stderr),
        "sd over seeds": _number(cell.sd),
        "p of the difference from the best, corrected": _number(cell.holm),
        "documents": cell.count,
        "status": cell.reason or "ok",
    }
    return {name: value for name, value in facts.items() if value is not None}


def _number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinity: they are texts."""
    return value if value is None or math.isfinite(value) else str(value)


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
