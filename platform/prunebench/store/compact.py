"""Compaction: few large parts in place of many small files, and no temporary files of dead writers."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from prunebench.store.append import parquet_bytes, store_lock, sync_folder, temporaries, write_atomic
from prunebench.store.generations import GENERATION_TABLE
from prunebench.store.keyed import PART, SUFFIX, KeyedTable, is_part
from prunebench.store.layout import check_store, content_name
from prunebench.store.ledger import Ledger
from prunebench.store.samples import SAMPLE_TABLE

ROWS_PER_PART = 1_000_000
BYTES_PER_PART = 1 << 30
IDLE_SECONDS = 600.0
"""A commit takes milliseconds; a temporary file untouched for this long has no writer."""


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


def _compact(root: Path, kind: KeyedTable) -> tuple[int, int]:
    """Merge the parts of one table; the numbers of parts that are left and that there were."""
    parts = [path for path in kind.files(root) if is_part(path)]
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


def compact(root: Path, *, idle_seconds: float = IDLE_SECONDS) -> str:
    """Fold, merge the parts, drop units held twice, and remove temporary files that were left behind.

    A crash at any point leaves a store that reads the same.

    Returns:
        One sentence about what was done.

    Raises:
        InputError: not a store, or a torn file, named.
        ResourceError: the disk refused, or another process holds the lock.
    """
    folded = Ledger(check_store(root)).fold()
    with store_lock(root):
        counts = [_compact(root, kind) for kind in (SAMPLE_TABLE, GENERATION_TABLE)]
        left = temporaries(root, idle_seconds=idle_seconds)
        for path in left:
            path.unlink(missing_ok=True)
    kept, parts = (sum(column) for column in zip(*counts, strict=True))
    return f"folded {folded} units, made {kept} parts of {parts}, removed {len(left)} temporary files"
