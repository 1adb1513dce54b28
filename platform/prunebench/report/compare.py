"""One pair of rows in full: each task and metric that both have under one key, on common documents."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from prunebench.errors import InputError
from prunebench.report.columns import Column
from prunebench.report.metric_test import factor_of, is_exact, is_ratio, scaled, untestable
from prunebench.report.metrics import counted
from prunebench.report.pairing import RowPair, document_sums, read_pair
from prunebench.report.rows import NamedRow, find_row
from prunebench.report.statistics import BOOTSTRAP, Floats, PairedTest, Pairs, holm, paired_test
from prunebench.store.aggregate import summary
from prunebench.store.read import variants_table

FEW_DOCUMENTS = 20
"""Below this a percentile interval over documents is visibly too narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One row's score on the common documents."""

    value: float
    stderr: float
    """Document-level; NaN for one document."""
    missing: int
    """Documents, seed by seed, that the row has no score of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One task and metric under one key."""

    column: Column
    """`num_examples` are the common documents."""
    seeds: tuple[int, ...]
    """Common seeds; a document's scores are summed over them."""
    a: Side
    b: Side
    ratio: bool
    """Whether the difference is ln(A/B), as for perplexities, and not A - B."""
    test: PairedTest | None
    """On the metric's scale; None where there is a reason."""
    reason: str
    """Why nothing was tested; else empty."""
    holm: float
    """p-value corrected over all that were tested; NaN where nothing was."""
    wins: int
    """Documents on which A is better (higher, for a metric without a direction)."""
    losses: int
    ties: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two rows of one store."""

    a: NamedRow
    b: NamedRow
    compared: tuple[Compared, ...]
    unpaired: tuple[str, ...]
    """Tasks and metrics without common documents, and whose they are."""

    @property
    def family(self) -> int:
        """The number of tests that Holm's correction is over."""
        return sum(one.test is not None for one in self.compared)


def compare(store: Path, a: str, b: str) -> Comparison:
    """Compare two rows of a store, from its samples.

    Args:
        store: the store's folder.
        a: the first row's name, as `rows.find_row` takes it.
        b: the second row's name; differences are A - B.

    Raises:
        InputError: no store, a damaged one or one without rows; a name that is unknown or ambiguous, or a row
            that is a hole; rows of different models, or without a common document.
    """
    variants = variants_table(store).to_pylist()
    if not variants:
        raise InputError(f"the store {store} has no results yet: `prunebench run CONFIG` makes them")
    first, second = find_row(variants, a), find_row(variants, b)
    if first.variant["weights_id"] != second.variant["weights_id"]:
        models = f"{first.variant['model']} and {second.variant['model']}"
        raise InputError(f"{a!r} and {b!r} are of different models ({models}), which share no key")
    pair = read_pair(store, first.variant, second.variant)
    for name, samples in ((a, pair.a), (b, pair.b)):
        if not len(samples):
            raise InputError(
                f"the row {name!r} has no scored document yet: run its experiment (again); "
                f"what failed is in {store / 'failures'}"
            )
    columns = pair.columns()
    unpaired = tuple(_unpaired(pair, column) for column in columns if not column.num_examples)
    if len(unpaired) == len(columns):
        raise InputError(f"{a!r} and {b!r} have no common document under one key: {'; '.join(unpaired)}")
    found = [_compared(pair, column) for column in columns if column.num_examples]
    return Comparison(a=first, b=second, compared=tuple(_corrected(found)), unpaired=unpaired)


def _unpaired(pair: RowPair, column: Column) -> str:
    name = f"{column.name}: {column.metric.name}"
    held = pair.held_by(column.group, column.metric.name)
    return f"{name} is of {held} alone" if len(held) == 1 else f"{name} is of both, on other documents"


def _compared(pair: RowPair, column: Column) -> Compared:
    metric = column.metric
    lines = pair.lines(column.group, metric.name)
    value_a, weight_a, value_b, weight_b = sums = document_sums(lines)
    seeds = tuple(sorted({int(seed) for seed in lines["seed"]}))
    reason, test, better = untestable(*sums), None, np.zeros(0)
    if not reason:
        pairs = Pairs(*sums)
        test = scaled(paired_test(pairs, exact=is_exact(metric.name, pairs)), metric.name)
        better = pairs.signs * np.sign(factor_of(metric.name)) * (-1 if metric.better == "lower" else 1)
    missing_a, missing_b = pair.missing(column.group, metric.name)
    return Compared(
        column=column,
        seeds=seeds,
        a=_side(metric.name, value_a, weight_a, missing_a),
        b=_side(metric.name, value_b, weight_b, missing_b),
        ratio=is_ratio(metric.name),
        test=test,
        reason=reason,
        holm=math.nan,
        wins=int((better > 0).sum()),
        losses=int((better < 0).sum()),
        ties=int((better == 0).sum()),
        notes=tuple(_notes(lines, test, len(value_a))),
    )


def _side(metric: str, values: Floats, weights: Floats, missing: int) -> Side:
    # The error of an infinite score is NaN, which is what is wanted.
    with np.errstate(invalid="ignore"):
        value, stderr = summary(metric, values, weights)
    return Side(value=value, stderr=stderr, missing=missing)


def _notes(lines: pd.DataFrame, test: PairedTest | None, documents: int) -> Iterator[str]:
    for letter, column in (("A", "status_a"), ("B", "status_b")):
        odd = lines.loc[lines[column] != "ok", column].value_counts().sort_index()
        for status, number in odd.items():
            yield f"{counted(number, 'score')} of {letter} with the status {status}"
    if test is not None and test.test == BOOTSTRAP and documents < FEW_DOCUMENTS and math.isfinite(test.low):
        yield (
            f"with {counted(documents, 'document')} the interval is too narrow, "
            "and p is no smaller than so few can show"
        )


def _corrected(found: Sequence[Compared]) -> Iterator[Compared]:
    """Fill in the corrected p-values of what was tested."""
    corrected = iter(holm([one.test.p_value for one in found if one.test is not None]))
    for one in found:
        yield one if one.test is None else replace(one, holm=float(next(corrected)))
