"""Results, derived from samples, variants, exams and runs: never the truth, and always to be rebuilt.

A row is one variant under one exam (task, recipe, seed, execution key) and metric. Rows are made for every
variant that a run asked an exam of, and for whatever has samples: what is missing shows as a hole.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from prunebench.core.collector import uncollected
from prunebench.core.fingerprint import canonical_json
from prunebench.store.aggregate import aggregate, standard_error
from prunebench.store.append import parquet_bytes, store_lock, write_atomic
from prunebench.store.artifacts import load_exam
from prunebench.store.asked import Asked, read_asked
from prunebench.store.exams import STATED, Exam, Score, add_scores
from prunebench.store.layout import RESULTS_FILE, check_store
from prunebench.store.read import read_failures, variants_table
from prunebench.store.run_events import times_of
from prunebench.store.schema import RESULTS, SCHEMA_VERSION

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


class Row(NamedTuple):
    """What a result has of its own; the rest is its variant's and its exam's."""

    variant_key: str
    status: str
    error: str | None
    warnings_json: str
    run_id: str | None
    exam_id: str | None = None
    metric: str | None = None
    value: float | None = None
    stderr: float | None = None
    num_examples: int = 0
    wall_seconds: float | None = None
    created_at: str | None = None
    """ISO time in UTC."""
    units_done: int | None = None
    units_total: int | None = None


def _read_exams(root: Path, asked: Asked) -> dict[str, Exam]:
    exams: dict[str, Exam] = defaultdict(Exam)
    for name in asked.runs_of_exam:
        for unit in load_exam(root, name):
            exams[name].expect(unit)
    add_scores(root, exams)
    return exams


def _rows_of_pair(
    variant: dict[str, Any], name: str, exam: Exam, asked: Asked, errors: dict[str, str]
) -> Iterator[Row]:
    """The rows of one variant under one exam, one a metric."""
    plan_id = variant["plan_id"] if variant["status"] == "ok" else None
    missing = exam.missing(plan_id) if plan_id else []
    done = exam.done_by(plan_id)
    events = [asked.units[u] for u in done.values() if u in asked.units]
    last = max(events, default=None)
    run_id = last.run_id if last else asked.last_under(variant, name)
    row = Row(
        variant_key=variant["variant_key"],
        exam_id=name,
        run_id=run_id,
        wall_seconds=sum(event.seconds for event in events) if events else None,
        created_at=last.at if last else asked.started.get(run_id or ""),
        status=variant["status"] if not plan_id else "incomplete" if missing else "ok",
        error=variant["error"] or next((errors[u] for u in missing if u in errors), None),
        units_done=len(done),
        units_total=len(exam.units),
        warnings_json=variant["warnings_json"],
    )
    for metric in sorted(exam.metrics) or [None]:
        score = exam.scores.get((plan_id, metric)) if plan_id and metric else None
        if score is None:
            if row.status != "ok":
                yield row._replace(metric=metric)
            continue
        scored = row._replace(
            metric=metric, num_examples=score.documents, warnings_json=_warnings(row.warnings_json, score)
        )
        if row.status != "ok":
            yield scored
        elif score.undefined:
            yield scored._replace(status="undefined", error=score.undefined)
        else:
            yield scored._replace(value=score.value, stderr=score.stderr)


def _warnings(own: str, score: Score) -> str:
    if not score.statuses:
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


def _results(root: Path) -> pa.Table:
    """All results, of `schema.RESULTS`."""
    asked = read_asked(root)
    exams = _read_exams(root, asked)
    of_model = _by_model(exams)
    failures = read_failures(root)
    errors = dict(
        failures.loc[~failures["superseded"].astype(bool), ["key", "error"]].itertuples(index=False)
    )
    variants = variants_table(root)
    rows: list[Row] = []
    for variant in _ordered(variants.to_pylist()):
        before = len(rows)
        for name in of_model.get(tuple(variant[k] for k in MODEL), []):
            measured = variant["status"] == "ok" and variant["plan_id"] in exams[name].done
            if measured or asked.last_under(variant, name):
                rows.extend(_rows_of_pair(variant, name, exams[name], asked, errors))
        if len(rows) == before and variant["status"] != "ok":
            own = {name: variant[name] for name in ("variant_key", "status", "error", "warnings_json")}
            rows.append(Row(**own, run_id=asked.last(variant)))
    return _joined(rows, variants, exams)


def _joined(rows: Sequence[Row], variants: pa.Table, exams: Mapping[str, Exam]) -> pa.Table:
    """The rows with what they have from their variants and exams."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(Row._fields)
    fields = [RESULTS.field(name) for name in Row._fields if name != "created_at"]
    own = pa.table(
        dict(zip(Row._fields, columns, strict=True)), pa.schema([*fields, ("created_at", pa.string())])
    )
    stated = pa.Table.from_pylist(
        [{"exam_id": name, **exam.stated} for name, exam in exams.items()],
        pa.schema([RESULTS.field(name) for name in ("exam_id", *STATED)]),
    )
    found = {name: own[name] for name in own.column_names}
    for table, names, key in ((variants, COPIED, "variant_key"), (stated, STATED, "exam_id")):
        known = pc.SetLookupOptions(table[key].combine_chunks())
        place = pc.call_function("index_in", [own[key]], known)
        found |= {name: table[name].combine_chunks().take(place) for name in names}
    found["created_at"] = pa.array(times_of(own["created_at"].to_pylist()), RESULTS.field("created_at").type)
    found["schema_version"] = pa.repeat(SCHEMA_VERSION, own.num_rows)
    return pa.table({name: found[name] for name in RESULTS.names}).cast(RESULTS)


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
        table = _results(root)
        # Always under the one name: a reader that has listed the folder finds what it listed, old or new.
        (root / "results").mkdir(exist_ok=True)
        write_atomic(root / "results" / RESULTS_FILE, parquet_bytes(table))
    return table.to_pandas()
