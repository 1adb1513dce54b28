"""Paired statistics of two rows on the same documents; a row's score is r = Σ value / Σ weight.

Differences are r_A - r_B. Where the rows differ on d documents, no test of pairs can go below p = 2^(1-d),
that of d coins that all fall alike. The exact McNemar test has this bound by itself; the bootstrap, which
claims far more than it knows from few documents, is held to it.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, norm

Floats = npt.NDArray[np.float64]

LEVEL = 0.05
"""Two-sided level of intervals, of the smallest detectable difference and of what is called different."""
POWER = 0.8
DETECTABLE_ERRORS = float(norm.ppf(1 - LEVEL / 2) + norm.ppf(POWER))
"""Standard errors in the smallest detectable difference."""
RESAMPLES = 10_000
CELLS = 4_000_000
"""Documents times resamples held at once."""
MCNEMAR, BOOTSTRAP = "exact McNemar", "paired bootstrap"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Sums over the samples of each common document under each row.

    Args:
        values_a: Σ value under row A, shape (documents,), finite.
        weights_a: Σ weight under row A, shape (documents,), finite and positive.
        values_b: as `values_a` under row B.
        weights_b: as `weights_a` under row B.

    Raises:
        ValueError: other shapes, no document, or numbers out of range.
    """

    values_a: Floats
    weights_a: Floats
    values_b: Floats
    weights_b: Floats

    def __post_init__(self) -> None:
        """Check shapes and ranges."""
        arrays = (self.values_a, self.weights_a, self.values_b, self.weights_b)
        if {array.shape for array in arrays} != {(len(self),)} or not len(self):
            raise ValueError("pairs are four one-dimensional arrays of one length, at least 1")
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("pairs are finite")
        if min(self.weights_a.min(), self.weights_b.min()) <= 0:
            raise ValueError("every document has a positive weight")

    def __len__(self) -> int:
        """Common documents."""
        return len(self.values_a)

    @property
    def swapped(self) -> "Pairs":
        """The same with A and B exchanged."""
        return Pairs(self.values_b, self.weights_b, self.values_a, self.weights_a)

    @property
    def ratios(self) -> tuple[float, float]:
        """r of both rows; the order of the documents does not change them."""
        return (
            math.fsum(self.values_a) / math.fsum(self.weights_a),
            math.fsum(self.values_b) / math.fsum(self.weights_b),
        )

    @property
    def signs(self) -> npt.NDArray[np.int64]:
        """1 for each document on which A's own ratio is higher, -1 where B's is, 0 where they are equal."""
        left, right = self.values_a * self.weights_b, self.values_b * self.weights_a
        return np.sign(left - right).astype(np.int64)

    @property
    def binary(self) -> bool:
        """Whether every document counts once and is right or wrong."""
        once = (self.weights_a == 1).all() and (self.weights_b == 1).all()
        return bool(once and np.isin(self.values_a, (0, 1)).all() and np.isin(self.values_b, (0, 1)).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """r_A - r_B with its error; NaN where the documents cannot tell."""

    test: str
    """`MCNEMAR` or `BOOTSTRAP`."""
    difference: float
    stderr: float
    """Document-level; NaN for one document."""
    low: float
    high: float
    """95 % interval; NaN for one document or where no document differs."""
    p_value: float
    """Two-sided; 1 where no document differs."""
    detectable: float
    """Smallest true difference found with 80 % power at the 5 % level by as many such documents."""


def paired_test(pairs: Pairs, *, exact: bool, resamples: int = RESAMPLES, seed: int = 0) -> PairedTest:
    """Test whether two rows differ.

    Args:
        pairs: the common documents.
        exact: take the exact McNemar test, for `pairs.binary`; else the bootstrap over documents.
        resamples: resamples of the bootstrap.
        seed: of the bootstrap's draws.

    Raises:
        ValueError: `exact` on scores that are not 0 and 1.
    """
    if exact and not pairs.binary:
        raise ValueError("McNemar's test takes documents that are right or wrong")
    count, signs = len(pairs), pairs.signs
    above, below = pairs.ratios
    wins, losses = int((signs > 0).sum()), int((signs < 0).sum())
    stderr = paired_error(pairs)
    if exact:
        low, high = exact_interval(wins, losses, count)
        p_value, spread = mcnemar(wins, losses), math.sqrt((wins + losses) / count)
        detectable = smallest_detectable(spread / math.sqrt(count))
        # Right or wrong cannot differ by more than all documents.
        detectable = detectable if detectable <= 1 else math.nan
    else:
        low, high, p_value = bootstrap(pairs, resamples=resamples, seed=seed)
        detectable = smallest_detectable(stderr)
    return PairedTest(
        test=MCNEMAR if exact else BOOTSTRAP,
        difference=above - below,
        stderr=stderr,
        low=low,
        high=high,
        p_value=p_value,
        detectable=detectable,
    )


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p-value of McNemar's test: the sign test of the discordant pairs; 1 without any."""
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def exact_interval(wins: int, losses: int, count: int) -> tuple[float, float]:
    """95 % interval of the difference (2π - 1)·q; NaN for one document or without a discordant pair.

    π is the share of wins among discordant pairs and q the share of these among all, each with its Clopper-
    Pearson interval; the ends are the extremes over both. So 0 is outside when and only when McNemar's p is
    below .05, and the coverage is at least 95 % (an interval that takes q as known has far less).
    """
    if count < 2 or not wins + losses:
        return math.nan, math.nan
    share, rate = _clopper_pearson(wins, wins + losses), _clopper_pearson(wins + losses, count)
    low, high = 2 * share[0] - 1, 2 * share[1] - 1
    return low * rate[low < 0], high * rate[high > 0]


def _clopper_pearson(hits: int, count: int) -> tuple[float, float]:
    interval = binomtest(hits, count).proportion_ci(confidence_level=1 - LEVEL, method="exact")
    return float(interval.low), float(interval.high)


def paired_error(pairs: Pairs) -> float:
    """Document-level standard error of r_A - r_B; NaN for one document.

    The linearised ratios of a document are subtracted before they are squared (Cochran 1977, section 6.3), so
    with unit weights it is the sd of the paired differences over sqrt(n).
    """
    count = len(pairs)
    if count < 2:
        return math.nan
    above, below = pairs.ratios
    pulls = (pairs.values_a - above * pairs.weights_a) / math.fsum(pairs.weights_a)
    pulls = pulls - (pairs.values_b - below * pairs.weights_b) / math.fsum(pairs.weights_b)
    return math.sqrt(count / (count - 1) * math.fsum(pulls**2))


def bootstrap(
    pairs: Pairs, *, resamples: int = RESAMPLES, seed: int = 0, cells: int = CELLS
) -> tuple[float, float, float]:
    """95 % percentile interval of r_A - r_B over resampled documents, and the two-sided p-value.

    Whole documents are drawn, with all their seeds and under both rows. p is twice the smaller share of
    resamples on either side of 0, where the observed difference counts as one resample, and at least 2^(1-d).
    """
    differing = int(np.count_nonzero(pairs.signs))
    if not differing or len(pairs) == 1:
        return math.nan, math.nan, 1.0
    drawn = _resampled(pairs, resamples, seed, cells)
    low, high = np.quantile(drawn, (LEVEL / 2, 1 - LEVEL / 2))
    tail = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0))
    p_value = max(2 * (tail + 1) / (resamples + 1), 2.0 ** (1 - differing))
    return float(low), float(high), min(p_value, 1.0)


def _resampled(pairs: Pairs, resamples: int, seed: int, cells: int) -> Floats:
    """r_A - r_B of each resample, shape (resamples,); `cells` bounds the memory and does not change it."""
    random, count = np.random.default_rng(seed), len(pairs)
    same_weights = np.array_equal(pairs.weights_a, pairs.weights_b)
    found = np.empty(resamples)
    step = max(1, cells // count)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        rows = random.integers(0, count, size=(stop - start, count), dtype=np.int32)
        weight_a = pairs.weights_a[rows].sum(axis=1)
        weight_b = weight_a if same_weights else pairs.weights_b[rows].sum(axis=1)
        above, below = pairs.values_a[rows].sum(axis=1), pairs.values_b[rows].sum(axis=1)
        found[start:stop] = above / weight_a - below / weight_b
    return found


def smallest_detectable(stderr: float) -> float:
    """The true difference that is found at the two-sided 5 % level with 80 % power: (z_.975 + z_.8)·se.

    Miller, "Adding error bars to evals" (arXiv 2411.00640), section 5. NaN for an error of 0 or NaN: where no
    two scores differ, nothing tells how far they scatter.
    """
    return DETECTABLE_ERRORS * stderr if stderr > 0 else math.nan


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979); empty for none."""
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    factors = np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raw[order] * factors))
    return adjusted
