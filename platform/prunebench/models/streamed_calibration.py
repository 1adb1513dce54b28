"""The calibration pass over a model that is read block by block; its statistics are those of the whole pass.

All batches of all shards pass a block before the next one is read, so every weight is read once. The states
at all block boundaries, which the cosines between all pairs need, wait in a scratch file until the last block
has run. Every sum is taken over the same batches by the same code in the same order as by `calibrate`, so
on one machine the bits are equal too. Letters: L blocks, T tokens of a batch, C hidden size.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from prunebench.core.stats import CalibrationStats
from prunebench.errors import ResourceError
from prunebench.models.calibrate import Sums, batches, check_rows, dot_products, on_input, stacked_rows
from prunebench.models.load import DenseModel
from prunebench.models.trie import enter


@dataclass(frozen=True, eq=False)
class _Batch:
    """One batch, and the place of its first token in the scratch file."""

    shard: int
    ids: Tensor
    place: int

    @property
    def tokens(self) -> int:
        return self.ids.numel()


@dataclass(eq=False)
class _Taps:
    """What the hooks on a block saw last."""

    mid: Tensor = field(default_factory=lambda: torch.empty(0))
    feed: list[Callable[[Tensor], None]] = field(default_factory=list)

    def see_mid(self, state: Tensor) -> None:
        self.mid = state


class _States:
    """Hidden states in a scratch file, by boundary and token."""

    def __init__(self, stream: BinaryIO, tokens: int, like: Tensor) -> None:
        self._stream = stream
        self._tokens = tokens
        self._like = like

    def write(self, boundary: int, place: int, states: Tensor) -> None:
        """Keep states of shape (T, C) from token `place` on."""
        self._seek(boundary, place)
        self._stream.write(_bytes(states.cpu().contiguous()))

    def read(self, boundary: int, place: int, out: Tensor) -> None:
        """Read T states into `out`, a CPU tensor of shape (T, C)."""
        self._seek(boundary, place)
        count = self._stream.readinto(_bytes(out))  # type: ignore[attr-defined]
        assert count == out.nbytes

    def _seek(self, boundary: int, place: int) -> None:
        self._stream.seek((boundary * self._tokens + place) * len(self._like) * self._like.itemsize)


def calibrate_streamed(
    dense: DenseModel, shards: Sequence[Sequence[np.ndarray]], source: str
) -> list[CalibrationStats]:
    """What `calibrate` gives for each shard, reading the model once for all of them.

    Args:
        dense: a streamed model.
        shards: the rows of each shard, as `calibrate` takes them.
        source: what is measured.

    Raises:
        InputError: as `calibrate`.
        ResourceError: the folder for temporary files (TMPDIR) has no room for the hidden states.
    """
    for rows in shards:
        check_rows(rows, dense.model.model.embed_tokens.num_embeddings)
    work = _batches(shards)
    with torch.inference_mode(), _scratch(dense, sum(batch.tokens for batch in work)) as states:
        return _Pass(dense, work, states, len(shards)).run(source)


def _batches(shards: Sequence[Sequence[np.ndarray]]) -> list[_Batch]:
    work, place = [], 0
    for shard, rows in enumerate(shards):
        for batch in batches([len(row) for row in rows]):
            work.append(_Batch(shard, stacked_rows(rows, batch), place))
            place += work[-1].tokens
    return work


class _Pass:
    """One pass of all batches through all blocks."""

    def __init__(self, dense: DenseModel, work: Sequence[_Batch], states: _States, num_shards: int) -> None:
        self.dense, self.work, self.states = dense, work, states
        self.num_layers = len(dense.model.model.layers)
        self.sums = [Sums(dense) for _ in range(num_shards)]
        norm = dense.model.model.norm.weight
        tokens = max(batch.tokens for batch in work)
        self.total = sum(batch.tokens for batch in work)
        self.dots = torch.empty(3, self.num_layers, self.total)
        self.buffer = torch.empty(self.num_layers + 2, tokens, len(norm), dtype=norm.dtype)
        self.arguments: dict[torch.Size, tuple[dict[str, Any], ...]] = {}
        """What the model hands to its blocks depends on a batch's shape alone."""

    def run(self, source: str) -> list[CalibrationStats]:
        for batch in self.work:
            entry = enter(self.dense, batch.ids)
            self.arguments.setdefault(batch.ids.shape, entry.arguments)
            self.states.write(0, batch.place, entry.hidden.flatten(0, 1))
        for layer in range(self.num_layers):
            self._through(layer)
        for batch in self.work:
            self._finish(batch)
        return [sums.stats(source) for sums in self.sums]

    def _through(self, layer: int) -> None:
        """Run all batches through one block."""
        self.dense.need(f"model.layers.{layer}")
        block = self.dense.model.model.layers[layer]
        with self._watched(layer) as taps:
            for batch in self.work:
                sums = self.sums[batch.shard]
                taps.feed = [sums.features[layer].add, sums.attention[layer].add]
                before = self._load(layer, batch)
                arguments = self.arguments[batch.ids.shape][layer]
                after = block(before.view(*batch.ids.shape, -1), **arguments).flatten(0, 1)
                here = self.dots[:, layer, batch.place : batch.place + batch.tokens]
                out = torch.empty(here.shape, device=after.device)
                dot_products(before, taps.mid, after, out=out)
                here.copy_(out)
                self.states.write(layer + 1, batch.place, after)

    @contextmanager
    def _watched(self, layer: int) -> Generator[_Taps]:
        block, taps = self.dense.model.model.layers[layer], _Taps()
        with ExitStack() as hooks:
            for module, see in (
                (block.get_submodule(self.dense.checkpoint.family.mid_input), taps.see_mid),
                (block.mlp.down_proj, lambda x: taps.feed[0](x)),
                (block.self_attn.o_proj, lambda x: taps.feed[1](x)),
            ):
                hooks.callback(module.register_forward_pre_hook(on_input(see), with_kwargs=True).remove)
            yield taps

    def _load(self, boundary: int, batch: _Batch) -> Tensor:
        """The states of a batch at one boundary, on the model's device."""
        room = self.buffer[boundary, : batch.tokens]
        self.states.read(boundary, batch.place, room)
        return room.to(self.dense.device)

    def _finish(self, batch: _Batch) -> None:
        """Add the cosines of a batch whose states at all boundaries are known."""
        for boundary in range(self.num_layers):
            self._load(boundary, batch)
        last = self._load(self.num_layers, batch).view(*batch.ids.shape, -1)
        self.buffer[-1, : batch.tokens] = self.dense.model.model.norm(last).flatten(0, 1)
        dots = self.dots[..., batch.place : batch.place + batch.tokens]
        states = self.buffer[:, : batch.tokens]
        self.sums[batch.shard].add(states.to(self.dense.device), dots.to(self.dense.device))


@contextmanager
def _scratch(dense: DenseModel, tokens: int) -> Generator[_States]:
    """A file for all states, which no other process sees and which is gone with this one."""
    norm = dense.model.model.norm.weight
    boundaries = len(dense.model.model.layers) + 1
    needed = boundaries * tokens * norm.nbytes
    folder = Path(tempfile.gettempdir())
    if needed > (free := shutil.disk_usage(folder).free):
        raise ResourceError(
            f"the hidden states of {tokens:,} tokens at {boundaries} block boundaries take "
            f"{needed / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f} GB free: set TMPDIR to a larger disk"
        )
    with tempfile.TemporaryFile(dir=folder) as stream:
        yield _States(stream, tokens, norm)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.view(-1).view(torch.uint8).numpy().data
