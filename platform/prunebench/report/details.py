"""What a click on a number shows: its key, n, error and plan, and where its documents' scores lie.

A `Details` is handed to the template. It is told every cell as the cell is written, and says in what the cell
is marked with; at the end of the page it writes what it was told as JSON for the page's script.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from prunebench.core.fingerprint import Json
from prunebench.report.board import Board, Cell, Record, Row
from prunebench.report.columns import Column
from prunebench.report.labels import Label
from prunebench.report.metrics import HOLE, counted
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
    """(weights, place in `Board.all_columns`) -> number on the page."""
    _facts: list[Json] = field(default_factory=list)
    _rows: dict[str, dict[str, Json]] = field(default_factory=dict)
    _cells: dict[str, dict[str, Json]] = field(default_factory=dict)
    """Variant key -> number of the column -> what is known of the cell."""
    _plans: dict[str, str] = field(default_factory=dict)
    """Variant key -> plan id."""

    def cell(self, board: Board, row: Row, place: int) -> int:
        """Keep the cell of a row at a place of `all_columns`; returns its column's number on the page."""
        name = board.weights_id, place
        if name not in self._columns:
            self._columns[name] = len(self._columns)
            self._facts.append(_column(board, place))
        number = self._columns[name]
        key = row.variant["variant_key"]
        if key not in self._rows:
            self._rows[key] = _row(row.variant, row.label)
            self._cells[key] = {}
            if row.variant["plan_id"] is not None:
                self._plans[key] = row.variant["plan_id"]
        self._cells[key][str(number)] = _told(row.all_cells[place])
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


def _column(board: Board, place: int) -> Json:
    """A column's name, what it is filtered by, and its key; a mean has the tasks of its members."""
    column = board.all_columns[place]
    if not isinstance(column, Column):
        members = [board.columns[member] for member in column.members]
        return {"name": column.name, "metric": column.metric.name, **_filtered(members), "key": []}
    recipe: Mapping[str, Json] = parsed(column.key["recipe"] or "{}")
    key = {**{name: value for name, value in column.key.items() if name != "recipe"}, **recipe}
    shown = [[name, _shown(value)] for name, value in key.items() if value not in (None, "")]
    about = {"name": column.name, "metric": column.metric.name, **_filtered([column])}
    return {**about, "key": [*shown, ["exam", column.exam_id]]}


def _filtered(columns: Iterable[Column]) -> dict[str, Json]:
    columns = tuple(columns)
    return {
        "task": list(dict.fromkeys(column.task for column in columns)),
        "backend": list(dict.fromkeys(column.key["backend"] for column in columns)),
    }


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
