"""Merging parts: few large files in place of many small ones, without a moment at which a key is missing."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.store.append import parquet_bytes, sync_folder, write_atomic
from prunebench.store.keyed import PART, SUFFIX, KeyedTable, is_part
from prunebench.store.layout import content_name

ROWS_PER_PART = 1_000_000
BYTES_PER_PART = 1 << 30
MANY_PARTS: int = 32
"""So many small parts are merged without being asked to: a reader opens every one of them."""


def merge_parts(root: Path, kind: KeyedTable) -> tuple[int, int]:
    """Merge all parts of one table; the numbers of parts that are left and that there were.

    The caller holds the store's lock.

    Raises:
        InputError: a torn part, named.
        ResourceError: the disk refused; nothing is lost.
    """
    return _merge(root, kind, [path for path in kind.files(root) if is_part(path)])


def merge_small_parts(root: Path, kind: KeyedTable) -> None:
    """Merge the parts that are far from full where there are `MANY_PARTS`; raises as `merge_parts`."""
    small = [path for path in kind.files(root) if is_part(path) and _rows(path) < ROWS_PER_PART // 2]
    if len(small) >= MANY_PARTS:
        _merge(root, kind, small)


def _rows(path: Path) -> int:
    return pq.read_metadata(path).num_rows


def _merge(root: Path, kind: KeyedTable, parts: list[Path]) -> tuple[int, int]:
    kept = set()
    for table in _merged(kind, parts):
        if table.num_rows:
            data = parquet_bytes(table)
            path = root / kind.folder / f"{PART}{content_name(data)}{SUFFIX}"
            write_atomic(path, data)
            kept.add(path)
    for path in parts:
        if path not in kept:
            path.unlink()
    if parts:
        sync_folder(root / kind.folder)
    return len(kept), len(parts)


def _merged(kind: KeyedTable, parts: list[Path]) -> Iterator[pa.Table]:
    """The parts' keys once each, in tables of about ROWS_PER_PART rows, each sorted by key."""
    seen: set[str] = set()
    tables: list[pa.Table] = []
    for path in parts:
        tables.append(kind.read([path], seen))
        rows, size = sum(table.num_rows for table in tables), sum(table.nbytes for table in tables)
        if path == parts[-1] or rows >= ROWS_PER_PART or size >= BYTES_PER_PART:
            yield pa.concat_tables(tables).sort_by(kind.key)
            tables = []
