"""Compaction: few large sample parts in place of many small files, and no temporary files of dead writers."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from prunebench.store.append import parquet_bytes, store_lock, sync_folder, temporaries, write_atomic
from prunebench.store.layout import check_store, content_name
from prunebench.store.ledger import Ledger
from prunebench.store.samples import PART, SUFFIX, is_part, read_units, sample_files

ROWS_PER_PART = 1_000_000
IDLE_SECONDS = 600.0
"""A commit takes milliseconds; a temporary file untouched for this long has no writer."""


def _merged(parts: list[Path]) -> Iterator[pa.Table]:
    """The parts' units once each, in tables of about ROWS_PER_PART rows, each sorted by unit."""
    seen: set[str] = set()
    tables: list[pa.Table] = []
    for path in parts:
        tables.append(read_units([path], seen))
        if path == parts[-1] or sum(table.num_rows for table in tables) >= ROWS_PER_PART:
            yield pa.concat_tables(tables).sort_by("unit_id")
            tables = []


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
    folder = root / "samples"
    with store_lock(root):
        parts = [path for path in sample_files(root) if is_part(path)]
        kept = set()
        for table in _merged(parts):
            if table.num_rows:
                data = parquet_bytes(table)
                path = folder / f"{PART}{content_name(data)}{SUFFIX}"
                write_atomic(path, data)
                kept.add(path)
        for path in parts:
            if path not in kept:
                path.unlink()
        sync_folder(folder)
        left = temporaries(root, idle_seconds=idle_seconds)
        for path in left:
            path.unlink(missing_ok=True)
    return (
        f"folded {folded} units, made {len(kept)} parts of {len(parts)}, removed {len(left)} temporary files"
    )
