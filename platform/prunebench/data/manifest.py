"""What a mirror's MANIFEST.json says: files with their sha256, rows and where they came from.

A file that is no longer what the manifest says is refused when it is read. Entries that other programs wrote,
with licences and sources, are kept as they are.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.errors import InputError
from prunebench.store.append import write_atomic

MANIFEST = "MANIFEST.json"
Entry: TypeAlias = dict[str, Any]
"""At least `file`, relative to the mirror, and `sha256`; ours also hold `hub_id`, `config`, `split`, `rows`,
`columns`, `bytes` and `first_rows` (null for a whole split)."""
_LAYOUT = "ORG/NAME/CONFIG/SPLIT-00000-of-0000N.parquet"
_CARD_MARK = "Written by `prunebench prefetch`"


def read_manifest(mirror: Path) -> dict[str, Any]:
    """The mirror's MANIFEST.json with its list `datasets`; an empty one where there is none.

    Raises:
        InputError: it is no manifest of a mirror.
    """
    path = mirror / MANIFEST
    if not path.is_file():
        return {"datasets": []}
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    entries = manifest.get("datasets") if isinstance(manifest, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get(key), str)
        for entry in entries
        for key in ("file", "sha256")
    ):
        raise InputError(f"{path} is no manifest of a mirror: it has no list 'datasets' of file and sha256")
    return manifest


def listed(mirror: Path) -> dict[str, Entry]:
    """The manifest's entries by file, relative to the mirror."""
    return {entry["file"]: entry for entry in read_manifest(mirror)["datasets"]}


def check_file(mirror: Path, path: Path) -> str:
    """The sha256 of a file, compared with the manifest where it is listed.

    Raises:
        InputError: the file is not what the manifest says.
    """
    digest = file_sha256(path)
    entry = listed(mirror).get(path.relative_to(mirror).as_posix())
    if entry is not None and entry["sha256"] != digest:
        raise InputError(
            f"{path} has sha256 {digest[:16]}, but {mirror / MANIFEST} says {entry['sha256'][:16]}: it was "
            f"changed or damaged; delete it and fetch it again: prunebench prefetch CONFIG --out {mirror}"
        )
    return digest


def file_sha256(path: Path) -> str:
    """64 hex digits; a file is read again only after it changed."""
    state = path.stat()
    return _sha256(path, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _sha256(path: Path, _size: int, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entry_of(path: Path, place: Path, first_rows: int | None, given: Mapping[str, Entry]) -> Entry:
    """The entry of a Parquet file, with whatever `given` holds for it.

    Args:
        path: the file.
        place: where it belongs below the mirror.
        first_rows: how many rows of the split there are, where there are not all.
        given: entries by file that it may have from another manifest.

    Raises:
        InputError: the file is no Parquet file.
    """
    file = place.as_posix()
    organisation, name, config, _ = place.parts
    try:
        data = pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise InputError(f"{path} is no readable Parquet file: {error}") from error
    return {
        "hub_id": f"{organisation}/{name}",
        "config": config,
        "split": place.name.rsplit("-", 3)[0],
        "columns": {field.name: str(field.type) for field in data.schema_arrow},
        "first_rows": first_rows,
        **given.get(file, {}),
        "file": file,
        "rows": data.metadata.num_rows,
        "bytes": path.stat().st_size,
        "sha256": file_sha256(path),
    }


def record(mirror: Path, entries: Sequence[Entry]) -> None:
    """Put a split's entries into the manifest, in place of older ones, and tell the dataset's card."""
    manifest = read_manifest(mirror)
    ours = {_split_of(entry) for entry in entries}
    others = [
        entry
        for entry in manifest["datasets"]
        if not (_split_of(entry) in ours and entry["file"].endswith(".parquet"))
    ]
    datasets = sorted([*others, *entries], key=lambda entry: entry["file"])
    text = json.dumps({"layout": _LAYOUT, **manifest, "datasets": datasets}, indent=1, ensure_ascii=False)
    write_atomic(mirror / MANIFEST, (text + "\n").encode())
    _write_card(mirror, entries[0]["hub_id"], datasets)


def _split_of(entry: Entry) -> tuple[str, ...]:
    return tuple(str(entry.get(key)) for key in ("hub_id", "config", "split"))


def _write_card(mirror: Path, hub_id: str, datasets: Sequence[Entry]) -> None:
    """What `datasets.load_dataset(folder, config)` needs to find configs and splits; others' cards stay."""
    card = mirror / hub_id / "README.md"
    if card.is_file() and _CARD_MARK not in card.read_text(encoding="utf-8"):
        return
    configs: dict[str, set[str]] = {}
    for entry in datasets:
        if entry.get("hub_id") == hub_id and entry["file"].endswith(".parquet"):
            configs.setdefault(entry["config"], set()).add(entry["split"])
    lines = ["---", "configs:"]
    for config, splits in sorted(configs.items()):
        lines += [f"- config_name: {json.dumps(config)}", "  data_files:"]
        for split in sorted(splits):
            lines += [f"  - split: {split}", f"    path: {json.dumps(f'{config}/{split}-*.parquet')}"]
    write_atomic(card, "\n".join([*lines, "---", "", f"{_CARD_MARK}.", ""]).encode())
