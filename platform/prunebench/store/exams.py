"""Scores of plans under exams, from all samples of a store at once."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from prunebench.core.unit import Unit
from prunebench.store.aggregate import summaries, summary
from prunebench.store.keyed import KeyedTable
from prunebench.store.layout import check_store

_REPEATED = pa.dictionary(pa.int32(), pa.string())
COLUMNS = pa.schema(
    [
        ("unit_id", _REPEATED),
        ("exam_id", _REPEATED),
        ("plan_id", _REPEATED),
        ("document_hash", _REPEATED),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("doc_id", pa.int64()),
        ("metric", _REPEATED),
        ("value", pa.float64()),
        ("weight", pa.float64()),
        ("status", _REPEATED),
    ]
)
"""Columns of `schema.SAMPLES`; of texts that repeat, one is kept."""
STATED_TABLE = KeyedTable("samples", COLUMNS, "unit_id")
KEYS = pa.schema([("unit_id", _REPEATED), ("exam_id", _REPEATED), ("unit_json", _REPEATED)])
KEY_TABLE = KeyedTable("samples", KEYS, "unit_id")
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


STATED = ("task", "task_version", "seed", "backend", "execution", "dtype", "recipe", "attention")
"""What a result says of its exam."""


class Place(NamedTuple):
    """A range of documents."""

    start: int
    stop: int
    document_hash: str


class Done(NamedTuple):
    """A unit that has samples."""

    unit_id: str
    exam: str
    plan_id: str
    place: Place


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one plan under one exam."""

    value: float
    stderr: float
    documents: int
    statuses: dict[str, int]
    """Samples whose status is not ok, by status."""
    undefined: str = ""
    """Why the plan has no such score, where none of its samples has weight: their statuses, if any."""

    @classmethod
    def of(cls, value: float, stderr: float, weights: Floats, statuses: dict[str, int]) -> "Score":
        """The score of documents with these weights."""
        undefined = "" if weights.any() else ", ".join(statuses) or "no document counts"
        return cls(value, stderr, len(weights), statuses, undefined)


@dataclass
class Exam:
    """One task as it was asked: its units under no plan in particular, and what was seen of it."""

    units: dict[Place, Unit] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    done: dict[str, dict[Place, str]] = field(default_factory=lambda: defaultdict(dict))
    """By plan id: the ids of its units that have samples."""
    scores: dict[tuple[str, str], Score] = field(default_factory=dict)
    """By plan id and metric."""

    def expect(self, unit: Unit) -> None:
        """Count the unit's range as part of the exam."""
        self.units[Place(unit.start, unit.stop, unit.document_hash)] = unit

    @cached_property
    def stated(self) -> dict[str, str | int]:
        """What each of its results states."""
        unit = next(iter(self.units.values()))
        return {name: getattr(unit, name) for name in STATED}

    def done_by(self, plan_id: str | None) -> dict[Place, str]:
        """Ids of the plan's units that have samples."""
        return self.done.get(plan_id, {}) if plan_id else {}

    def missing(self, plan_id: str) -> list[str]:
        """Ids of the plan's units that have no samples."""
        done = self.done_by(plan_id)
        left = [unit for place, unit in self.units.items() if place not in done]
        return [unit.for_plan(plan_id).unit_id for unit in left]


class Coded(NamedTuple):
    """A column of texts."""

    codes: Ints
    """Place of each row's text."""
    texts: list[str]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "Coded":
        """The codes of a column whose chunks share one dictionary."""
        codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks]
        texts = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
        return cls(np.concatenate([np.zeros(0, np.int64), *codes]).astype(np.int64), texts)


def score_of(metric: str, samples: pd.DataFrame) -> Score:
    """The metric of one plan, from all samples of it that belong together."""
    # Not pandas' sum, which would skip a NaN.
    sums: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for document, value, weight in samples[["doc_id", "value", "weight"]].itertuples(index=False):
        sums[document] = (sums[document][0] + value, sums[document][1] + weight)
    values, weights = np.array(list(sums.values()), dtype=np.float64).T
    value, stderr = summary(metric, values, weights)
    odd = samples.loc[samples["status"] != "ok", "status"].value_counts().sort_index()
    return Score.of(value, stderr, weights, {str(status): count for status, count in odd.items()})


def add_scores(root: Path, exams: dict[str, Exam]) -> None:
    """Read all samples: what is done under each exam, and every plan's scores. `exams` may get new ones.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    table = STATED_TABLE.rows(check_store(root)).unify_dictionaries()
    if not table.num_rows:
        return
    units, metrics, statuses = (Coded.of(table[name]) for name in ("unit_id", "metric", "status"))
    done = _done(table, units)
    _expect_unrecorded(root, done, exams)
    pairs, pair_of_unit = _pairs(done, exams)
    # Documents in the order of their units' ids: sums of several samples of one document depend on it.
    group = pair_of_unit[units.codes] * len(metrics.texts) + metrics.codes
    documents = table["doc_id"].to_numpy()
    order = np.lexsort((_ranks(units.texts)[units.codes], documents, group))
    group, documents = group[order], documents[order]
    first = np.flatnonzero(np.r_[True, (np.diff(group) != 0) | (np.diff(documents) != 0)])
    values, weights = (
        _added(table[name].to_numpy()[order], first, len(group)) for name in ("value", "weight")
    )
    owner = group[first]
    starts = np.flatnonzero(np.r_[True, np.diff(owner) != 0])
    names = [metrics.texts[code] for code in owner[starts] % len(metrics.texts)]
    found = summaries(names, starts, values, weights)
    odd = _odd(group, statuses, order)
    parts = np.split(weights, starts[1:])
    for code, metric, (value, stderr), own in zip(owner[starts].tolist(), names, found, parts, strict=True):
        name, plan_id = pairs[code // len(metrics.texts)]
        exams[name].metrics.add(metric)
        exams[name].scores[plan_id, metric] = Score.of(value, stderr, own, odd.get(code, {}))


def _added(values: Floats, first: Ints, rows: int) -> Floats:
    """The sums of runs of values that begin at the places `first`, each added in order."""
    place = np.repeat(np.arange(len(first)), np.diff(np.r_[first, rows]))
    # Not reduceat, which adds many values in another order.
    return np.bincount(place, values).astype(np.float64)


def _ranks(texts: list[str]) -> Ints:
    """The place of each text among all, sorted."""
    ordered = pa.table({"text": texts, "place": np.arange(len(texts))}).sort_by("text")["place"].to_numpy()
    return np.argsort(ordered)


def _done(table: pa.Table, units: Coded) -> list[Done]:
    """Every unit, in the order of codes."""
    _, first = np.unique(units.codes, return_index=True)
    rows = table.select(["exam_id", "plan_id", *Place._fields]).take(first)
    names, plans, *places = (column.to_pylist() for column in rows.columns)
    return list(map(Done, units.texts, names, plans, map(Place, *places)))


def _expect_unrecorded(root: Path, done: Sequence[Done], exams: dict[str, Exam]) -> None:
    """Let ranges that no run recorded, but samples show, count as parts of their exams."""
    unknown = {unit.unit_id for unit in done if unit.place not in exams[unit.exam].units}
    if not unknown:
        return
    # Each file brings a dictionary of its own, and group_by takes only equal ones.
    table = KEY_TABLE.rows(root).unify_dictionaries()
    own = table.filter(pc.field("unit_id").isin(sorted(unknown)))
    for name, text in (
        own.group_by(["exam_id", "unit_json"]).aggregate([]).to_pandas().itertuples(index=False)
    ):
        exams[name].expect(Unit(**json.loads(text)))


def _pairs(done: Sequence[Done], exams: dict[str, Exam]) -> tuple[list[tuple[str, str]], Ints]:
    """All (exam, plan), and which of them each unit belongs to; the exams learn what is done."""
    numbers: dict[tuple[str, str], int] = {}
    own: list[int] = []
    for unit in done:
        exams[unit.exam].done[unit.plan_id][unit.place] = unit.unit_id
        own.append(numbers.setdefault((unit.exam, unit.plan_id), len(numbers)))
    return list(numbers), np.array(own, dtype=np.int64)


def _odd(group: Ints, statuses: Coded, order: Ints) -> dict[int, dict[str, int]]:
    """By group: the number of samples of each status that is not ok, by name."""
    codes = statuses.codes[order]
    odd = np.array([text != "ok" for text in statuses.texts])[codes]
    found: dict[int, dict[str, int]] = defaultdict(dict)
    pairs, counts = np.unique(np.array([group[odd], codes[odd]]), axis=1, return_counts=True)
    for code, status, count in sorted(
        (code, statuses.texts[status], count) for (code, status), count in zip(pairs.T, counts, strict=True)
    ):
        found[int(code)][status] = int(count)
    return found
