"""Paired tests on a metric's own scale: differences of means, logs of ratios of perplexities."""

import math
from dataclasses import replace

import numpy as np

from prunebench.report.metrics import HOLE, Metric, counted
from prunebench.report.statistics import Floats, PairedTest, Pairs
from prunebench.store.aggregate import AGGREGATES, MEAN, PERPLEXITY


def is_ratio(metric: str) -> bool:
    """Whether differences are ln(A/B), as for perplexities, and not A - B."""
    return AGGREGATES.get(metric, MEAN) is PERPLEXITY


def is_exact(metric: str, pairs: Pairs) -> bool:
    """Whether the exact McNemar test is taken: a mean of documents that are right or wrong once."""
    return metric not in AGGREGATES and pairs.binary


def factor_of(metric: str) -> float:
    """What turns a difference of r = Σ value / Σ weight into one of the metric."""
    # ln of a perplexity is -r; every other aggregate is a multiple of r.
    return -1.0 if is_ratio(metric) else AGGREGATES.get(metric, MEAN).of_ratio(1.0)


def untestable(value_a: Floats, weight_a: Floats, value_b: Floats, weight_b: Floats) -> str:
    """Why documents cannot be tested; empty when they can."""
    odd_a = int((~np.isfinite(value_a) | ~np.isfinite(weight_a)).sum())
    odd_b = int((~np.isfinite(value_b) | ~np.isfinite(weight_b)).sum())
    if odd_a or odd_b:
        of = counted(len(value_a), "common document")
        return f"of {of}, {odd_a} of A and {odd_b} of B have a score that is NaN or infinite"
    empty = int(((weight_a <= 0) | (weight_b <= 0)).sum())
    return f"{counted(empty, 'common document')} without weight" if empty else ""


def scaled(test: PairedTest, metric: str) -> PairedTest:
    """A test of r on the metric's scale; adding 0 turns -0 into 0."""
    factor = factor_of(metric)
    low, high = sorted((test.low * factor, test.high * factor))
    return replace(
        test,
        difference=test.difference * factor + 0.0,
        stderr=test.stderr * abs(factor),
        low=low,
        high=high,
        detectable=test.detectable * abs(factor),
    )


def detectable_text(metric: Metric, difference: float | None) -> str:
    """A smallest detectable difference: in points, for perplexities in percent of the lower one."""
    if difference is None:
        return HOLE
    if is_ratio(metric.name):
        return f"{100 * math.expm1(difference):.1f} %" if difference < math.log(100) else "> 100×"
    if metric.percent:
        return f"{100 * difference:.1f} points"
    return f"{difference:.3g}"
