"""Migration: a store of schema version 1 becomes one of version 2, in place, file by file.

Each file is replaced at once, and `store.json` last, so the same command goes on where a crash stopped it.
Until then the store counts as one of version 1.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.core.unit import Unit
from prunebench.errors import InputError
from prunebench.store.append import MEND, parquet_bytes, store_lock, sync_folder, write_atomic
from prunebench.store.keyed import PART, SUFFIX, is_part
from prunebench.store.layout import HEADER, content_name, header, stated_version
from prunebench.store.samples import place_of
from prunebench.store.schema import SAMPLES, SCHEMA_VERSION

FOLDERS = ("samples", "generations", "variants", "results", "trials", "external")
"""Those that hold Parquet files."""


def migrate(root: Path) -> str:
    """Bring a store to this program's schema version; one that has it is left alone.

    Returns:
        One sentence about what was done.

    Raises:
        InputError: not a store, one of a newer program, or a torn file, named; nothing is lost.
        ResourceError: the disk refused.
    """
    version = stated_version(root)
    if version == SCHEMA_VERSION:
        return f"{root} has schema version {SCHEMA_VERSION} already"
    if version != SCHEMA_VERSION - 1:
        raise InputError(
            f"the store {root} has schema version {version!r}; this program migrates version "
            f"{SCHEMA_VERSION - 1} to {SCHEMA_VERSION}: use the prunebench that wrote it or a newer one"
        )
    with store_lock(root):
        files = [path for folder in FOLDERS for path in sorted((root / folder).glob(f"[!.]*{SUFFIX}"))]
        for path in files:
            _upgrade(path, _with_exams if path.parent.name == "samples" else _restated)
        write_atomic(root / HEADER, header())
    return f"brought {len(files)} files of {root} from schema version {version} to {SCHEMA_VERSION}"


def _upgrade(path: Path, upgraded: Callable[[pa.Table], pa.Table]) -> None:
    """Replace one file; one that a killed migration replaced before is left as it is."""
    try:
        table = pq.read_table(path, partitioning=None)
        if table["schema_version"].to_pylist()[:1] == [SCHEMA_VERSION]:
            return
        data = parquet_bytes(upgraded(table))
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({str(error).partition(chr(10))[0]}): {MEND}") from error
    if not is_part(path):
        write_atomic(path, data)
        return
    # A part is named by its content; until the old one is deleted readers take each unit once.
    write_atomic(path.with_name(f"{PART}{content_name(data)}{SUFFIX}"), data)
    path.unlink()
    sync_folder(path.parent)


def _restated(table: pa.Table) -> pa.Table:
    """The same rows under the new version."""
    versions = pa.array([SCHEMA_VERSION] * table.num_rows, pa.int32())
    return table.set_column(table.schema.get_field_index("schema_version"), "schema_version", versions)


def _with_exams(table: pa.Table) -> pa.Table:
    """Samples with the exam and the range of documents that their unit's key states."""
    keys = table["unit_json"].combine_chunks().dictionary_encode()
    places = [place_of(Unit(**json.loads(text))) for text in keys.dictionary.to_pylist()]
    for name in ("exam_id", "start", "stop", "document_hash"):
        own = pa.array([place[name] for place in places], SAMPLES.field(name).type)
        table = table.append_column(name, own.take(keys.indices))
    return _restated(table).select(SAMPLES.names).cast(SAMPLES)
