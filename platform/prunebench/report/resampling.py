"""The bootstrap of `statistics` for many pairs at once, whose draws are made once."""

from collections.abc import Iterator, Sequence

import numpy as np

from prunebench.report.statistics import CELLS, RESAMPLES, Floats, Pairs


def draws(count: int, *, resamples: int, seed: int = 0, cells: int = CELLS) -> Iterator[Floats]:
    """How often each of `count` documents is drawn, in pieces of shape (resamples, count).

    These are the draws of `statistics.bootstrap`.
    """
    random = np.random.default_rng(seed)
    step = max(1, cells // count)
    for start in range(0, resamples, step):
        number = min(step, resamples - start)
        rows = random.integers(0, count, size=(number, count), dtype=np.int32)
        places = rows + count * np.arange(number)[:, None]
        yield np.bincount(places.ravel(), minlength=number * count).reshape(number, count).astype(np.float64)


def bootstrap_p_values(pairs: Sequence[Pairs], *, resamples: int = RESAMPLES, seed: int = 0) -> list[float]:
    """The two-sided p-value of each pair, as `statistics.bootstrap` has it up to the rounding of sums.

    Args:
        pairs: of equally many documents.
        resamples: resamples of the bootstrap.
        seed: of its draws.

    Raises:
        ValueError: pairs of unequally many documents.
    """
    if len({len(one) for one in pairs}) > 1:
        raise ValueError("pairs that share draws have equally many documents")
    differing = [int(np.count_nonzero(one.signs)) for one in pairs]
    asked = [place for place, number in enumerate(differing) if number and len(pairs[place]) > 1]
    found = [1.0] * len(pairs)
    if not asked:
        return found
    tails = np.zeros((2, len(asked)), dtype=np.int64)
    for counts in draws(len(pairs[0]), resamples=resamples, seed=seed):
        drawn = _differences(counts, [pairs[place] for place in asked])
        tails += np.count_nonzero(drawn <= 0, axis=0), np.count_nonzero(drawn >= 0, axis=0)
    for place, tail in zip(asked, tails.min(axis=0), strict=True):
        found[place] = min(1.0, max(2 * (int(tail) + 1) / (resamples + 1), 2.0 ** (1 - differing[place])))
    return found


def _differences(counts: Floats, pairs: Sequence[Pairs]) -> Floats:
    """r_A - r_B of each resample and pair, shape (resamples, pairs)."""
    values_a, weights_a, values_b, weights_b = (
        np.stack([getattr(one, name) for one in pairs], axis=1)
        for name in ("values_a", "weights_a", "values_b", "weights_b")
    )
    if np.array_equal(weights_a, weights_b):
        # One sum where two would leave a rounding error in the place of a difference of 0.
        return counts @ (values_a - values_b) / (counts @ weights_a)
    return counts @ values_a / (counts @ weights_a) - counts @ values_b / (counts @ weights_b)
