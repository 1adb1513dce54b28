"""Compaction: few large parts in place of many small files, and no temporary files of dead writers."""

from pathlib import Path

from prunebench.store.append import store_lock, temporaries
from prunebench.store.generations import GENERATION_TABLE
from prunebench.store.layout import check_store
from prunebench.store.ledger import Ledger
from prunebench.store.merge import merge_parts
from prunebench.store.samples import SAMPLE_TABLE

IDLE_SECONDS = 600.0
"""A commit takes milliseconds; a temporary file untouched for this long has no writer."""


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
        counts = [merge_parts(root, kind) for kind in (SAMPLE_TABLE, GENERATION_TABLE)]
        left = temporaries(root, idle_seconds=idle_seconds)
        for path in left:
            path.unlink(missing_ok=True)
    kept, parts = (sum(column) for column in zip(*counts, strict=True))
    return f"folded {folded} units, made {kept} parts of {parts}, removed {len(left)} temporary files"
