"""One forward pass over calibration rows that serves every activation-based method.

Hooks collect, batch by batch, the sums of `CalibrationStats`: float32 math on any model dtype, in chunks that stay
in the processor's cache, and float64 sums. The LM head is not run. Letters: T tokens of a batch, C hidden size,
L blocks, B = L + 1 block boundaries.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from prunebench.core.stats import Array, CalibrationStats
from prunebench.errors import InputError
from prunebench.models.load import DenseModel

TOKENS_PER_BATCH: Final = 2048
TOKENS_PER_SHARD: Final = 16384
# Elements of a chunk: what stays in a second-level cache, or keeps a GPU busy.
_CACHED: Final = {"cpu": 1 << 17}
_UNCACHED: Final = 1 << 26
_TINY: Final = torch.finfo(torch.float32).tiny


def calibrate(dense: DenseModel, rows: Sequence[np.ndarray], source: str) -> CalibrationStats:
    """Run the dense model over one shard of calibration rows and sum what methods look at.

    Args:
        dense: the model; it is left as it was.
        rows: token ids, one integer array of shape (length,) a row, of any lengths. No padding, no truncation.
        source: what is measured (weights, dtype and token ids of the whole calibration).

    Returns:
        Sums over all tokens of all rows. The batches, and so the bits, depend on the rows alone.

    Raises:
        InputError: no rows, an empty row, token ids outside the vocabulary, or activations that are not finite.
    """
    _check_rows(rows, dense.model.model.embed_tokens.num_embeddings)
    recorder = _Recorder(dense)
    with torch.inference_mode(), recorder.watching():
        for batch in batches([len(row) for row in rows]):
            ids = torch.from_numpy(np.stack([rows[i] for i in batch]).astype(np.int64)).to(dense.device)
            recorder.finish_batch(dense.model.model(input_ids=ids, use_cache=False).last_hidden_state)
    return recorder.stats(source)


def batches(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Group rows of equal length, in their order, into batches of at most `TOKENS_PER_BATCH` tokens (or one row)."""
    groups: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        groups.setdefault(length, []).append(row)
    return [
        tuple(group[start : start + size])
        for length, group in groups.items()
        for size in [max(1, TOKENS_PER_BATCH // length)]
        for start in range(0, len(group), size)
    ]


def shards(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Cut rows into the fixed ranges (start, stop) that workers calibrate, of about `TOKENS_PER_SHARD` tokens each.

    The ranges depend on the rows alone, so sums merged in this order are the same bytes for any number of workers.
    """
    cuts, tokens = [0], 0
    for row, length in enumerate(lengths):
        if tokens and tokens + length > TOKENS_PER_SHARD:
            cuts.append(row)
            tokens = 0
        tokens += length
    return list(zip(cuts, [*cuts[1:], len(lengths)], strict=True))


def _check_rows(rows: Sequence[np.ndarray], vocab_size: int) -> None:
    if not rows:
        raise InputError("the calibration has no rows")
    for index, row in enumerate(rows):
        if row.ndim != 1 or not np.issubdtype(row.dtype, np.integer):
            raise InputError(
                f"calibration row {index} is not a list of token ids: {row.dtype} of shape {row.shape}"
            )
        if not row.size:
            raise InputError(f"calibration row {index} is empty: every row needs at least one token")
        if (low := int(row.min())) < 0 or (high := int(row.max())) >= vocab_size:
            outside = low if low < 0 else high
            raise InputError(
                f"calibration row {index} has token id {outside}, but the vocabulary has {vocab_size} ids "
                f"(0 to {vocab_size - 1}): was it tokenised for another model?"
            )


class _Recorder:
    """What the hooks write to: the states of the batch under way, and the sums so far."""

    def __init__(self, dense: DenseModel) -> None:
        self.dense = dense
        self.blocks: nn.ModuleList = dense.model.model.layers
        self.tokens = 0
        self.states: list[Tensor] = []
        self.mid: list[Tensor] = []
        self.sublayers: list[tuple[Tensor, Tensor, Tensor]] = []
        num_layers = len(self.blocks)
        size = num_layers + 2
        self.cosine = torch.zeros(size, size, dtype=torch.float64, device=dense.device)
        # Rows: cosine over attention, cosine over MLP, squared change, absolute change.
        self.per_layer = torch.zeros(4, num_layers, dtype=torch.float64, device=dense.device)
        self.features = [_Moments() for _ in self.blocks]
        self.attention = [_Moments() for _ in self.blocks]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hook every block, and take all hooks off again."""
        mid_input = self.dense.checkpoint.family.mid_input
        with ExitStack() as hooks:
            for i, block in enumerate(self.blocks):
                for module, see in (
                    (block, self._see_boundary),
                    (block.get_submodule(mid_input), self._see_mid),
                    (block.mlp.down_proj, self.features[i].add),
                    (block.self_attn.o_proj, self.attention[i].add),
                ):
                    hooks.callback(module.register_forward_pre_hook(_on_input(see), with_kwargs=True).remove)
            hooks.callback(self.blocks[-1].register_forward_hook(_on_output(self._see_boundary)).remove)
            yield

    def _see_boundary(self, state: Tensor) -> None:
        if self.states:
            before, mid = self.states[-1], self.mid.pop()
            self.sublayers.append((_dot(before, mid), _dot(mid, mid), _dot(mid, state)))
        self.states.append(state)

    def _see_mid(self, state: Tensor) -> None:
        self.mid.append(state)

    def finish_batch(self, normed: Tensor) -> None:
        """Add the batch whose forward pass has ended; `normed` is its output after the final norm."""
        states = [*self.states, normed.flatten(0, 1)]
        num_layers = len(self.blocks)
        step = max(1, 4 * _chunk_elements(normed) // (len(states) * normed.shape[-1]))
        ones = normed.new_ones(normed.shape[-1], dtype=torch.float32)
        norms = []
        for start in range(0, len(states[0]), step):
            chunk = torch.stack([state[start : start + step].to(ones) for state in states])
            change = chunk[1:-1] - chunk[:-2]
            self.per_layer[2] += torch.linalg.vector_norm(change, dim=-1).double().square().sum(1)
            self.per_layer[3] += (change.abs_() @ ones).double().sum(1)
            norms.append(torch.linalg.vector_norm(chunk, dim=-1))
            # A zero vector has no direction: its cosine with anything counts as 0.
            flat = chunk.div_(norms[-1].clamp_min(_TINY).unsqueeze(-1)).flatten(1)
            self.cosine += flat @ flat.T
        norm_BT = torch.cat(norms, dim=1)
        self._check_finite(norm_BT)
        before, square, after = (torch.stack([dot.to(ones) for dot in dots]) for dots in zip(*self.sublayers, strict=True))
        mid_norm = square.sqrt()
        self.per_layer[0] += (before / (norm_BT[:num_layers] * mid_norm).clamp_min(_TINY)).double().sum(1)
        self.per_layer[1] += (after / (norm_BT[1:-1] * mid_norm).clamp_min(_TINY)).double().sum(1)
        self.tokens += len(states[0])
        self.states.clear()
        self.sublayers.clear()

    def _check_finite(self, norms: Tensor) -> None:
        """Refuse a batch with NaN or infinity, naming the first place; `norms` has L + 2 rows, the last normed."""
        finite = torch.isfinite(norms).all(dim=1).tolist()
        if all(finite):
            return
        first = finite.index(False)
        place = "the embeddings" if first == 0 else f"the output of layer {first - 1}"
        raise InputError(_not_finite("the final norm" if first == len(finite) - 1 else place, self.dense.dtype))

    def stats(self, source: str) -> CalibrationStats:
        """The sums so far."""
        cosine, per_layer = self.cosine.cpu().numpy(), self.per_layer.cpu().numpy()
        feature_sum, feature_square = _stacked(self.features)
        attention_sum, attention_square = _stacked(self.attention)
        places = {
            "attention of layer": per_layer[0],
            "MLP of layer": per_layer[1],
            "change over layer": per_layer[2],
            "input of down_proj in layer": feature_square,
            "input of o_proj in layer": attention_square,
        }
        for place, sums in places.items():
            if (bad := np.flatnonzero(~np.isfinite(sums.reshape(len(sums), -1)).all(axis=1))).size:
                raise InputError(_not_finite(f"the {place} {bad[0]}", self.dense.dtype))
        return CalibrationStats(
            source=source,
            tokens=self.tokens,
            cosine_BB=cosine[:-1, :-1].copy(),
            cosine_normed_L=cosine[:-2, -1].copy(),
            cosine_attention_L=per_layer[0],
            cosine_mlp_L=per_layer[1],
            squared_change_L=per_layer[2],
            absolute_change_L=per_layer[3],
            feature_sum_LI=feature_sum,
            feature_square_LI=feature_square,
            attention_sum_LA=attention_sum,
            attention_square_LA=attention_square,
            hidden_size=self.dense.checkpoint.shape.hidden_size,
        )


class _Moments:
    """Σ x and Σ x² over tokens, float64 of shape (2, width)."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Add a batch of shape (T, width)."""
        if self.sums is None:
            self.sums = torch.zeros(2, x.shape[1], dtype=torch.float64, device=x.device)
        for part in x.split(max(1, _chunk_elements(x) // x.shape[1])):
            part = part.float()
            self.sums[0] += part.sum(0)
            self.sums[1] += part.square().sum(0)


def _stacked(moments: Sequence[_Moments]) -> tuple[Array, Array]:
    first, second = (np.stack([m.sums[row].cpu().numpy() for m in moments if m.sums is not None]) for row in (0, 1))
    return first, second


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot product of every token, float32 of shape (T,)."""
    step = max(1, _chunk_elements(a) // a.shape[1])
    parts = zip(a.split(step), b.split(step), strict=True)
    return torch.cat([torch.linalg.vecdot(x.float(), y.float()) for x, y in parts])


def _chunk_elements(x: Tensor) -> int:
    return _CACHED.get(x.device.type, _UNCACHED)


def _on_input(see: Callable[[Tensor], None]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    """A hook that shows the first input of a module, rows and positions as one axis of tokens."""

    def hook(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        hidden = positional[0] if positional else named["hidden_states"]
        see(hidden.flatten(0, 1))

    return hook


def _on_output(see: Callable[[Tensor], None]) -> Callable[[nn.Module, Any, Any], None]:
    """A hook that shows a block's output, which is a tensor or the first of a tuple, depending on the version."""

    def hook(_: nn.Module, __: object, output: Tensor | tuple[Tensor, ...]) -> None:
        see((output if isinstance(output, Tensor) else output[0]).flatten(0, 1))

    return hook


def _not_finite(place: str, dtype: str) -> str:
    return (
        f"calibration: {place} has values that are not finite in {dtype}: choose bfloat16 or float32, "
        "or check the checkpoint"
    )
