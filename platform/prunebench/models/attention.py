"""What the attention of a block reads, whatever the family and the kernel.

Fused kernels never hold the weights, and eager ones hold all of them at once. So the block is run once more
under an attention function of ours, registered with Transformers as any other, which keeps queries and keys
as the kernel gets them (normed, rotated) and computes nothing. Weights are then made a few queries at a time,
in float32. Letters: H query heads, G key heads, Q queries, T tokens, D width of a head.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AttentionInterface

from prunebench.core.plan import LayerSpec
from prunebench.models.load import DenseModel
from prunebench.models.trie import Runner, States

OBSERVER: Final = "prunebench_observer"


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Queries and keys of one row in float32, and how they become weights."""

    query_HTD: Tensor
    key_GTD: Tensor
    """Each key head is read by H / G consecutive query heads."""
    allowed_TT: Tensor | None
    """Whether a query may see a key; None where the only rule is causality."""
    scaling: float
    softcap: float | None

    @property
    def tokens(self) -> int:
        """T."""
        return self.query_HTD.shape[1]

    def allowed(self, start: int, stop: int) -> Tensor:
        """Whether the queries from `start` to before `stop` may see each key, bool of shape (Q, T)."""
        if self.allowed_TT is not None:
            return self.allowed_TT[start:stop]
        keys = torch.arange(self.tokens, device=self.query_HTD.device)
        return keys <= keys[start:stop, None]

    def scores(self, start: int, stop: int) -> Tensor:
        """What the softmax is taken of, before the mask, float32 of shape (H, Q, T)."""
        heads, width = len(self.query_HTD), self.query_HTD.shape[-1]
        queries = self.query_HTD[:, start:stop].reshape(len(self.key_GTD), -1, width)
        scores = (queries @ self.key_GTD.mT * self.scaling).view(heads, stop - start, self.tokens)
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap


@torch.no_grad()
def attention_of(dense: DenseModel, runner: Runner, spec: LayerSpec, states: States) -> tuple[Attention, ...]:
    """The attention of one block of a plan on each batch of the runner, which hold one row each.

    Args:
        dense: the model that the runner runs.
        runner: what gives the batches and their masks.
        spec: the block.
        states: the states before it.
    """
    block = runner.view.block(spec)
    seen: list[Attention] = []
    with _observed(dense, seen):
        for hidden, entry in zip(states, runner.entries, strict=True):
            block(hidden.to(dense.device), **entry.arguments[spec.base])
    return tuple(seen)


@contextmanager
def _observed(dense: DenseModel, seen: list[Attention]) -> Generator[None]:
    """Let every attention of the model add to `seen` what it reads, in place of attending."""

    def observe(
        module: Any,  # noqa: ANN401 (the family's attention module)
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float,
        softcap: float | None = None,
        **_: object,
    ) -> tuple[Tensor, None]:
        assert len(query) == 1
        # The sdpa kernel has no soft cap: under it Gemma-2 attends without one.
        cap = softcap if dense.attention == "eager" else None
        seen.append(Attention(query[0].float(), key[0].float(), _allowed(attention_mask), scaling, cap))
        return value.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1]), None

    config = dense.model.config
    usual = config._attn_implementation
    AttentionInterface.register(OBSERVER, observe)
    try:
        config._attn_implementation = OBSERVER
        yield
    finally:
        config._attn_implementation = usual
        AttentionInterface.register(OBSERVER, _not_now)


def _not_now(*_: object, **__: object) -> None:
    raise AssertionError("the observer of attention is used outside its context")


def _allowed(mask: Tensor | None) -> Tensor | None:
    """A kernel's mask of shape (1, 1, T, T) as bool of shape (T, T): sdpa's is bool, eager's is added."""
    if mask is None:
        return None
    return mask[0, 0] if mask.dtype == torch.bool else mask[0, 0] == 0
