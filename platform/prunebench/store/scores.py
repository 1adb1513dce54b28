"""The samples as statistics read them: few columns, and texts that repeat kept once."""

from pathlib import Path

import pyarrow as pa

from prunebench.store.keyed import KeyedTable
from prunebench.store.layout import check_store

_REPEATED = pa.dictionary(pa.int32(), pa.string())
SCORES = pa.schema(
    [
        ("unit_id", _REPEATED),
        ("exam_id", _REPEATED),
        ("plan_id", _REPEATED),
        ("seed", pa.int64()),
        ("doc_id", pa.int64()),
        ("doc_hash", _REPEATED),
        ("metric", _REPEATED),
        ("value", pa.float64()),
        ("weight", pa.float64()),
    ]
)
"""Columns of `schema.SAMPLES`. Of a million samples the texts alone would take more than a gigabyte."""

SCORE_TABLE = KeyedTable("samples", SCORES, "unit_id")


def scores_table(root: Path) -> pa.Table:
    """Every sample of the store once, in no particular order.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    table = SCORE_TABLE.rows(check_store(root))
    return table.unify_dictionaries().combine_chunks()
