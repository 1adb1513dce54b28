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

import numpy as np
import pandas as pd

from prunebench.core.fingerprint import canonical_json
from prunebench.core.unit import Unit
from prunebench.store.aggregate import aggregate, standard_error, summary
from prunebench.store.append import parquet_bytes, store_lock, write_atomic
from prunebench.store.artifacts import exam_id, load_exam
from prunebench.store.layout import RESULTS_FILE, check_store
from prunebench.store.read import read_failures, run_lines, samples_table, variants_table
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


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one plan under one exam."""

    value: float
    stderr: float
    documents: int
    statuses: dict[str, int]
    """Samples whose status is not ok, by status."""
    undefined: str = ""
    """Why the plan has no such score, where none of its samples has weight: their statuses."""


@dataclass(slots=True)
class Exam:
    """One task as it was asked: its units under no plan in particular, and what was seen of it."""

    units: dict[tuple[int, int, str], Unit] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    done: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Unit ids with samples, by plan id."""
    scores: dict[tuple[str, str], Score] = field(default_factory=dict)
    """By plan id and metric."""

    def expect(self, unit: Unit) -> None:
        """Count the unit's range as part of the exam."""
        self.units[unit.start, unit.stop, unit.document_hash] = unit

    def done_by(self, plan_id: str | None) -> set[str]:
        """Ids of the plan's units that have samples."""
        return self.done.get(plan_id, set()) if plan_id else set()

    def missing(self, plan_id: str) -> list[str]:
        """Ids of the plan's units that have no samples."""
        expected = [unit.for_plan(plan_id).unit_id for unit in self.units.values()]
        return [unit_id for unit_id in expected if unit_id not in self.done_by(plan_id)]


@dataclass(slots=True)
class Asked:
    """What the runs say: who asked what, and how each unit came about."""

    pairs: dict[tuple[str, str], str] = field(default_factory=dict)
    """(variant key, exam id) -> the last run that asked."""
    variants: dict[str, str] = field(default_factory=dict)
    """Variant key -> the last run that asked."""
    exams: set[str] = field(default_factory=set)
    started: dict[str, str] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Unit id -> its last event, with the run's id."""


def _read_asked(root: Path, plan_of: Mapping[str, str | None]) -> Asked:
    """What the runs asked; a variant without a plan was asked every exam that any of its run was."""
    asked = Asked()
    for run_id, lines in run_lines(root):
        asked.started[run_id] = lines[0]["started_at"]
        variants = [line["variant_key"] for line in lines if line["event"] == "variant"]
        exams = {line["exam_id"]: line.get("plan_ids") for line in lines if line["event"] == "exam"}
        asked.exams.update(exams)
        asked.variants.update(dict.fromkeys(variants, run_id))
        asked.pairs.update(
            {
                (variant, exam): run_id
                for variant in variants
                for exam, plan_ids in exams.items()
                if plan_ids is None or (plan_of.get(variant) or plan_ids[0]) in plan_ids
            }
        )
        asked.units.update(
            {line["unit_id"]: {**line, "run_id": run_id} for line in lines if line["event"] == "unit"}
        )
    return asked


def _read_exams(root: Path, asked: Asked) -> dict[str, Exam]:
    exams: dict[str, Exam] = defaultdict(Exam)
    for name in asked.exams:
        for unit in load_exam(root, name):
            exams[name].expect(unit)
    samples = samples_table(root).select(
        ["unit_id", "unit_json", "doc_id", "metric", "value", "weight", "status"]
    )
    frame = samples.to_pandas()
    exam_of, plan_of = {}, {}
    for unit_id, unit_json in (
        frame[["unit_id", "unit_json"]].drop_duplicates("unit_id").itertuples(index=False)
    ):
        unit = Unit(**json.loads(unit_json))
        name = exam_id(unit)
        exam_of[unit_id], plan_of[unit_id] = name, unit.plan_id
        exams[name].expect(unit)
        exams[name].done[unit.plan_id].add(unit_id)
    frame["exam"], frame["plan"] = frame["unit_id"].map(exam_of), frame["unit_id"].map(plan_of)
    for (name, plan_id, metric), group in frame.groupby(["exam", "plan", "metric"], sort=False):
        exams[name].metrics.add(metric)
        exams[name].scores[plan_id, metric] = score_of(metric, group)
    return exams


def score_of(metric: str, samples: pd.DataFrame) -> Score:
    """The metric of one plan, from all samples of it that belong together."""
    # Not pandas' sum, which would skip a NaN.
    sums: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for document, value, weight in samples[["doc_id", "value", "weight"]].itertuples(index=False):
        sums[document] = (sums[document][0] + value, sums[document][1] + weight)
    values, weights = np.array(list(sums.values()), dtype=np.float64).T
    value, stderr = summary(metric, values, weights)
    odd = samples.loc[samples["status"] != "ok", "status"].value_counts().sort_index()
    statuses = {str(status): count for status, count in odd.items()}
    return Score(value, stderr, len(sums), statuses, "" if weights.any() else ", ".join(statuses))


def _rows_of_pair(
    variant: dict[str, Any], name: str, exam: Exam, asked: Asked, errors: dict[str, str]
) -> Iterator[dict]:
    """The rows of one variant under one exam, one a metric."""
    unit = next(iter(exam.units.values()))
    plan_id = variant["plan_id"] if variant["status"] == "ok" else None
    missing = exam.missing(plan_id) if plan_id else []
    done = exam.done_by(plan_id)
    events = [asked.units[u] for u in done if u in asked.units]
    last = max(events, key=lambda event: (event["at"], event["run_id"]), default=None)
    run_id = last["run_id"] if last else asked.pairs.get((variant["variant_key"], name))
    at = last["at"] if last else asked.started.get(run_id or "")
    status = variant["status"] if not plan_id else "incomplete" if missing else "ok"
    row = {
        **{column: variant[column] for column in COPIED},
        **{k: getattr(unit, k) for k in ("task", "task_version", "seed", "backend", "execution", "dtype")},
        **{"recipe": unit.recipe, "attention": unit.attention, "exam_id": name},
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
        notes = (
            [f"{count} samples have the status {what}" for what, count in score.statuses.items()]
            if score
            else []
        )
        told = score if status == "ok" else None
        hole = {"status": "undefined", "error": told.undefined} if told and told.undefined else {}
        yield {
            **row,
            "metric": metric,
            "value": told.value if told and not hole else None,
            "stderr": told.stderr if told and not hole else None,
            "num_examples": score.documents if score else 0,
            "warnings_json": canonical_json([*json.loads(variant["warnings_json"]), *notes]),
            **hole,
        }


def _result_rows(root: Path) -> list[dict[str, Any]]:
    variants = variants_table(root).to_pylist()
    asked = _read_asked(root, {variant["variant_key"]: variant["plan_id"] for variant in variants})
    exams = _read_exams(root, asked)
    failures = read_failures(root)
    errors = dict(
        failures.loc[~failures["superseded"].astype(bool), ["key", "error"]].itertuples(index=False)
    )
    rows: list[dict[str, Any]] = []
    for variant in variants:
        key = variant["variant_key"]
        before = len(rows)
        for name in sorted(exams):
            exam = exams[name]
            unit = next(iter(exam.units.values()))
            same_model = all(unit.to_json()[k] == variant[k] for k in ("weights_id", "dtype", "attention"))
            wanted = (key, name) in asked.pairs or (
                variant["status"] == "ok" and variant["plan_id"] in exam.done
            )
            if wanted and same_model:
                rows.extend(_rows_of_pair(variant, name, exam, asked, errors))
        if len(rows) == before and variant["status"] != "ok":
            hole = {column: variant[column] for column in (*COPIED, "status", "error", "warnings_json")}
            rows.append({**hole, "run_id": asked.variants.get(key), "num_examples": 0})
    order = ("model", "method", "params_json", "calibration", "variant_key", "task", "exam_id", "metric")
    rows.sort(key=lambda row: (row["budget_layers"], *(row.get(name) or "" for name in order)))
    return rows


def derive_results(root: Path) -> pd.DataFrame:
    """Rebuild results/ and return it. At every moment exactly one file is there, whole.

    Raises:
        InputError: not a store, or a damaged file, named.
        ResourceError: the disk refused; the former results stay.
    """
    with store_lock(check_store(root)):
        table = table_of(RESULTS, _result_rows(root))
        # Always under the one name: a reader that has listed the folder finds what it listed, old or new.
        (root / "results").mkdir(exist_ok=True)
        write_atomic(root / "results" / RESULTS_FILE, parquet_bytes(table))
    return table.to_pandas()
