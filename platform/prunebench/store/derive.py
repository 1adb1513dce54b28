"""Results, derived from samples, variants, exams and runs: never the truth, and always to be rebuilt.

A row is one variant under one exam (task, recipe, seed, execution key) and metric. Rows are made for every
variant that a run asked an exam of, and for whatever has samples: what is missing shows as a hole.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from prunebench.core.collector import uncollected
from prunebench.core.fingerprint import canonical_json
from prunebench.store.aggregate import aggregate, standard_error
from prunebench.store.append import parquet_bytes, store_lock, write_atomic
from prunebench.store.artifacts import load_exam
from prunebench.store.exams import Exam, Score, add_scores
from prunebench.store.layout import RESULTS_FILE, check_store
from prunebench.store.read import read_failures, run_lines, variants_table
from prunebench.store.schema import RESULTS, table_of

__all__ = ["aggregate", "derive_results", "standard_error"]

COPIED = (
    "model",
    "weights_id",
    "method",
    "params_json",
    "budget_layers",
    "num_layers",
    "plan_id",
    "removed_params",
    "total_params",
    "chosen_json",
    "calibration",
    "calibration_id",
    "budget",
    "variant_key",
)
"""Columns that a result has from its variant."""
MODEL = ("weights_id", "dtype", "attention")
"""What a variant and an exam have to share."""


@dataclass(slots=True)
class Asked:
    """What the runs say: who asked what, and how each unit came about."""

    runs_of_exam: dict[str, dict[str, frozenset[str] | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Exam id -> run id -> the plans that the run asked it of; None for all."""
    runs_of_variant: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Variant key -> the runs that asked about it, the last one last."""
    started: dict[str, str] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Unit id -> its last event, with the run's id."""

    def last(self, variant: Mapping[str, Any]) -> str | None:
        """The last run that asked about the variant."""
        return next(reversed(self.runs_of_variant.get(variant["variant_key"], [])), None)

    def last_under(self, variant: Mapping[str, Any], exam: str) -> str | None:
        """The last run that asked the exam of the variant; without a plan it is asked what any plan is."""
        plans, plan_id = self.runs_of_exam.get(exam, {}), variant["plan_id"]
        for run in reversed(self.runs_of_variant.get(variant["variant_key"], [])):
            only = plans.get(run, frozenset())
            if only is None or plan_id in only or (only and not plan_id):
                return run
        return None


def _read_asked(root: Path) -> Asked:
    asked = Asked()
    for run_id, lines in run_lines(root):
        asked.started[run_id] = lines[0]["started_at"]
        for line in lines:
            if line["event"] == "variant":
                asked.runs_of_variant[line["variant_key"]].append(run_id)
            elif line["event"] == "exam":
                plan_ids = line.get("plan_ids")
                only = None if plan_ids is None else frozenset(plan_ids)
                asked.runs_of_exam[line["exam_id"]][run_id] = only
            elif line["event"] == "unit":
                asked.units[line["unit_id"]] = {**line, "run_id": run_id}
    return asked


def _read_exams(root: Path, asked: Asked) -> dict[str, Exam]:
    exams: dict[str, Exam] = defaultdict(Exam)
    for name in asked.runs_of_exam:
        for unit in load_exam(root, name):
            exams[name].expect(unit)
    add_scores(root, exams)
    return exams


def _rows_of_pair(
    variant: dict[str, Any], name: str, exam: Exam, asked: Asked, errors: dict[str, str]
) -> Iterator[dict]:
    """The rows of one variant under one exam, one a metric."""
    plan_id = variant["plan_id"] if variant["status"] == "ok" else None
    missing = exam.missing(plan_id) if plan_id else []
    done = exam.done_by(plan_id)
    events = [asked.units[u] for u in done.values() if u in asked.units]
    last = max(events, key=lambda event: (event["at"], event["run_id"]), default=None)
    run_id = last["run_id"] if last else asked.last_under(variant, name)
    at = last["at"] if last else asked.started.get(run_id or "")
    status = variant["status"] if not plan_id else "incomplete" if missing else "ok"
    row = {
        **{column: variant[column] for column in COPIED},
        **exam.stated,
        "exam_id": name,
        "run_id": run_id,
        "wall_seconds": sum(event["seconds"] for event in events) if events else None,
        "created_at": datetime.fromisoformat(at) if at else None,
        "status": status,
        "error": variant["error"] or next((errors[u] for u in missing if u in errors), None),
        "units_done": len(done),
        "units_total": len(exam.units),
    }
    for metric in sorted(exam.metrics) or [None]:
        score = exam.scores.get((plan_id, metric)) if plan_id and metric else None
        if score is None and status == "ok":
            continue
        told = score if status == "ok" else None
        hole = {"status": "undefined", "error": told.undefined} if told and told.undefined else {}
        yield {
            **row,
            "metric": metric,
            "value": told.value if told and not hole else None,
            "stderr": told.stderr if told and not hole else None,
            "num_examples": score.documents if score else 0,
            "warnings_json": _warnings(variant["warnings_json"], score),
            **hole,
        }


def _warnings(own: str, score: Score | None) -> str:
    if score is None or not score.statuses:
        return own
    notes = [f"{count} samples have the status {what}" for what, count in score.statuses.items()]
    return canonical_json([*json.loads(own), *notes])


def _by_model(exams: dict[str, Exam]) -> dict[tuple[Any, ...], list[str]]:
    """Names of exams, sorted by task and name, by what of their keys a variant has to share."""
    found: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name in sorted(exams, key=lambda name: (next(iter(exams[name].units.values())).task, name)):
        kinds = {tuple(getattr(unit, k) for k in MODEL) for unit in exams[name].units.values()}
        if len(kinds) == 1:
            found[kinds.pop()].append(name)
    return found


def _result_rows(root: Path) -> list[dict[str, Any]]:
    asked = _read_asked(root)
    exams = _read_exams(root, asked)
    of_model = _by_model(exams)
    failures = read_failures(root)
    errors = dict(
        failures.loc[~failures["superseded"].astype(bool), ["key", "error"]].itertuples(index=False)
    )
    rows: list[dict[str, Any]] = []
    for variant in _ordered(variants_table(root).to_pylist()):
        before = len(rows)
        for name in of_model.get(tuple(variant[k] for k in MODEL), []):
            measured = variant["status"] == "ok" and variant["plan_id"] in exams[name].done
            if measured or asked.last_under(variant, name):
                rows.extend(_rows_of_pair(variant, name, exams[name], asked, errors))
        if len(rows) == before and variant["status"] != "ok":
            hole = {column: variant[column] for column in (*COPIED, "status", "error", "warnings_json")}
            rows.append({**hole, "run_id": asked.last(variant), "num_examples": 0})
    return rows


def _ordered(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = ("model", "method", "params_json", "calibration", "variant_key")
    return sorted(variants, key=lambda row: (row["budget_layers"], *(row[name] or "" for name in order)))


def derive_results(root: Path) -> pd.DataFrame:
    """Rebuild results/ and return it. At every moment exactly one file is there, whole.

    Raises:
        InputError: not a store, or a damaged file, named.
        ResourceError: the disk refused; the former results stay.
    """
    with store_lock(check_store(root)), uncollected():
        table = table_of(RESULTS, _result_rows(root))
        # Always under the one name: a reader that has listed the folder finds what it listed, old or new.
        (root / "results").mkdir(exist_ok=True)
        write_atomic(root / "results" / RESULTS_FILE, parquet_bytes(table))
    return table.to_pandas()
