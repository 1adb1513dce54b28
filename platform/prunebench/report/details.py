"""What the page's script knows: each exam's key, each row's request, each result, and where samples lie.

Nothing here is computed: the numbers are those of the results table, unrounded.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from prunebench.core.fingerprint import Json
from prunebench.report.board import Board, Record
from prunebench.report.columns import KEY
from prunebench.report.labels import Contender, Label
from prunebench.report.metrics import HOLE, counted
from prunebench.report.source import Source, parsed
from prunebench.store.read import plans_by_file
from prunebench.store.record import DENSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One thing that rows or columns are filtered by."""

    name: str
    options: tuple[tuple[str, str], ...]
    """(value, text)."""


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


def page_data(store: Path, source: Source, boards: Iterable[Board]) -> Markup:
    """Everything that a click can show, as JSON that no text of a method or model can break out of.

    Raises:
        InputError: a torn file of samples, named.
    """
    labels = {(board.weights_id, c): label for board in boards for c, label in board.labels.items()}
    by_file = plans_by_file(store)
    files: dict[str, list[int]] = {}
    for number, plans in enumerate(by_file.values()):
        for plan_id in plans:
            files.setdefault(plan_id, []).append(number)
    known = {row["plan_id"] for row in source.variants}
    return script_json(
        {
            "dense": DENSE,
            "exams": _exams(source.results),
            "rows": {row["variant_key"]: _row(row, labels) for row in source.variants},
            "cells": _cells(source.results),
            "paths": [str(path.relative_to(store)) for path in by_file],
            "files": {plan_id: list(numbers) for plan_id, numbers in files.items() if plan_id in known},
        }
    )


def script_json(value: Json) -> Markup:
    """JSON for a script element: what ends or opens an element is written as an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    escapes = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
    return Markup(text.translate(escapes))


def _exams(results: Iterable[Record]) -> dict[str, Json]:
    exams: dict[str, Json] = {}
    for row in results:
        if row["exam_id"] is None or row["exam_id"] in exams:
            continue
        recipe: Mapping[str, Json] = parsed(row["recipe"]) or {}
        key = {**{name: row[name] for name in KEY if name != "recipe"}, **recipe, "exam": row["exam_id"]}
        exams[row["exam_id"]] = {
            "task": row["task"],
            "backend": row["backend"],
            "key": [[name, _shown(value)] for name, value in key.items() if value not in (None, "")],
        }
    return exams


def _row(variant: Record, labels: Mapping[tuple[str, Contender], Label]) -> Json:
    label = labels[variant["weights_id"], Contender.of(variant)]
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
    status = variant["status"] + (f": {variant['error']}" if variant["error"] else "")
    return {
        "name": f"{label.name}{layers}",
        "method": variant["method"],
        "plan": variant["plan_id"],
        "status": "" if variant["status"] == "ok" else status,
        "facts": [[name, value] for name, value in facts.items() if value not in ("", "{}")],
    }


def _cells(results: Iterable[Record]) -> dict[str, Json]:
    """Variant key -> [exam, metric, value, standard error, documents, status where it is not ok]."""
    cells: dict[str, list[Json]] = {}
    for row in results:
        if row["exam_id"] is None:
            continue
        told = [row["exam_id"], row["metric"] or "", _number(row["value"]), _number(row["stderr"])]
        told.append(row["num_examples"])
        if row["status"] != "ok":
            told.append(row["status"] + (f": {row['error']}" if row["error"] else ""))
        cells.setdefault(row["variant_key"], []).append(told)
    return dict(cells)


def _number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinity: they are texts."""
    return value if value is None or math.isfinite(value) else str(value)


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
