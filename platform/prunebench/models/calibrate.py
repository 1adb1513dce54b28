"""One forward pass over calibration rows that serves every activation-based method.

Hooks collect, batch by batch, the sums of `CalibrationStats`: float32 math on any model dtype, in chunks that
stay in the processor's cache, and float64 sums. The LM head is not run. Letters: T tokens of a batch, L
blocks, B = L + 1 block boundaries.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from prunebench.core.stats import Array, CalibrationStats
from prunebench.errors import InputError
from prunebench.models.load import DenseModel

TOKENS_PER_BATCH: Final = 1024
# Elements of a chunk: what stays in a second-level cache, or keeps a GPU busy.
_CACHED: Final = {"cpu": 1 << 17}
_UNCACHED: Final = 1 << 26
_TINY: Final = torch.finfo(torch.float32).tiny


def calibrate(dense: DenseModel, rows: Sequence[np.ndarray], source: str) -> CalibrationStats:
    """Run the dense model over one shard of calibration rows and sum what methods look at.

    Args:
        dense: the model; it is left as it was.
        rows: token ids, one integer array of shape (length,) a row, of any lengths; neither padded nor cut.
        source: what is measured (weights, dtype and token ids of the whole calibration).

    Returns:
        Sums over all tokens of all rows. The batches, and so the bits, depend on the rows alone.

    Raises:
        InputError: no rows, an empty row, token ids outside the vocabulary, activations that are not finite.
    """
    check_rows(rows, dense.model.model.embed_tokens.num_embeddings)
    if dense.streamed:
        from prunebench.models.streamed_calibration import calibrate_streamed

        return calibrate_streamed(dense, [rows], source)[0]
    plan = batches([len(row) for row in rows])
    recorder = _Recorder(dense, max(len(batch) * len(rows[batch[0]]) for batch in plan))
    with torch.inference_mode(), recorder.watching():
        for batch in plan:
            ids = stacked_rows(rows, batch).to(dense.device)
            recorder.finish_batch(dense.model.model(input_ids=ids, use_cache=False).last_hidden_state)
    return recorder.sums.stats(source)


def stacked_rows(rows: Sequence[np.ndarray], batch: Sequence[int]) -> Tensor:
    """The token ids of the rows `batch`, int64 of shape (rows, tokens)."""
    return torch.from_numpy(np.stack([rows[i] for i in batch]).astype(np.int64))


def batches(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Group rows of equal length, in order, into batches of at most `TOKENS_PER_BATCH` tokens, or one row."""
    groups: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        groups.setdefault(length, []).append(row)
    return [
        tuple(group[start : start + size])
        for length, group in groups.items()
        for size in [max(1, TOKENS_PER_BATCH // length)]
        for start in range(0, len(group), size)
    ]


def check_rows(rows: Sequence[np.ndarray], vocab_size: int) -> None:
    """Refuse rows that `calibrate` cannot run; errors as there."""
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

    def __init__(self, dense: DenseModel, max_tokens: int) -> None:
        self.dense = dense
        self.blocks = dense.model.model.layers
        self.sums = Sums(dense)
        self.seen = 0
        self.before = self.mid = torch.empty(0)
        num_layers = len(self.blocks)
        norm = dense.model.model.norm.weight
        # All that outlives a block's own forward pass is allocated here: small tensors made between the
        # model's large ones split the holes that those leave, and the heap grows by one of them every layer.
        self.states = norm.new_empty(num_layers + 2, max_tokens, len(norm))
        """h_0 … h_L and norm(h_L) of the batch, in the model's dtype."""
        self.dots = norm.new_empty(3, num_layers, max_tokens, dtype=torch.float32)
        """Dot products of h_mid with h_in, itself and h_out."""

    @contextmanager
    def watching(self) -> Generator[None]:
        """Hook every block, and take all hooks off again."""
        mid_input = self.dense.checkpoint.family.mid_input
        with ExitStack() as hooks:
            for i, block in enumerate(self.blocks):
                for module, see in (
                    (block, self._see_boundary),
                    (block.get_submodule(mid_input), self._see_mid),
                    (block.mlp.down_proj, self.sums.features[i].add),
                    (block.self_attn.o_proj, self.sums.attention[i].add),
                ):
                    hooks.callback(module.register_forward_pre_hook(on_input(see), with_kwargs=True).remove)
            hooks.callback(self.blocks[-1].register_forward_hook(_on_output(self._see_boundary)).remove)
            yield

    def _see_mid(self, state: Tensor) -> None:
        self.mid = state

    def _see_boundary(self, state: Tensor) -> None:
        if self.seen:
            dot_products(self.before, self.mid, state, out=self.dots[:, self.seen - 1])
        self.before = state
        self._keep(state)

    def _keep(self, state: Tensor) -> None:
        self.states[self.seen, : len(state)] = state
        self.seen += 1

    def finish_batch(self, normed: Tensor) -> None:
        """Add the batch whose forward pass has ended; `normed` is its output after the final norm."""
        normed = normed.flatten(0, 1)
        self._keep(normed)
        self.sums.add(self.states[:, : len(normed)], self.dots[..., : len(normed)])
        self.seen = 0


class Sums:
    """The sums over all tokens so far."""

    def __init__(self, dense: DenseModel) -> None:
        """Start from nothing; sums lie beside the model's final norm."""
        self.dense = dense
        self.tokens = 0
        blocks, norm = dense.model.model.layers, dense.model.model.norm.weight
        num_layers = len(blocks)
        float64: dict[str, Any] = {"dtype": torch.float64, "device": norm.device}
        self.cosine = torch.zeros(num_layers + 2, num_layers + 2, **float64)
        self.sublayer_cosine = torch.zeros(2, num_layers, **float64)
        self.change = torch.zeros(2, num_layers, **float64)
        self.features = [_Moments(block.mlp.down_proj.in_features, norm) for block in blocks]
        self.attention = [_Moments(block.self_attn.o_proj.in_features, norm) for block in blocks]

    def add(self, states: Tensor, dots: Tensor) -> None:
        """Add a batch of T tokens.

        Args:
            states: h_0 … h_L and norm(h_L) in the model's dtype, of shape (L + 2, T, hidden).
            dots: float32 dot products of h_mid with h_in, itself and h_out, of shape (3, L, T).
        """
        num_layers = len(states) - 2
        step = max(1, 4 * _chunk_elements(states) // (len(states) * states.shape[-1]))
        ones = states.new_ones(states.shape[-1], dtype=torch.float32)
        norms = []
        for part in states.split(step, dim=1):
            chunk = part.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            change = chunk[1:-1] - chunk[:-2]
            self.change[0] += torch.linalg.vector_norm(change, dim=-1).double().square().sum(1)
            self.change[1] += (change.abs_() @ ones).double().sum(1)
            norms.append(torch.linalg.vector_norm(chunk, dim=-1))
            # A zero vector has no direction: its cosine with anything counts as 0.
            flat = chunk.div_(norms[-1].clamp_min(_TINY).unsqueeze(-1)).flatten(1)
            self.cosine += flat @ flat.T
        norm_BT = torch.cat(norms, dim=1)
        self._check_finite(norm_BT)
        before, square, after = dots
        mid = square.sqrt()
        self.sublayer_cosine[0] += (before / (norm_BT[:num_layers] * mid).clamp_min(_TINY)).double().sum(1)
        self.sublayer_cosine[1] += (after / (norm_BT[1:-1] * mid).clamp_min(_TINY)).double().sum(1)
        self.tokens += states.shape[1]

    def _check_finite(self, norms: Tensor) -> None:
        """Refuse a batch with NaN or infinity and name the first place, of h_0 … h_L and norm(h_L)."""
        finite = torch.isfinite(norms).all(dim=1).tolist()
        if not all(finite):
            outputs = [f"the output of layer {i}" for i in range(len(norms) - 2)]
            place = ["the embeddings", *outputs, "the final norm"][finite.index(False)]
            raise InputError(_not_finite(place, self.dense.dtype))

    def stats(self, source: str) -> CalibrationStats:
        """The sums so far."""
        cosine = self.cosine.cpu().numpy()
        attention, mlp, squared, absolute = torch.cat([self.sublayer_cosine, self.change]).cpu().numpy()
        feature_sum, feature_square = _stacked(self.features)
        attention_sum, attention_square = _stacked(self.attention)
        places = {
            "residual stream between the sublayers of layer": attention,
            "change over layer": squared,
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
            cosine_attention_L=attention,
            cosine_mlp_L=mlp,
            squared_change_L=squared,
            absolute_change_L=absolute,
            feature_sum_LI=feature_sum,
            feature_square_LI=feature_square,
            attention_sum_LA=attention_sum,
            attention_square_LA=attention_square,
            hidden_size=self.dense.checkpoint.shape.hidden_size,
        )


class _Moments:
    """Σ x and Σ x² over tokens, float64 of shape (2, width)."""

    def __init__(self, width: int, beside: Tensor) -> None:
        self.sums = beside.new_zeros(2, width, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Add the linear module's input, of shape (T, width)."""
        for part in x.split(max(1, _chunk_elements(x) // x.shape[1])):
            part = part.float()
            # A block of a model over several GPUs may lie on another one than the sums.
            self.sums[0] += part.sum(0).to(self.sums.device)
            self.sums[1] += part.square().sum(0).to(self.sums.device)


def _stacked(moments: Sequence[_Moments]) -> tuple[Array, Array]:
    first, second = (np.stack([m.sums[row].cpu().numpy() for m in moments]) for row in (0, 1))
    return first, second


def dot_products(before: Tensor, mid: Tensor, after: Tensor, *, out: Tensor) -> None:
    """Write every token's dot products of h_mid with h_in, itself and h_out to `out`, shape (3, tokens)."""
    step = max(1, _chunk_elements(mid) // mid.shape[1])
    for start in range(0, len(mid), step):
        chunk = slice(start, min(start + step, len(mid)))
        m = mid[chunk].float()
        for row, other in zip(out, (before, mid, after), strict=True):
            row[chunk] = torch.linalg.vecdot(m, other[chunk].to(m.device).float())


def _chunk_elements(x: Tensor) -> int:
    return _CACHED.get(x.device.type, _UNCACHED)


def on_input(see: Callable[[Tensor], None]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    """A hook that shows the first input of a module, rows and positions as one axis of tokens."""

    def hook(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        hidden = positional[0] if positional else named["hidden_states"]
        see(hidden.flatten(0, 1))

    return hook


def _on_output(see: Callable[[Tensor], None]) -> Callable[[nn.Module, Any, Any], None]:
    """A hook that shows a block's output: a tensor, or the first of a tuple, depending on the version."""

    def hook(_: nn.Module, __: object, output: Tensor | tuple[Tensor, ...]) -> None:
        see((output if isinstance(output, Tensor) else output[0]).flatten(0, 1))

    return hook


def _not_finite(place: str, dtype: str) -> str:
    return (
        f"calibration: {place} has values that are not finite in {dtype}: choose bfloat16 or float32, "
        "or check the checkpoint"
    )
