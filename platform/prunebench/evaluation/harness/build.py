"""The requests of a task, built by lm-eval's own code over all documents of the split.

lm-eval draws examples document after document from one generator. The requests are therefore built whole and
sliced afterwards: what a document is asked depends on the task, the number of examples and its place, and
never on ranges or workers.
"""

import contextlib
import functools
import io
import json
import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prunebench.core.fingerprint import sha256_json
from prunebench.data.manifest import check_file
from prunebench.data.mirror import shards_of
from prunebench.data.tasks import HarnessSource
from prunebench.errors import InputError, UnsupportedError
from prunebench.evaluation.harness.definitions import Definition, definition_of

LmEvalTask: TypeAlias = Any
"""lm-eval's `ConfigurableTask`."""
Instance: TypeAlias = Any
"""lm-eval's `Instance`: one request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One document and all that is asked of it."""

    row: Mapping[str, Any]
    """The document as lm-eval's functions see it."""
    requests: tuple[Instance, ...]
    """In the order that the task's scoring expects."""
    target: str
    doc_hash: str
    """64 hex digits over the requests, the target and the row."""


@dataclass(frozen=True, slots=True)
class Built:
    """A task with all its requests."""

    task: LmEvalTask
    documents: tuple[Asked, ...]

    def document(self, number: int, doc_hash: str) -> Asked:
        """The document of that number, if it is the one with that hash.

        Raises:
            InputError: this machine's dataset or lm-eval is not the one that the run started with.
        """
        if number >= len(self.documents) or self.documents[number].doc_hash != doc_hash:
            raise InputError(
                f"document {number} of lm-eval's {self.task.task_name} is another one here than where the "
                "run started: the mirror or lm-eval's version differs"
            )
        return self.documents[number]


def build(source: HarnessSource) -> Built:
    """Build a task, or return it as it was built before in this process.

    Raises:
        InputError: no such task or dataset, a split without documents, or rows that lm-eval cannot use.
        UnsupportedError: a task that cannot be measured here.
        ResourceError: lm-eval is not installed.
    """
    definition = definition_of(source.task)
    mirror = Path(source.mirror)
    paths = {
        split: tuple(shards_of(f"lm-eval task {source.task}", mirror, definition.dataset, split))
        for split in definition.read_splits(source.shots)
    }
    digests = tuple(check_file(mirror, path) for shards in paths.values() for path in shards)
    return _built(source, definition, tuple(paths.items()), digests)


@functools.lru_cache(maxsize=32)
def _built(
    source: HarnessSource,
    definition: Definition,
    paths: tuple[tuple[str, tuple[Path, ...]], ...],
    _digests: tuple[str, ...],
) -> Built:
    """Digests are there for the cache alone: other files are another task."""
    tables = {split: pa.concat_tables(map(pq.read_table, shards)) for split, shards in paths}
    asked = f"the split {definition.split} of {definition.dataset} in {source.mirror}"
    if not tables[definition.split].num_rows:
        raise InputError(f"lm-eval task {source.task}: {asked} has no documents")
    try:
        with _as_lm_eval_runs():
            task = _task(definition, tables)
            task.set_config("num_fewshot", source.shots)
            task.set_fewshot_seed(fewshot_seed())
            task.build_all_requests()
    except Exception as error:  # lm-eval and its templates raise whatever a row that does not fit leads to
        raise InputError(
            f"lm-eval cannot build the task {source.task} with {source.shots} shots from {asked}: "
            f"{type(error).__name__}: {error}"
        ) from error
    _check_metrics(task)
    return Built(task, _documents(task))


def fewshot_seed() -> int:
    """The seed of lm-eval's draws of examples, unless it is told another."""
    from lm_eval.defaults import DEFAULT_OTHER_SEED

    return DEFAULT_OTHER_SEED


def _task(definition: Definition, tables: Mapping[str, pa.Table]) -> LmEvalTask:
    """lm-eval's task on the given rows: it reads no file and knows of no hub."""
    import datasets
    from lm_eval.tasks import TaskManager

    def rows(**_: Any) -> dict[str, Any]:  # noqa: ANN401 (lm-eval hands over the task's metadata)
        found: dict[str, Any] = {
            split: datasets.Dataset(datasets.table.InMemoryTable(table)) for split, table in tables.items()
        }
        # lm-eval prepares a drawer of examples also where none is shown, and never draws from it.
        idle = found[definition.split].select([0])
        return {split: found.get(split, idle) for split in definition.splits}

    manager = TaskManager(include_path=definition.folder, include_defaults=False)
    member = {"task": definition.name, "custom_dataset": rows}
    # Only as the member of a group does lm-eval merge settings into a task of its own.
    return manager.load({"group": "prunebench", "task": [member]})["tasks"][definition.name]


@contextlib.contextmanager
def _as_lm_eval_runs() -> Iterator[None]:
    """Seed the global generators as `simple_evaluate` does, and keep lm-eval's bars and advice to itself."""
    from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED

    logger = logging.getLogger("lm_eval")
    level, state, numpy_state = logger.level, random.getstate(), np.random.get_state()
    logger.setLevel(logging.ERROR)
    random.seed(DEFAULT_RANDOM_SEED)
    np.random.seed(DEFAULT_OTHER_SEED)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
        random.setstate(state)
        np.random.set_state(numpy_state)


def _check_metrics(task: LmEvalTask) -> None:
    """Refuse metrics that are no function of sums over documents."""
    from lm_eval.api import metrics

    for name, aggregation in task.aggregation().items():
        if aggregation is not metrics.mean and (name, aggregation) != ("perplexity", metrics.perplexity):
            raise UnsupportedError(
                f"the lm-eval task {task.task_name} has the metric {name}, which is no mean over documents"
            )


def _documents(task: LmEvalTask) -> tuple[Asked, ...]:
    from lm_eval.utils import handle_non_serializable

    grouped: dict[int, list[Instance]] = {}
    for instance in task.instances:
        grouped.setdefault(instance.doc_id, []).append(instance)
    documents = []
    for _, requests in sorted(grouped.items()):
        requests.sort(key=lambda instance: instance.idx)
        row = requests[0].doc
        text = json.dumps(row, default=handle_non_serializable, ensure_ascii=False, sort_keys=True)
        arguments = [list(instance.args) for instance in requests]
        target = str(task.doc_to_target(row))
        documents.append(Asked(row, tuple(requests), target, sha256_json([arguments, target, text])))
    return tuple(documents)
