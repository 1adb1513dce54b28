"""The store's tables, as pinned Arrow schemas. A change of any of them is a new SCHEMA_VERSION."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 2


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("schema_version", pa.int32()), *columns.items()])


SAMPLES = _schema(
    unit_id=pa.string(),
    weights_id=pa.string(),
    plan_id=pa.string(),
    task=pa.string(),
    task_version=pa.string(),
    exam_id=pa.string(),
    start=pa.int64(),
    stop=pa.int64(),
    document_hash=pa.string(),
    doc_id=pa.int64(),
    doc_hash=pa.string(),
    seed=pa.int64(),
    metric=pa.string(),
    value=pa.float64(),
    weight=pa.float64(),
    detail_json=pa.string(),
    status=pa.string(),
    unit_json=pa.string(),
)
"""One metric of one document. `unit_json` is the unit's whole key: results derive from samples alone.

`exam_id` and the range of documents, new in version 2, repeat what it says: to parse it unit by unit took a
fifth of the time of a large report.
"""

GENERATIONS = _schema(
    generation_id=pa.string(),
    weights_id=pa.string(),
    plan_id=pa.string(),
    task=pa.string(),
    task_version=pa.string(),
    doc_id=pa.int64(),
    seed=pa.int64(),
    prompt_hash=pa.string(),
    text=pa.string(),
    num_prompt_tokens=pa.int64(),
    num_tokens=pa.int64(),
    finish_reason=pa.string(),
    unit_json=pa.string(),
)
"""What a model wrote after one prompt under one seed. `unit_json` is the unit's key without its scorer."""

VARIANTS = _schema(
    variant_key=pa.string(),
    model=pa.string(),
    weights_id=pa.string(),
    dtype=pa.string(),
    attention=pa.string(),
    method=pa.string(),
    params_json=pa.string(),
    chosen_json=pa.string(),
    budget=pa.string(),
    budget_layers=pa.int64(),
    num_layers=pa.int64(),
    projection_params=pa.int64(),
    calibration=pa.string(),
    calibration_id=pa.string(),
    plan_id=pa.string(),
    removed_layers=pa.list_(pa.int64()),
    removed_params=pa.int64(),
    total_params=pa.int64(),
    warnings_json=pa.string(),
    seconds=pa.float64(),
    peak_rss_mb=pa.float64(),
    status=pa.string(),
    error=pa.string(),
    dense=pa.bool_(),
)
"""What was asked of a method, and the plan it gave or why there is none."""

RESULTS = _schema(
    run_id=pa.string(),
    model=pa.string(),
    weights_id=pa.string(),
    method=pa.string(),
    params_json=pa.string(),
    budget_layers=pa.int64(),
    num_layers=pa.int64(),
    plan_id=pa.string(),
    removed_params=pa.int64(),
    task=pa.string(),
    task_version=pa.string(),
    metric=pa.string(),
    value=pa.float64(),
    stderr=pa.float64(),
    num_examples=pa.int64(),
    seed=pa.int64(),
    backend=pa.string(),
    execution=pa.string(),
    dtype=pa.string(),
    calibration_id=pa.string(),
    wall_seconds=pa.float64(),
    status=pa.string(),
    error=pa.string(),
    created_at=pa.timestamp("us", tz="UTC"),
    total_params=pa.int64(),
    chosen_json=pa.string(),
    warnings_json=pa.string(),
    recipe=pa.string(),
    attention=pa.string(),
    calibration=pa.string(),
    budget=pa.string(),
    exam_id=pa.string(),
    variant_key=pa.string(),
    units_done=pa.int64(),
    units_total=pa.int64(),
)
"""Derived: one row per variant x task x metric x seed x execution key.

Rows of equal `exam_id` are comparable: they differ in nothing but the plan. `value` is null unless status
is ok.
"""


TRIALS = _schema(
    study=pa.string(),
    trial=pa.int64(),
    state=pa.string(),
    method=pa.string(),
    params_json=pa.string(),
    value=pa.float64(),
    plan_id=pa.string(),
    variant_key=pa.string(),
    error=pa.string(),
)
"""Derived from a study, which is the truth: its settings in the order in which they were asked. `value` is
the first objective's."""

TRIAL_VALUES = _schema(study=pa.string(), trial=pa.int64(), objective=pa.string(), value=pa.float64())
"""Derived as TRIALS: every objective of every setting that has values."""


EXTERNAL_RESULTS = _schema(
    external_id=pa.string(),
    source=pa.string(),
    name=pa.string(),
    model_args=pa.string(),
    harness=pa.string(),
    harness_version=pa.string(),
    task=pa.string(),
    task_version=pa.string(),
    shots=pa.int64(),
    metric=pa.string(),
    filter=pa.string(),
    value=pa.float64(),
    stderr=pa.float64(),
    num_examples=pa.int64(),
    higher_is_better=pa.bool_(),
    config_json=pa.string(),
    evaluated_at=pa.timestamp("us", tz="UTC"),
)
"""What another program reported: one metric of one task. `external_id` is of the file that it was read of."""

EXTERNAL_SAMPLES = _schema(
    external_id=pa.string(),
    task=pa.string(),
    filter=pa.string(),
    metric=pa.string(),
    doc_id=pa.int64(),
    doc_hash=pa.string(),
    value=pa.float64(),
    weight=pa.float64(),
)
"""Its scores document by document. `doc_hash` is made as that of our own documents of lm-eval tasks."""


def table_of(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of `schema`; schema_version is filled in."""
    return pa.Table.from_pylist([{"schema_version": SCHEMA_VERSION, **row} for row in rows], schema=schema)
