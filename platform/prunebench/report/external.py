"""Imported results: shown apart, and paired with our rows only on documents of equal hash.

A hash is over all that is asked of a document and over its row, so equal hashes mean the same examples before
the same question. Documents that occur more than once on a side are left out.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from prunebench.report.board import Board, Record
from prunebench.report.columns import Column
from prunebench.report.metric_test import is_exact, is_ratio, scaled, untestable
from prunebench.report.metrics import HOLE, METRICS, Metric
from prunebench.report.source import rows_of
from prunebench.report.statistics import Floats, PairedTest, Pairs, holm, paired_test
from prunebench.store.aggregate import summary
from prunebench.store.external import external_table
from prunebench.store.keyed import KeyedTable
from prunebench.store.layout import check_store

_REPEATED = pa.dictionary(pa.int32(), pa.string())
OURS = pa.schema(
    [
        ("unit_id", _REPEATED),
        ("exam_id", _REPEATED),
        ("plan_id", _REPEATED),
        ("doc_hash", _REPEATED),
        ("metric", _REPEATED),
        ("value", pa.float64()),
        ("weight", pa.float64()),
    ]
)
OUR_TABLE = KeyedTable("samples", OURS, "unit_id")
Scores: TypeAlias = dict[str, tuple[float, float]]
"""Document hash -> value and weight."""


class Under(NamedTuple):
    """Whose scores of ours, and under which exam."""

    plan_id: str
    exam_id: str
    metric: str


class Theirs(NamedTuple):
    """Which scores of another program."""

    external_id: str
    task: str
    filter: str
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One imported result and one row of ours on their common documents; differences are ours - theirs."""

    name: str
    task: str
    count: int
    ours: str
    theirs: str
    difference: str
    p_value: str
    """Corrected over all pairs of the page; the reason where nothing was tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One imported result."""

    name: str
    source: str
    harness: str
    task: str
    metric: str
    value: str
    error: str
    exact: str
    """The value unrounded."""
    count: str
    common: str
    """Of how many of its documents rows of ours have scores; why none where there are none."""
    against: tuple[Against, ...]


def imported_of(store: Path, boards: Iterable[Board]) -> list[Imported]:
    """Every imported result of a store, with our rows that saw the same documents.

    Raises:
        InputError: a torn file, named.
    """
    results = rows_of(external_table(store, "results"))
    if not results:
        return []
    theirs = _theirs(store)
    ours = _ours(store, {document for scores in theirs.values() for document in scores})
    boards = tuple(boards)
    pairs = {
        place: list(_pairs(theirs.get(_key(row), {}), row, ours, boards)) for place, row in enumerate(results)
    }
    tests = [pair.test for found in pairs.values() for pair in found if pair.test is not None]
    corrected = iter(holm([test.p_value for test in tests]).tolist())
    return [
        _imported(row, theirs.get(_key(row), {}), [_against(pair, corrected) for pair in pairs[place]])
        for place, row in enumerate(results)
    ]


class _Pair(NamedTuple):
    name: str
    task: str
    metric: Metric
    count: int
    means: tuple[float, float]
    test: PairedTest | None
    reason: str


def _key(row: Record) -> Theirs:
    return Theirs(row["external_id"], row["task"], row["filter"], row["metric"])


def _theirs(store: Path) -> dict[Theirs, Scores]:
    found: dict[Theirs, list[tuple[str, float, float]]] = defaultdict(list)
    for row in rows_of(external_table(store, "samples")):
        found[_key(row)].append((row["doc_hash"], row["value"], row["weight"]))
    return {key: _once(scores) for key, scores in found.items()}


def _once(scores: Iterable[tuple[str, float, float]]) -> Scores:
    """The scores of documents that occur once."""
    found: dict[str, tuple[float, float] | None] = {}
    for document, value, weight in scores:
        found[document] = None if document in found else (value, weight)
    return {document: score for document, score in found.items() if score is not None}


def _ours(store: Path, documents: set[str]) -> dict[Under, Scores]:
    """Our scores of some documents."""
    if not documents:
        return {}
    root = check_store(store)
    table = OUR_TABLE.rows(root).unify_dictionaries()
    if not table.num_rows:
        return {}
    hashes = table["doc_hash"].combine_chunks()
    wanted = np.array([text in documents for text in hashes.dictionary.to_pylist()], dtype=bool)
    chosen = table.filter(pa.array(wanted[hashes.indices.to_numpy()]))
    found: dict[Under, list[tuple[str, float, float]]] = defaultdict(list)
    for row in rows_of(chosen):
        key = Under(row["plan_id"], row["exam_id"], row["metric"])
        found[key].append((row["doc_hash"], row["value"], row["weight"]))
    return {key: _once(scores) for key, scores in found.items()}


def _pairs(
    theirs: Scores, row: Record, ours: Mapping[Under, Scores], boards: Iterable[Board]
) -> Iterator[_Pair]:
    """Every row of ours that saw some of the same documents, plan by plan."""
    if not theirs:
        return
    for board in boards:
        rows = {own.variant["variant_key"]: own for table in board.tables for own in table.rows}
        for own in rows.values():
            for column in board.columns:
                if column.metric.name != row["metric"]:
                    continue
                scores = _over_seeds(ours, own.variant["plan_id"], column)
                if common := sorted(scores.keys() & theirs.keys()):
                    layers = "" if own.label.dense else f", {own.variant['budget_layers']} layers"
                    sides = (
                        np.array([scores[name] for name in common]),
                        np.array([theirs[name] for name in common]),
                    )
                    yield _pair(f"{board.model}: {own.label.name}{layers}", column, *sides)


def _over_seeds(ours: Mapping[Under, Scores], plan_id: str | None, column: Column) -> Scores:
    """Scores of a column's documents under all of its seeds, summed."""
    found = [ours.get(Under(plan_id or "", exam, column.metric.name), {}) for exam in column.exams]
    common = set.intersection(*map(set, found))
    return {
        document: (sum(one[document][0] for one in found), sum(one[document][1] for one in found))
        for document in common
    }


def _pair(name: str, column: Column, ours: Floats, theirs: Floats) -> _Pair:
    """One comparison; both sides are (value, weight) of each common document, shape (documents, 2)."""
    metric = column.metric.name
    sums = ours[:, 0], ours[:, 1], theirs[:, 0], theirs[:, 1]
    with np.errstate(invalid="ignore"):
        means = summary(metric, *sums[:2])[0], summary(metric, *sums[2:])[0]
    reason, test = untestable(*sums), None
    if not reason:
        pairs = Pairs(*sums)
        test = scaled(paired_test(pairs, exact=is_exact(metric, pairs)), metric)
    return _Pair(name, column.name, column.metric, len(ours), means, test, reason)


def _against(pair: _Pair, corrected: Iterator[float]) -> Against:
    shown = pair.metric.shown
    difference = p_value = pair.reason
    if pair.test is not None:
        scale = 100 if pair.metric.percent else 1
        unit = "ln " if is_ratio(pair.metric.name) else ""
        difference = f"{unit}{scale * pair.test.difference:+.4g}"
        if math.isfinite(pair.test.stderr):
            difference += f" ± {scale * pair.test.stderr:.2g}"
        p_value = f"{next(corrected):.3g}"
    ours, theirs = pair.means
    return Against(
        name=pair.name,
        task=pair.task,
        count=pair.count,
        ours=shown(ours),
        theirs=shown(theirs),
        difference=difference,
        p_value=p_value,
    )


def _imported(row: Record, scores: Scores, against: list[Against]) -> Imported:
    metric = METRICS.get(row["metric"], Metric(name=row["metric"]))
    common = max((one.count for one in against), default=0)
    missing = (
        "no scores of documents came with it" if not scores else "no document of the store has the same hash"
    )
    kind = "" if row["filter"] == "none" else f" ({row['filter']})"
    shots = "" if row["shots"] is None else f", {row['shots']} shots"
    version = f", version {row['task_version']}" if row["task_version"] else ""
    return Imported(
        name=row["name"],
        source=row["source"],
        harness=f"{row['harness']} {row['harness_version']}".strip(),
        task=f"{row['task']}{kind}{version}{shots}",
        metric=metric.title,
        value=metric.shown(row["value"]),
        error="" if row["stderr"] is None else f"±{metric.shown_error(row['stderr'], row['value'])}",
        exact=str(row["value"]),
        count=HOLE if row["num_examples"] is None else str(row["num_examples"]),
        common=f"{common} of {len(scores)}" if common else missing,
        against=tuple(against),
    )
