"""Ranks of rows over tasks: average ranks, win rates, Friedman's test, and Nemenyi's critical difference.

Demšar, "Statistical comparisons of classifiers over multiple data sets" (JMLR 7, 2006), with tasks as data
sets. SciPy has the distributions; scikit-posthocs would bring matplotlib, seaborn and statsmodels along.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, rankdata, studentized_range

from prunebench.report.statistics import LEVEL, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`names` over `tasks`, both at least 2 and 1."""

    names: tuple[str, ...]
    tasks: tuple[str, ...]
    average: tuple[float, ...]
    """Average rank of each name; 1 is best, and equal values share the mean of their ranks."""
    wins: tuple[float, ...]
    """Share of the pairs (another name, task) in which each is better, an equal one counting half."""
    friedman: float
    """p-value of Friedman's test that all are alike; NaN below 2 tasks or 3 names."""
    critical: float
    """Average ranks that differ by less are not told apart at the 5 % level (Nemenyi)."""

    @property
    def groups(self) -> list[tuple[float, float]]:
        """Lowest and highest average rank of each largest group that is not told apart, best first."""
        ranks = sorted(self.average)
        reach = [(low, max(rank for rank in ranks if rank - low < self.critical)) for low in ranks]
        found: list[tuple[float, float]] = []
        for low, high in reach:
            if high > low and (not found or high > found[-1][1]):
                found.append((low, high))
        return found

    def alike(self, name: str) -> list[str]:
        """Other names whose average rank is not told apart from that of `name`, best first."""
        own = self.average[self.names.index(name)]
        near = [
            (rank, other)
            for rank, other in zip(self.average, self.names, strict=True)
            if other != name and abs(rank - own) < self.critical
        ]
        return [other for _, other in sorted(near, key=lambda one: one[0])]


def ranking(names: Sequence[str], tasks: Sequence[str], badness_KN: Floats) -> Ranking:
    """Rank K names over N tasks.

    Args:
        names: at least 2.
        tasks: at least 1.
        badness_KN: lower is better within a task; shape (K, N), no NaN.

    Raises:
        ValueError: fewer names or tasks, another shape, or a NaN.
    """
    k, n = len(names), len(tasks)
    if k < 2 or n < 1 or badness_KN.shape != (k, n) or np.isnan(badness_KN).any():
        raise ValueError("a ranking takes numbers of at least 2 names on at least 1 task")
    ranks_KN = rankdata(badness_KN, axis=0)
    # The rank counts who is better and half of who is equal, itself included.
    wins_K = (k - ranks_KN).mean(axis=1) / (k - 1)
    return Ranking(
        names=tuple(names),
        tasks=tuple(tasks),
        average=tuple(ranks_KN.mean(axis=1).tolist()),
        wins=tuple(wins_K.tolist()),
        friedman=friedman(ranks_KN),
        critical=critical_difference(k, n),
    )


def friedman(ranks_KN: Floats) -> float:
    """p-value of Friedman's test with the correction for ties; 1 where all values of each task are equal.

    NaN below 2 tasks or 3 names, where chi-square is no likeness of its distribution.
    """
    k, n = ranks_KN.shape
    if k < 3 or n < 2:
        return math.nan
    spread = ((ranks_KN - (k + 1) / 2) ** 2).sum()
    if spread == 0:
        return 1.0
    sums_K = ranks_KN.sum(axis=1) - n * (k + 1) / 2
    return float(chi2.sf((k - 1) * (sums_K**2).sum() / spread, k - 1))


def critical_difference(k: int, n: int) -> float:
    """Nemenyi's q·sqrt(k(k+1)/(6n)), q the studentised range over sqrt(2), at the 5 % level.

    Args:
        k: names, at least 2.
        n: tasks, at least 1.
    """
    q = float(studentized_range.isf(LEVEL, k, np.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * n))
