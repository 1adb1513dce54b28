"""The table of a study's trials: derived from the study, and written anew by each run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prunebench.store.append import parquet_bytes, write_atomic
from prunebench.store.layout import file_key
from prunebench.store.schema import TRIALS, table_of


def save_trials(root: Path, study: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write trials/STUDY.parquet; rows have the columns of `schema.TRIALS` but for the study."""
    table = table_of(TRIALS, [{**row, "study": study} for row in rows])
    write_atomic(root / "trials" / f"{file_key(study)}.parquet", parquet_bytes(table))
