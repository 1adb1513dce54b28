"""What a model takes in memory: weights, keys and values, and the tensors of the work done with it.

Counted from sizes, without torch. Weights and caches are exact (tests compare them with the tensors);
`work_bytes` is a bound on what exists at once, for rows of at most `TOKENS_PER_BATCH` tokens. Letters as in
`ModelShape`, V rows of the vocabulary, T tokens of a batch, w bytes of an element.
"""

from collections.abc import Sequence
from typing import Final

from prunebench.core.shape import ModelShape
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.rows import HEAD_CHUNK, TOKENS_PER_BATCH

GIB: Final = 1 << 30
WIDTHS: Final = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of an element."""
SHARD_TOKENS: Final = 2048
"""Most tokens of a calibration batch whose rows are no longer than that."""
STATES_KEPT: Final = 6
"""Sets of states of an item: start, current, normed, and the branches of the trie that are still open."""
ITEM_WINDOWS: Final = 4
"""Windows of one unit of perplexity, the widest work item."""


def weight_bytes(shape: ModelShape, dtype: str) -> int:
    """Bytes of all parameters, a tied head counted once: total_params·w."""
    return shape.total_params * WIDTHS[dtype]


def cache_bytes(
    shape: ModelShape, dtype: str, *, tokens: int, sequences: int = 1, windows: Sequence[int | None] = ()
) -> int:
    """Bytes of keys and values of `sequences` texts of `tokens` tokens: Σ over layers of 2·KV·hd·t·w.

    t is the text's length, or in a layer that slides the window less one, which is what Transformers keeps.

    Args:
        shape: sizes.
        dtype: of keys and values.
        tokens: of each text, prompt and answer together.
        sequences: texts at once.
        windows: width of each layer's window, None for full attention; by default all layers are full.
    """
    kept = (
        tokens if window is None else min(tokens, window - 1)
        for window in windows or _FULL * shape.num_layers
    )
    return sequences * 2 * shape.num_kv_heads * shape.head_dim * WIDTHS[dtype] * sum(kept)


_FULL: Final[tuple[int | None, ...]] = (None,)


def windows_of(checkpoint: Checkpoint) -> tuple[int | None, ...]:
    """Width of each layer's sliding window, None for full attention."""
    config, layers = checkpoint.config, checkpoint.shape.num_layers
    width = config.get("sliding_window")
    types = checkpoint.family.layer_types(config) or ("sliding_attention",) * layers
    return tuple(width if kind == "sliding_attention" else None for kind in types)


def work_bytes(checkpoint: Checkpoint, dtype: str, attention: str) -> int:
    """Most bytes of what scoring and calibration hold at once beside the weights."""
    return max(scoring_bytes(checkpoint, dtype, attention), calibration_bytes(checkpoint.shape, dtype))


def scoring_bytes(checkpoint: Checkpoint, dtype: str, attention: str) -> int:
    """States of an item, one block's inside, one chunk of logits, and a block that a plan changed.

    - states: 6 sets of 4·T tokens, C wide;
    - block: T·(w·(max(3·I, 4·H·hd) + 3·C) + 8·C) for the gate, up and product of the MLP or queries, keys and
      values repeated to all heads, the residual stream, and a norm in float32; eager attention also holds
      H·T²·(w + 4) of weights, once in float32;
    - head: HEAD_CHUNK·V·(w + 8), the softmax being in float32;
    - changed block: P_layer·w, and the float32 sum of its widest matrix, 4·C·I.
    """
    shape, width, tokens = checkpoint.shape, WIDTHS[dtype], TOKENS_PER_BATCH
    hidden, heads = shape.hidden_size, shape.num_heads
    states = STATES_KEPT * ITEM_WINDOWS * tokens * hidden * width
    inside = max(3 * shape.intermediate_size, 4 * heads * shape.head_dim) + 3 * hidden
    block = tokens * (width * inside + 8 * hidden)
    if attention == "eager":
        block += heads * tokens**2 * (width + 4)
    head = HEAD_CHUNK * checkpoint.vocab_size * (width + 8)
    changed = shape.params_per_layer * width + 4 * hidden * shape.intermediate_size
    return states + max(block, head) + changed


def calibration_bytes(shape: ModelShape, dtype: str) -> int:
    """States of all boundaries, thrice in float32 while they are compared, and the sums over features.

    (L+2)·T·C·(w + 12) + 12·L·T + 16·L·(I + H·hd)
    """
    tokens, layers = SHARD_TOKENS, shape.num_layers
    states = (layers + 2) * tokens * shape.hidden_size * (WIDTHS[dtype] + 12)
    sums = 16 * layers * (shape.intermediate_size + shape.num_heads * shape.head_dim)
    return states + 12 * layers * tokens + sums
