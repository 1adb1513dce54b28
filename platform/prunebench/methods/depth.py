"""What the depth methods share: similarity across blocks, choice of the lowest scores, warnings of near ties.

Shape letters as in `core.stats`: L layers, B = L + 1 block boundaries.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from prunebench.core.stats import Array, CalibrationStats
from prunebench.errors import InputError

LastState: TypeAlias = Literal["prenorm", "hf"]
"""Whether the last boundary is the last block's output, or (Hugging Face's last hidden state) its norm."""

NEAR_TIE = 1e-4
"""Relative margin below which another processor or dtype may choose differently."""


class Selection(NamedTuple):
    """Removed layers in the order in which they were chosen, and what to warn of."""

    removed: tuple[int, ...]
    warnings: tuple[str, ...]


def finite(values: Array, what: str) -> Array:
    """Return `values`, or raise InputError when any is NaN or infinite: no ranking would mean anything."""
    if bad := int(np.count_nonzero(~np.isfinite(values))):
        raise InputError(
            f"{bad} of {values.size} {what} are not finite: measure in float32 or check the weights"
        )
    return values


def near(first: float, second: float) -> bool:
    """Whether two scores differ by at most 1e-4 of the larger magnitude."""
    return math.isclose(first, second, rel_tol=NEAR_TIE)


def tie_warning(
    what: str, taken: int, left: int, scores: Array | Mapping[int, float], unit: str = "layer"
) -> tuple[str, ...]:
    """The warning that `taken` was preferred to `left` by almost nothing, if so."""
    if not near(scores[taken], scores[left]):
        return ()
    values = f"{scores[taken]:.6g} and {scores[left]:.6g}"
    return (
        f"{what}: {unit} {taken} was preferred to {unit} {left} by a relative margin under 1e-4 ({values})",
    )


def lowest(scores_L: Array, candidates: Iterable[int], count: int, what: str) -> Selection:
    """The `count` candidates of lowest score, ties to the lower layer; warns of a near tie at the cut."""
    order = sorted(candidates, key=lambda layer: (scores_L[layer], layer))
    taken, left = order[:count], order[count:]
    return Selection(tuple(taken), tie_warning(what, taken[-1], left[0], scores_L) if left else ())


def span_similarity(stats: CalibrationStats, span: int, last_state: LastState) -> Array:
    """Mean cos(h_j, h_{j+span}) for j = 0 … L-span, in [-1, 1], of shape (L - span + 1,).

    With `last_state="hf"` the last entry is taken with the normed last state.

    Raises:
        InputError: the similarities are not finite.
    """
    similarity = np.diagonal(stats.similarity_BB, offset=span).copy()
    if last_state == "hf":
        similarity[-1] = stats.cosine_normed_L[-span] / stats.tokens
    return finite(similarity, "similarities between block boundaries")
