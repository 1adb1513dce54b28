"""The samples as statistics read them: few columns, and texts that repeat kept once."""

from pathlib import Path

import pyarrow as pa

from prunebench.store.layout import check_store
from prunebench.store.samples import read_units, retry_when_folded, sample_files

_REPEATED = pa.dictionary(pa.int32(), pa.string())
SCORES = pa.schema(
    [
        ("unit_id", pa.string()),
        ("doc_id", pa.int64()),
        ("doc_hash", _REPEATED),
        ("metric", _REPEATED),
        ("value", pa.float64()),
        ("weight", pa.float64()),
        ("unit_json", _REPEATED),
    ]
)
"""Columns of `schema.SAMPLES`. Of a million samples the texts alone would take more than a gigabyte."""


def scores_table(root: Path) -> pa.Table:
    """Every sample of the store once, in no particular order.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    files = check_store(root)
    table = retry_when_folded(lambda: read_units(sample_files(files), set(), schema=SCORES))
    return table.unify_dictionaries().combine_chunks()
