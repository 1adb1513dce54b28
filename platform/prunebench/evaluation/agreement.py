"""How alike two attentions are on one row, without the first token, on which most heads park their weight.

LayerTrim, appendix D: both measures exclude attention to the first token and rescale the rest to sum to one;
KL goes from the dense to the pruned distribution; the overlap is the share of the dense model's eight most
attended earlier tokens that are among the pruned model's, by how far each precedes the query.
"""

import operator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prunebench.evaluation.versions import DISTANCES
from prunebench.models.attention import Attention

TOP: Final = 8
FIRST_QUERY: Final = 2
"""Earlier queries have one token left to attend to."""
CELLS: Final = 1 << 26
"""Weights held at once, which bounds the memory; the queries of a chunk are a function of the row's sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Sums over heads and queries; the bins are those of `DISTANCES`."""

    divergence: float = 0.0
    """Σ KL(dense, pruned), in nats."""
    distributions: int = 0
    """Their number: heads times queries."""
    common_B: npt.NDArray[np.int64]
    """Of `picked_B` those that the pruned model picks too."""
    picked_B: npt.NDArray[np.int64]
    """The dense model's most attended tokens."""

    def __add__(self, other: "Agreement") -> "Agreement":
        """The sums of both."""
        return Agreement(
            **{f.name: operator.add(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        )


NOTHING: Final = Agreement(
    common_B=np.zeros(len(DISTANCES), dtype=np.int64), picked_B=np.zeros(len(DISTANCES), dtype=np.int64)
)


@torch.no_grad()
def agreement(dense: Attention, pruned: Attention) -> Agreement:
    """Compare the attention of a block with that of its dense base on the same row."""
    total = NOTHING
    step = max(1, CELLS // (len(dense.query_HTD) * dense.tokens))
    for start in range(FIRST_QUERY, dense.tokens, step):
        stop = min(start + step, dense.tokens)
        allowed = dense.allowed(start, stop).clone()
        allowed[:, 0] = False
        scores = [each.scores(start, stop).masked_fill(~allowed, -torch.inf) for each in (dense, pruned)]
        common_B, picked_B = _overlap(scores, allowed, start)
        total += Agreement(
            divergence=_divergence(*scores),
            distributions=scores[0].shape[0] * scores[0].shape[1],
            common_B=common_B,
            picked_B=picked_B,
        )
    return total


def _divergence(dense_HQT: Tensor, pruned_HQT: Tensor) -> float:
    before, after = dense_HQT.log_softmax(-1), pruned_HQT.log_softmax(-1)
    # Where a token may not be attended both are -inf, and their difference is no number.
    terms = torch.where(dense_HQT == -torch.inf, 0.0, before.exp() * (before - after))
    return float(terms.sum(dtype=torch.float64))


def _overlap(
    scores: list[Tensor], allowed_QT: Tensor, start: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Picks in common and picks by distance, of the queries that have more than TOP earlier tokens."""
    device = allowed_QT.device
    queries = torch.arange(start, start + len(allowed_QT), device=device)
    earlier = allowed_QT & (torch.arange(allowed_QT.shape[1], device=device) < queries[:, None])
    enough = earlier.sum(-1) > TOP
    if not enough.any():
        return NOTHING.common_B, NOTHING.picked_B
    dense, pruned = (
        each[:, enough].masked_fill(~earlier[enough], -torch.inf).topk(TOP, dim=-1).indices for each in scores
    )
    common = (dense[..., None] == pruned[..., None, :]).any(-1)
    distance = queries[enough][:, None] - dense
    bins = torch.bucketize(distance, torch.tensor(DISTANCES, device=device), right=True) - 1
    counts = [
        torch.bincount(each.flatten(), minlength=len(DISTANCES)).cpu().numpy()
        for each in (bins[common], bins)
    ]
    return counts[0], counts[1]
