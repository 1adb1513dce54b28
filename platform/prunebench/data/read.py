"""The documents behind a SPEC, one at a time: text files, JSON lines, Parquet mirrors, the hub, built-in
text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.data.hub import stream_split
from prunebench.data.manifest import check_file
from prunebench.data.mirror import has_split, shards_of
from prunebench.data.pydoc import pydoc_texts
from prunebench.data.spec import CorpusSpec, nearest
from prunebench.errors import InputError


def read_documents(spec: CorpusSpec, mirror: Path | None) -> Iterator[str]:
    """The documents of a `text`, `jsonl`, `mirror`, `hub` or `builtin` SPEC, in their order.

    Raises:
        InputError: a file, column or split that is missing or broken.
        ResourceError: a hub dataset that cannot be fetched here.
    """
    match spec.kind:
        case "text":
            yield read_text(spec, Path(spec.source))
        case "jsonl":
            yield from _json_column(spec)
        case "mirror":
            yield from _mirror_column(spec, mirror)
        case "hub":
            yield from _hub_column(spec, mirror)
        case "builtin":
            yield from _builtin(spec)
        case _:
            raise InputError(f"SPEC '{spec.text}': {spec.kind} holds no documents of text")


def read_text(spec: CorpusSpec, path: Path) -> str:
    """A UTF-8 file whole; a byte order mark is dropped."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"SPEC '{spec.text}': there is no file {path}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"SPEC '{spec.text}': {path} is not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        raise InputError(f"SPEC '{spec.text}': {path} cannot be read: {error}") from error


def read_json_lines(spec: CorpusSpec) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON lines file with their line numbers, from 1; empty lines are skipped."""
    # str.splitlines would also break at U+2028, which JSON strings may hold unescaped
    for number, line in enumerate(read_text(spec, Path(spec.source)).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"SPEC '{spec.text}': line {number} is not JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"SPEC '{spec.text}': line {number} is not readable JSON: {error}") from error
        if not isinstance(value, dict):
            raise InputError(f"SPEC '{spec.text}': line {number} is not a JSON object")
        yield number, value


def _json_column(spec: CorpusSpec) -> Iterator[str]:
    for number, row in read_json_lines(spec):
        if spec.column not in row:
            columns = nearest(spec.column, row)
            raise InputError(f"SPEC '{spec.text}': line {number} has no column '{spec.column}': {columns}")
        yield as_text(spec, row[spec.column], spec.column, f"line {number}")


def as_text(spec: CorpusSpec, value: object, column: str, where: str) -> str:
    """`value` if it is text that UTF-8 can write."""
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise InputError(f"SPEC '{spec.text}': column '{column}' of {where} is {kind}, not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"SPEC '{spec.text}': column '{column}' of {where} holds half a surrogate pair"
        ) from error
    return value


def _mirror_column(spec: CorpusSpec, mirror: Path | None) -> Iterator[str]:
    if mirror is None:
        raise InputError(
            f"SPEC '{spec.text}' needs a mirror folder: set mirror in the config, or --mirror; "
            "prunebench prefetch CONFIG --out FOLDER writes one where there is network"
        )
    row = 0
    for path in shards_of(f"SPEC '{spec.text}'", mirror, spec.source, spec.split):
        check_file(mirror, path)
        try:
            file = pq.ParquetFile(path)
            if spec.column not in file.schema_arrow.names:
                columns = nearest(spec.column, file.schema_arrow.names)
                raise InputError(f"SPEC '{spec.text}': {path} has no column '{spec.column}': {columns}")
            for batch in file.iter_batches(batch_size=1024, columns=[spec.column]):
                for value in batch.column(0).to_pylist():
                    yield as_text(spec, value, spec.column, f"row {row}")
                    row += 1
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"SPEC '{spec.text}': {path} is no readable Parquet file: {error}") from error


def _hub_column(spec: CorpusSpec, mirror: Path | None) -> Iterator[str]:
    """From the mirror where it has the dataset, else from the hub."""
    if mirror is not None and has_split(mirror, spec.source, spec.split):
        yield from _mirror_column(spec, mirror)
        return
    for number, row in enumerate(stream_split(f"SPEC '{spec.text}'", spec.source, spec.split)):
        if spec.column not in row:
            raise InputError(f"SPEC '{spec.text}' has no column '{spec.column}': {nearest(spec.column, row)}")
        yield as_text(spec, row[spec.column], spec.column, f"row {number}")


def _builtin(spec: CorpusSpec) -> Iterator[str]:
    if spec.source != "pydoc":
        raise InputError(
            f"SPEC '{spec.text}': there is no built-in text '{spec.source}'; there is builtin:pydoc"
        )
    yield from pydoc_texts(spec.split)
