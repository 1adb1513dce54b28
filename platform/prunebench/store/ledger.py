"""The ledger: which units are done. Commits are atomic and idempotent; any number of drivers share them.

A unit is done when a file in samples/ holds it: its own `UNIT_ID.parquet`, or a part into which finished
units were folded. What a model wrote for a unit is kept in generations/ in the same way, before its samples.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from prunebench.core.unit import Generated, UnitDone
from prunebench.store.append import store_lock, write_atomic
from prunebench.store.generations import GENERATION_TABLE, generation_table
from prunebench.store.keyed import KeyedWriter
from prunebench.store.layout import file_key, open_store
from prunebench.store.merge import merge_small_parts
from prunebench.store.samples import SAMPLE_TABLE, unit_table

FOLD_EVERY: int = 1_000


class Ledger:
    """The units of one store, seen by one driver. Closing it folds the files of single units."""

    def __init__(self, root: Path) -> None:
        """Open the store at `root`, creating it where there is nothing.

        Raises:
            InputError: not a store, a newer one, or one with a torn part.
        """
        self.root = open_store(root)
        self._samples = KeyedWriter(self.root, SAMPLE_TABLE)
        self._generations = KeyedWriter(self.root, GENERATION_TABLE)
        self._commits = 0

    def __enter__(self) -> "Ledger":
        """Return the ledger itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the ledger."""
        self.close()

    def present(self) -> set[str]:
        """The ids of the units that are done, by any driver so far."""
        return self._samples.present()

    def written(self) -> set[str]:
        """The ids of the generations that are there, scored or not, by any driver so far."""
        return self._generations.present()

    def commit(self, done: UnitDone) -> bool:
        """Record the samples of a unit; False when they were there already.

        Raises:
            ResourceError: the disk refused; the unit is then not present.
            ValueError: a unit without samples, which nothing could show to be done.
        """
        if not done.samples:
            raise ValueError(f"the unit {done.unit.unit_id} has no samples")
        return self._counted(self._samples.commit(done.unit.unit_id, unit_table(done)))

    def keep(self, written: Generated) -> bool:
        """Record what was written for a unit; False when it was there already.

        Raises:
            ResourceError: the disk refused; the text is then not there.
        """
        return self._counted(self._generations.commit(written.unit.generation_id, generation_table(written)))

    def _counted(self, new: bool) -> bool:
        self._commits += new
        if new and self._commits % FOLD_EVERY == 0:
            self.fold(wait=False)
        return new

    def fold(self, *, wait: bool = True) -> int:
        """Move the files of single units into parts, merge many small parts, and return how many units moved.

        Without `wait`, return 0 while another driver folds.
        """
        with store_lock(self.root, wait=wait) as locked:
            if not locked:
                return 0
            self._generations.fold()
            folded = self._samples.fold()
            for kind in (GENERATION_TABLE, SAMPLE_TABLE):
                merge_small_parts(self.root, kind)
            return folded

    def attempts(self, key: str) -> int:
        """The highest recorded failed attempt of a unit or item, 0 when there is none."""
        file = re.compile(rf"{re.escape(file_key(key))}\.(\d+)\.json")
        names = (path.name for path in (self.root / "failures").iterdir())
        numbers = [match[1] for name in names if (match := file.fullmatch(name))]
        return max((int(number) for number in numbers), default=0)

    def fail(self, key: str, error: str, traceback: str, attempt: int) -> None:
        """Record that an attempt at a unit or item failed: shown, never present, and tried again next time.

        The record stays as history: readers call it superseded once the unit or item has its result.
        """
        record = {
            "key": key,
            "attempt": attempt,
            "error": error,
            "traceback": traceback,
            "failed_at": datetime.now(UTC).isoformat(),
        }
        path = self.root / "failures" / f"{file_key(key)}.{attempt}.json"
        write_atomic(path, json.dumps(record, indent=1, ensure_ascii=False).encode())

    def close(self) -> None:
        """Fold what is finished."""
        self.fold()
