"""Results that other programs measured: kept apart, never part of results/, and the same file only once."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from prunebench.errors import ResourceError
from prunebench.store.append import parquet_bytes, write_atomic
from prunebench.store.keyed import read_parquet
from prunebench.store.layout import check_store, file_key
from prunebench.store.schema import EXTERNAL_RESULTS, EXTERNAL_SAMPLES, table_of

FOLDER = "external"
TABLES: Mapping[str, pa.Schema] = {"results": EXTERNAL_RESULTS, "samples": EXTERNAL_SAMPLES}
"""Beginning of the files' names -> what they hold."""


def save_external(
    root: Path, external_id: str, results: Iterable[Mapping[str, Any]], samples: Iterable[Mapping[str, Any]]
) -> bool:
    """Keep one file's rows; False when they were there already (a newer reading replaces them).

    Raises:
        InputError: not a store.
        ResourceError: the disk refused.
    """
    folder = check_store(root) / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ResourceError(f"cannot make the folder {folder}: {error.strerror}") from error
    path = folder / f"results-{file_key(external_id)}.parquet"
    known = path.exists()
    # The results are written last: without them nothing reads the samples.
    write_atomic(
        folder / f"samples-{external_id}.parquet", parquet_bytes(table_of(EXTERNAL_SAMPLES, samples))
    )
    write_atomic(path, parquet_bytes(table_of(EXTERNAL_RESULTS, results)))
    return not known


def external_table(root: Path, kind: str) -> pa.Table:
    """All external `results` or `samples`, in the order of file names.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    files = external_files(check_store(root), kind)
    schema = TABLES[kind]
    return pa.concat_tables([schema.empty_table(), *(read_parquet(path, schema) for path in files)])


def external_files(root: Path, kind: str) -> list[Path]:
    """The files of external `results` or `samples`, sorted."""
    return sorted((root / FOLDER).glob(f"{kind}-*.parquet"))
