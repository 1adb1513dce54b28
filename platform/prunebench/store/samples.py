"""Samples: the truth of the store. A unit is done when its rows are there."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from prunebench.core.fingerprint import canonical_json
from prunebench.core.unit import Unit, UnitDone
from prunebench.store.artifacts import exam_id
from prunebench.store.keyed import KeyedTable
from prunebench.store.schema import SAMPLES, SCHEMA_VERSION

OF_A_UNIT = ("weights_id", "plan_id", "task", "task_version", "seed")
SAMPLE_TABLE = KeyedTable("samples", SAMPLES, "unit_id")


def place_of(unit: Unit) -> dict[str, str | int]:
    """Which exam a unit belongs to, and its range of documents."""
    return {
        "exam_id": exam_id(unit),
        "start": unit.start,
        "stop": unit.stop,
        "document_hash": unit.document_hash,
    }


def unit_table(done: UnitDone) -> pa.Table:
    """The samples of one unit, in the order of evaluation."""
    unit, samples, rows = done.unit, done.samples, len(done.samples)
    columns = {
        "schema_version": [SCHEMA_VERSION] * rows,
        "unit_id": [unit.unit_id] * rows,
        **{name: [value] * rows for name, value in place_of(unit).items()},
        **{name: [getattr(unit, name)] * rows for name in OF_A_UNIT},
        "doc_id": [sample.doc_id for sample in samples],
        "doc_hash": [sample.doc_hash for sample in samples],
        "metric": [sample.metric for sample in samples],
        "value": [float(sample.value) for sample in samples],
        "weight": [float(sample.weight) for sample in samples],
        "detail_json": [sample.detail for sample in samples],
        "status": [sample.status for sample in samples],
        "unit_json": [canonical_json(unit.to_json())] * rows,
    }
    return pa.Table.from_pydict(columns, schema=SAMPLES)


def samples_table(root: Path, plan_ids: Collection[str] | None = None) -> pa.Table:
    """Every sample of the store (of some plans) once, sorted by unit, document and metric.

    Raises:
        InputError: a torn file, named.
    """
    table = SAMPLE_TABLE.rows(root)
    if plan_ids is not None:
        table = table.filter(pc.field("plan_id").isin(sorted(plan_ids)))
    return table.sort_by([(name, "ascending") for name in ("unit_id", "doc_id", "metric")])
