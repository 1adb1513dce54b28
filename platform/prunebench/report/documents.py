"""Scores document by document, of every plan under every group of exams and metric."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from prunebench.report.statistics import Floats
from prunebench.store.scores import scores_table

Ints: TypeAlias = npt.NDArray[np.int64]
Sums: TypeAlias = tuple[Floats, Floats]
Paired: TypeAlias = tuple[Floats, Floats, Floats, Floats]


class Key(NamedTuple):
    """Whose scores."""

    plan_id: str
    group: str
    """`store.artifacts.exam_group`, or the id of an exam that stands alone."""
    metric: str


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The samples of one key: arrays of shape (samples,), sorted by `item`."""

    item: Ints
    """A number for each document under each seed, the same for all plans of the group."""
    document: Ints
    """A number for each document; ascending in its hash, and in the order of the copies of one document."""
    value: Floats
    weight: Floats


class Documents:
    """All scores of a store."""

    def __init__(self, scores: Mapping[Key, Scores]) -> None:
        self._scores = scores
        self._sums: dict[Key, Sums] = {}

    def of(self, key: Key) -> Scores | None:
        """The scores of a key; None without any."""
        return self._scores.get(key)

    def by_document(self, key: Key) -> Sums | None:
        """Value and weight of a key summed over the seeds of each document; None without any."""
        scores = self.of(key)
        return None if scores is None else self._summed(key, scores)

    def _summed(self, key: Key, scores: Scores) -> Sums:
        if key not in self._sums:
            self._sums[key] = _summed(scores.document, scores.value, scores.weight)
        return self._sums[key]

    def common(self, a: Key, b: Key) -> Paired | None:
        """Value and weight of A and of B, each summed over the common seeds of each common document."""
        left, right = self.of(a), self.of(b)
        if left is None or right is None:
            return None
        if np.array_equal(left.item, right.item):
            return *self._summed(a, left), *self._summed(b, right)
        _, chosen_a, chosen_b = np.intersect1d(left.item, right.item, assume_unique=True, return_indices=True)
        document = left.document[chosen_a]
        if not len(document):
            return None
        return (
            *_summed(document, left.value[chosen_a], left.weight[chosen_a]),
            *_summed(document, right.value[chosen_b], right.weight[chosen_b]),
        )


def read_documents(store: Path, group_of: Mapping[str, str]) -> Documents:
    """Read every score of a store.

    Args:
        store: the store.
        group_of: exam id -> group; an exam without one stands alone.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    table = scores_table(store)
    return Documents(dict(_cells(table, group_of)) if table.num_rows else {})


def _summed(document: Ints, value: Floats, weight: Floats) -> Sums:
    """Value and weight summed over equal documents, ascending; a NaN stays one."""
    unique, place = np.unique(document, return_inverse=True)
    if len(unique) == len(document):
        order = np.argsort(document, kind="stable")
        return value[order], weight[order]
    return (
        np.bincount(place, weights=value).astype(np.float64),
        np.bincount(place, weights=weight).astype(np.float64),
    )


def _cells(table: pa.Table, group_of: Mapping[str, str]) -> Iterator[tuple[Key, Scores]]:
    """Cut the samples into keys. Codes are packed into one number, because sorting by one is fast."""
    plans, plan = _categories(table["plan_id"])
    exams, exam = _categories(table["exam_id"])
    groups, place = np.unique([group_of.get(name, name) for name in exams], return_inverse=True)
    group = place.astype(np.int64)[exam]
    seeds, seed = np.unique(table["seed"].to_numpy(), return_inverse=True)
    metrics, metric = _categories(table["metric"])
    hashes, document = _categories(table["doc_hash"])
    doc_id = table["doc_id"].to_numpy()
    order = np.argsort(doc_id, kind="stable")
    cell = (plan * len(groups) + group) * len(metrics) + metric
    packed = (cell * len(seeds) + seed) * len(hashes) + document
    order = order[np.argsort(packed[order], kind="stable")]
    packed = packed[order]
    copy = _copies(packed)
    copies = int(copy.max()) + 1
    cell, document = cell[order], document[order] * copies + copy
    item = seed[order] * (len(hashes) * copies) + document
    value, weight = table["value"].to_numpy()[order], table["weight"].to_numpy()[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(cell)], strict=True):
        code, number = divmod(int(cell[start]), len(metrics))
        place, kind = divmod(code, len(groups))
        own = slice(start, stop)
        key = Key(plans[place], groups[kind], metrics[number])
        yield key, Scores(item[own], document[own], value[own], weight[own])


def _copies(packed: Ints) -> Ints:
    """How many equal numbers stand before each of an ascending array."""
    first = np.flatnonzero(np.diff(packed, prepend=-1))
    return np.arange(len(packed)) - np.repeat(first, np.diff([*first, len(packed)]))


def _categories(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """The distinct texts, ascending, and the place of each row's text among them."""
    codes, texts = pd.factorize(column.combine_chunks().to_pandas(), sort=True)
    return list(texts), codes.astype(np.int64)
