"""Filling a mirror: every hub dataset that an experiment names, as Parquet with hashes.

What is there with the hash of the manifest is kept, so the same command resumes. A split is copied from the
experiment's own mirror where that has it, and else streamed from the hub; it appears whole or not at all.
"""

import os
import shutil
import uuid
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.config.experiment import Experiment
from prunebench.config.tasks import (
    ChoiceTask,
    EfficiencyTask,
    HarnessTask,
    PerplexityTask,
    ReasoningTask,
    RepresentationTask,
    Task,
)
from prunebench.core.fingerprint import Json
from prunebench.data.benchmarks import benchmark_named
from prunebench.data.hub import stream_split
from prunebench.data.manifest import Entry, check_file, entry_of, file_sha256, listed, record
from prunebench.data.mirror import has_split, shards_of
from prunebench.data.questions import source_in
from prunebench.data.recipes import recipe_named, recipe_spec
from prunebench.data.spec import CorpusSpec, parse_spec
from prunebench.errors import InputError, ResourceError
from prunebench.evaluation.harness.tasks import read_splits
from prunebench.store.append import TEMPORARY, store_lock, sync_folder

SHARD_ROWS = 250_000
"""Rows a file."""
_BATCH_ROWS = 1000
Origin: TypeAlias = Literal["kept", "copied", "downloaded"]
Parts: TypeAlias = list[tuple[Path, Path]]
"""Written files, and where they go below the mirror."""


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """One split of a hub dataset."""

    source: str
    """ORG/NAME or ORG/NAME/CONFIG."""
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A split that is in the mirror now."""

    split: Split
    files: tuple[str, ...]
    """Relative to the mirror."""
    rows: int
    first_rows: int | None
    """Set where only the first rows of the split are there."""
    origin: Origin

    def to_json(self) -> dict[str, Json]:
        """What --json prints of it."""
        return {
            "dataset": self.split.source,
            "split": self.split.name,
            "files": list(self.files),
            "rows": self.rows,
            "first_rows": self.first_rows,
            "origin": self.origin,
        }


def named_splits(experiment: Experiment) -> tuple[Split, ...]:
    """The splits that calibrations, probes and tasks read from a mirror or the hub, sorted, each once."""
    texts = [*experiment.calibrations.values(), *experiment.probes.values()]
    named = _named(parse_spec(text, experiment.base) for text in texts)
    return tuple(sorted(named.union(*(_splits_of(task, experiment) for task in experiment.tasks.values()))))


def prefetch(experiment: Experiment, out: Path, first_rows: int | None = None) -> Generator[Fetched]:
    """Bring every split that the experiment names into the folder `out`, one after the other.

    Args:
        experiment: a checked experiment file.
        out: the mirror to fill; may be the experiment's own.
        first_rows: download no more rows of a split than this; the manifest says so.

    Raises:
        InputError: a file that is not what a manifest says, or an unknown config or split.
        ResourceError: no library, network or space.
    """
    out = out.resolve()
    mirror = experiment.mirror_folder
    try:
        out.mkdir(parents=True, exist_ok=True)
        with store_lock(out):
            for left in out.glob(f"{TEMPORARY}*"):  # of a killed run: the lock says that nobody writes them
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            for split in named_splits(experiment):
                yield _bring(split, out, None if mirror == out else mirror, first_rows)
    except OSError as error:
        raise ResourceError(
            f"cannot write the mirror {out}: {error}. Whole splits are safe: run the same command to go on"
        ) from error


def _splits_of(task: Task, experiment: Experiment) -> set[Split]:
    match task:
        case HarnessTask():
            return {Split(source, split) for source, split in read_splits(task.task, task.shots)}
        case ReasoningTask():
            source = source_in(benchmark_named(task.benchmark), experiment.mirror_folder)
            return {Split(source.dataset, source.split)}
        case EfficiencyTask():
            return set()
        case PerplexityTask(recipe=str() as recipe):
            return _named([recipe_spec(recipe_named(recipe), mirrored=True)])
        case PerplexityTask() | ChoiceTask() | RepresentationTask():
            assert task.text is not None  # a perplexity task takes exactly one of text and recipe
            return _named([parse_spec(task.text, experiment.base)])


def _named(specs: Iterable[CorpusSpec]) -> set[Split]:
    return {Split(spec.source, spec.split) for spec in specs if spec.kind in ("mirror", "hub")}


def _bring(split: Split, out: Path, mirror: Path | None, first_rows: int | None) -> Fetched:
    if paths := _present(split, out, first_rows):
        for path in paths:
            check_file(out, path)
        known = listed(out)
        entries = [entry_of(path, path.relative_to(out), None, known) for path in paths]
        if any(entry["file"] not in known for entry in entries):
            record(out, entries)
        return _fetched(split, entries, "kept")
    stage = out / f"{TEMPORARY}{uuid.uuid4().hex}"
    stage.mkdir()
    try:
        if mirror is not None and has_split(mirror, split.source, split.name):
            parts = _copied(split, mirror, stage)
            entries = [entry_of(part, file, None, listed(mirror)) for part, file in parts]
            origin: Origin = "copied"
        else:
            parts = _downloaded(split, stage, first_rows)
            entries = [entry_of(part, file, first_rows, {}) for part, file in parts]
            if sum(entry["rows"] for entry in entries) < (first_rows or 0):
                entries = [{**entry, "first_rows": None} for entry in entries]  # the split has no more
            origin = "downloaded"
        _place(out, parts, entries)
    finally:
        shutil.rmtree(stage)
    return _fetched(split, entries, origin)


def _fetched(split: Split, entries: Sequence[Entry], origin: Origin) -> Fetched:
    return Fetched(
        split=split,
        files=tuple(entry["file"] for entry in entries),
        rows=sum(entry["rows"] for entry in entries),
        first_rows=entries[0]["first_rows"],
        origin=origin,
    )


def _present(split: Split, out: Path, first_rows: int | None) -> list[Path]:
    """The files of a split that is there, unless it has fewer rows than are wanted now."""
    if not has_split(out, split.source, split.name):
        return []
    try:
        paths = shards_of(f"dataset {split}", out, split.source, split.name)
    except InputError:  # some of its files are missing: it is fetched again as a whole
        return []
    entries = listed(out)
    limits = [entries.get(path.relative_to(out).as_posix(), {}).get("first_rows") for path in paths]
    enough = all(limit is None or (first_rows is not None and first_rows <= limit) for limit in limits)
    return paths if enough else []


def _copied(split: Split, mirror: Path, stage: Path) -> Parts:
    """The files of another mirror, byte for byte."""
    parts = []
    for source in shards_of(f"dataset {split}", mirror, split.source, split.name):
        digest = check_file(mirror, source)
        part = stage / source.name
        shutil.copyfile(source, part)
        if file_sha256(part) != digest:
            raise InputError(f"{source} changed while it was copied: run the same command again")
        parts.append((part, source.relative_to(mirror)))
    return parts


def _downloaded(split: Split, stage: Path, first_rows: int | None) -> Parts:
    rows = stream_split(f"dataset {split}", split.source, split.name)
    if first_rows is not None:
        rows = rows.take(first_rows)
    try:
        written = _write_parts(rows.with_format("arrow").iter(batch_size=_BATCH_ROWS), stage)
    except ConnectionError as error:
        raise ResourceError(
            f"dataset {split} broke off ({error}): run the same command to fetch it again"
        ) from error
    if not written:
        raise InputError(f"dataset {split} has no rows")
    organisation, name, *config = split.source.split("/")
    folder = Path(organisation, name, *(config or ["default"]))
    return [
        (part, folder / f"{split.name}-{number:05}-of-{len(written):05}.parquet")
        for number, part in enumerate(written)
    ]


def _write_parts(batches: Iterable[pa.Table], stage: Path) -> list[Path]:
    """Files of at most SHARD_ROWS rows (and a batch)."""
    parts: list[Path] = []
    writer: pq.ParquetWriter | None = None
    held = 0
    try:
        for batch in batches:
            if writer is None:
                parts.append(stage / f"{len(parts)}.parquet")
                writer, held = pq.ParquetWriter(parts[-1], batch.schema, compression="zstd"), 0
            writer.write_table(batch)
            held += batch.num_rows
            if held >= SHARD_ROWS:
                writer.close()
                writer = None
    finally:
        if writer is not None:
            writer.close()
    return parts


def _place(out: Path, parts: Parts, entries: Sequence[Entry]) -> None:
    """Make the files of a split appear. The manifest comes first: a file without it could pass for whole."""
    folder = out / parts[0][1].parent
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{entries[0]['split']}-?????-of-?????.parquet"):
        old.unlink()
    record(out, entries)
    for part, file in parts:
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(out / file)
    sync_folder(folder)
