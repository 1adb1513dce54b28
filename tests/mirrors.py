"""Writes small mirrors."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_split(
    mirror: Path, source: str, split: str, *shards: list[str], column: str = "text"
) -> list[Path]:
    """A split of one column of text: ORG/NAME/CONFIG/SPLIT-*.parquet."""
    paths = []
    for number, texts in enumerate(shards):
        path = mirror / source / f"{split}-{number:05}-of-{len(shards):05}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({column: pa.array(texts, pa.string())}), path)
        paths.append(path)
    return paths


def write_rows(mirror: Path, source: str, split: str, rows: list[dict]) -> Path:
    """A split of whole rows in one file, and the card by which the datasets library finds splits."""
    path = mirror / source / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    write_card(path.parent.parent)
    return path


def write_card(dataset: Path) -> None:
    """The card of a dataset's folder, with the configs and splits that are there."""
    lines = ["---", "configs:"]
    for config in sorted(path for path in dataset.iterdir() if path.is_dir()):
        lines += [f"- config_name: {config.name}", "  data_files:"]
        for split in sorted({path.name.rsplit("-", 3)[0] for path in config.glob("*.parquet")}):
            lines += [f"  - split: {split}", f"    path: {config.name}/{split}-*.parquet"]
    (dataset / "README.md").write_text("\n".join([*lines, "---", ""]))


def write_manifest(mirror: Path, **more) -> None:
    """A manifest of what is there, as another program might have written it."""
    entries = [
        {
            "file": path.relative_to(mirror).as_posix(),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            **more,
        }
        for path in sorted(mirror.rglob("*.parquet"))
    ]
    (mirror / "MANIFEST.json").write_text(json.dumps({"about": "theirs", "datasets": entries}))
