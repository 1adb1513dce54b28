"""Tasks of open questions: the rows of a benchmark as documents whose answers are generated and graded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.core.fingerprint import sha256_json
from prunebench.data.benchmarks import Benchmark, Item, Row, Source, benchmark_named
from prunebench.data.hub import stream_split
from prunebench.data.manifest import check_file
from prunebench.data.mirror import has_split, shards_of
from prunebench.data.tasks import Document, Question, Role, TaskData, version_of
from prunebench.errors import InputError

_VERSION: Final = 1
_BATCH_ROWS: Final = 64


def question_task(
    benchmark: str,
    *,
    name: str,
    role: Role = "test",
    limit: int | None = None,
    mirror: Path | None = None,
) -> TaskData:
    """The questions of a benchmark, each to be asked in a chat of its own.

    The version holds the hash of all of its questions, so a part of a benchmark in a mirror is never taken
    for the whole.

    Args:
        benchmark: a name of `data.benchmarks.BENCHMARKS`.
        name: the task's name in the store.
        role: `test`, or `selection` where a search may look.
        limit: only the first questions.
        mirror: the folder that has the dataset; the hub without one.

    Raises:
        InputError: an unknown benchmark, no such file in the mirror (it is named, and how to fetch it), a row
            that is no question of the benchmark, or fewer questions than `limit`.
        ResourceError: a hub dataset that cannot be fetched here.
    """
    what = f"task {name}"
    chosen = benchmark_named(benchmark)
    source = source_in(chosen, mirror)
    items = [
        _item(f"{what}, row {place}", source, row) for place, row in enumerate(_rows(what, source, mirror))
    ]
    if not items:
        raise InputError(f"{what}: {source.dataset}:{source.split} has no rows")
    if limit is not None and limit > len(items):
        raise InputError(f"{what}: {limit} questions asked, but {source.dataset} has {len(items)} here")
    documents = tuple(_document(place, item, chosen.grader) for place, item in enumerate(items))
    return TaskData(
        name=name,
        version=version_of(_VERSION, tuple(document.doc_hash for document in documents)),
        role=role,
        kind="generate",
        recipe={
            "benchmark": chosen.name,
            "instruction": chosen.instruction,
            "grader": chosen.grader,
            "documents": len(items[:limit]),
        },
        documents=documents[:limit],
        texts=tuple(item.problem for item in items[:limit]),
    )


def source_in(benchmark: Benchmark, mirror: Path | None) -> Source:
    """The first of the benchmark's sources that the mirror has; the first of all where it has none."""
    there = (s for s in benchmark.sources if mirror is not None and has_split(mirror, s.dataset, s.split))
    return next(there, benchmark.sources[0])


def _rows(what: str, source: Source, mirror: Path | None) -> Iterator[Row]:
    if mirror is None:
        yield from stream_split(what, source.dataset, source.split)
        return
    for path in shards_of(what, mirror, source.dataset, source.split):
        check_file(mirror, path)
        try:
            for batch in pq.ParquetFile(path).iter_batches(batch_size=_BATCH_ROWS):
                yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{what}: {path} is no readable Parquet file: {error}") from error


def _item(where: str, source: Source, row: Row) -> Item:
    try:
        return source.read(row)
    except InputError as error:
        raise InputError(f"{where} of {source.dataset}: {error}") from error


def _document(place: int, item: Item, grader: str) -> Document:
    return Document(
        doc_id=place,
        doc_hash=sha256_json([item.prompt, item.reference]),
        payload=Question(prompt=item.prompt, raw=False, grader=grader, reference=item.reference),
    )
