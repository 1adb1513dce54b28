"""Aggregates: each metric is a named function of r = Σ value / Σ weight over documents, with its error.

The standard error is that of a ratio estimator over documents (Cochran 1977, section 2.11) carried through
the function by the delta method: se(r)^2 = n/(n-1) · Σ_i (v_i - r·w_i)^2 / (Σ w)^2. With unit weights it is
the usual sd / sqrt(n).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of the ratio and the absolute value of its derivative."""

    of_ratio: Callable[[float], float]
    slope: Callable[[float], float]


def _exp(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


MEAN = Aggregate(lambda ratio: ratio, lambda _: 1.0)
PERPLEXITY = Aggregate(lambda ratio: _exp(-ratio), lambda ratio: _exp(-ratio))
BITS = Aggregate(lambda ratio: -ratio / math.log(2), lambda _: 1 / math.log(2))
AGGREGATES = {
    "perplexity": PERPLEXITY,
    "word_perplexity": PERPLEXITY,
    "byte_perplexity": PERPLEXITY,
    "bits_per_byte": BITS,
}
"""By metric; every other metric is the weighted mean r. For these, value is a log-likelihood in nats."""


def _sum(values: npt.NDArray[np.float64]) -> float:
    """The correctly rounded sum, which no order of the documents changes."""
    return math.fsum(values) if np.isfinite(values).all() else float(values.sum())


def aggregate(metric: str, value_sum: float, weight_sum: float) -> float:
    """The metric of a task from the sums over its documents; NaN without weight."""
    if weight_sum == 0:
        return math.nan
    return AGGREGATES.get(metric, MEAN).of_ratio(value_sum / weight_sum)


def standard_error(metric: str, values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    """Document-level standard error of `aggregate`; NaN for fewer than two documents.

    Args:
        metric: the metric's name.
        values: Σ value of each document, shape (documents,).
        weights: Σ weight of each document, shape (documents,).
    """
    count, total = len(values), _sum(weights)
    if count < 2 or total == 0:
        return math.nan
    ratio = _sum(values) / total
    # An infinite value has no error: inf - inf is the NaN that says so.
    with np.errstate(invalid="ignore"):
        squares = _sum((values - ratio * weights) ** 2)
    return AGGREGATES.get(metric, MEAN).slope(ratio) * math.sqrt(count / (count - 1) * squares) / total


def summaries(
    metrics: Sequence[str],
    starts: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
) -> Iterator[tuple[float, float]]:
    """`summary` of many groups of documents, which lie one after another: the same numbers, in less time.

    Args:
        metrics: of each group.
        starts: place of each group's first document, ascending from 0.
        values: Σ value of each document, shape (documents,).
        weights: Σ weight of each document, shape (documents,).
    """
    stops = [*starts[1:].tolist(), len(values)]
    edges = list(zip(starts.tolist(), stops, strict=True))
    finite = np.logical_and.reduceat(np.isfinite(values) & np.isfinite(weights), starts)
    sums, totals = (_sums(array, edges, finite) for array in (values, weights))
    with np.errstate(all="ignore"):
        ratios = np.array(sums) / np.array(totals)
        squares = (values - np.repeat(ratios, np.diff([*starts, len(values)])) * weights) ** 2
    finite &= np.logical_and.reduceat(np.isfinite(squares), starts)
    spreads = _sums(squares, edges, finite)
    for place, (metric, (start, stop)) in enumerate(zip(metrics, edges, strict=True)):
        count, total = stop - start, totals[place]
        if count < 2 or not finite[place]:
            yield summary(metric, values[start:stop], weights[start:stop])
            continue
        slope = AGGREGATES.get(metric, MEAN).slope(sums[place] / total)
        stderr = slope * math.sqrt(count / (count - 1) * spreads[place]) / total
        yield aggregate(metric, sums[place], total), stderr


def _sums(
    values: npt.NDArray[np.float64], edges: Sequence[tuple[int, int]], finite: npt.NDArray[np.bool_]
) -> list[float]:
    """The correctly rounded sum of each group; NaN for those that are not finite."""
    listed = values.tolist()
    return [
        math.fsum(listed[start:stop]) if whole else math.nan
        for (start, stop), whole in zip(edges, finite.tolist(), strict=True)
    ]


def summary(
    metric: str, values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """`aggregate` and `standard_error` of documents' sums."""
    return aggregate(metric, _sum(values), _sum(weights)), standard_error(metric, values, weights)
