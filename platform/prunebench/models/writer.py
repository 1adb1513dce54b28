"""The tensors of a pruned checkpoint, streamed from the dense file into safetensors files.

Memory stays at one block: unchanged tensors are copied as bytes, changed ones come from `view.block_tensors`.
"""

import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from prunebench.core.plan import PruningPlan
from prunebench.models.checkpoint import DTYPES, INDEX, WEIGHTS, Checkpoint, tensor_name
from prunebench.models.family import BLOCKS
from prunebench.models.load import FLOATS
from prunebench.models.safetensors_file import DTYPE_BYTES, TensorEntry
from prunebench.models.view import Read, block_tensors
from prunebench.models.widths import Layout

SPELLING: Final = {spelled: dtype for dtype, spelled in DTYPES.items()}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One tensor of the export, and where it comes from."""

    name: str
    source: TensorEntry
    shape: tuple[int, ...]
    dtype: str
    position: int | None = None
    """Block of the pruned model; None outside the blocks."""
    inside: str = ""

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


class PrunedTensors:
    """The tensors of a pruned model, made one block at a time."""

    def __init__(
        self, checkpoint: Checkpoint, plan: PruningPlan, *, layout: Layout, dtype: str | None
    ) -> None:
        self._checkpoint, self._plan, self._dtype = checkpoint, plan, dtype
        self._deployed = layout == "deployed"
        self._changed: Callable[[int], dict[str, Tensor]] = functools.lru_cache(maxsize=1)(self._change)
        parts = [
            self._part(name, name) for name in sorted(checkpoint.tensors) if not name.startswith(f"{BLOCKS}.")
        ]
        inside = sorted(checkpoint.family.block_tensors(checkpoint.config))
        for position, spec in enumerate(plan.layers):
            changed = self._tensors(position, self._shape_only)
            parts += [
                self._part(
                    tensor_name(position, name),
                    tensor_name(spec.base, name),
                    shape=tuple(changed[name].shape) if name in changed else None,
                    position=position,
                    inside=name,
                )
                for name in inside
            ]
        # Wider dtypes first keep every tensor aligned, which torch needs to map the file.
        self.parts = sorted(parts, key=lambda part: -DTYPE_BYTES[part.dtype])

    def _part(
        self,
        name: str,
        source: str,
        *,
        shape: tuple[int, ...] | None = None,
        position: int | None = None,
        inside: str = "",
    ) -> Part:
        entry = self._checkpoint.tensors[source]
        return Part(
            name=name,
            source=entry,
            shape=entry.shape if shape is None else shape,
            dtype=SPELLING[self._dtype] if self._dtype else entry.dtype,
            position=position,
            inside=inside,
        )

    def _read(self, layer: int, inside: str) -> Tensor:
        return self._load(self._checkpoint.tensors[tensor_name(layer, inside)])

    def _shape_only(self, layer: int, inside: str) -> Tensor:
        return torch.empty(self._checkpoint.tensors[tensor_name(layer, inside)].shape, device="meta")

    def _load(self, entry: TensorEntry) -> Tensor:
        data = bytearray().join(entry.chunks())
        tensor = torch.frombuffer(data, dtype=FLOATS[DTYPES[entry.dtype]]).reshape(entry.shape)
        return tensor.to(FLOATS[self._dtype]) if self._dtype else tensor

    def _change(self, position: int) -> dict[str, Tensor]:
        return self._tensors(position, self._read)

    def _tensors(self, position: int, read: Read) -> dict[str, Tensor]:
        return block_tensors(self._plan.layers[position], self._checkpoint, read, deployed=self._deployed)

    def chunks(self, part: Part) -> Iterator[bytes | memoryview]:
        """The bytes of one tensor."""
        changed = {} if part.position is None else self._changed(part.position)
        if part.inside not in changed and part.dtype == part.source.dtype:
            yield from part.source.chunks()
            return
        tensor = changed[part.inside] if part.inside in changed else self._load(part.source)
        assert tensor.shape == part.shape
        yield tensor.to(FLOATS[DTYPES[part.dtype]]).contiguous().flatten().view(torch.uint8).numpy().data


def write_shards(tensors: PrunedTensors, folder: Path, shard_bytes: int) -> None:
    """Write the tensors as one safetensors file, or as several of at most `shard_bytes` and their index."""
    shards: list[list[Part]] = [[]]
    size = 0
    for part in tensors.parts:
        if shards[-1] and size + part.num_bytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(part)
        size += part.num_bytes
    if len(shards) == 1:
        _write_file(folder / WEIGHTS, tensors, shards[0])
        return
    weight_map: dict[str, str] = {}
    for i, parts in enumerate(shards, start=1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        _write_file(folder / name, tensors, parts)
        weight_map |= {part.name: name for part in parts}
    total = sum(part.num_bytes for part in tensors.parts)
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _write_file(file: Path, tensors: PrunedTensors, parts: Sequence[Part]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for part in parts:
        end = offset + part.num_bytes
        header[part.name] = {
            "dtype": part.dtype,
            "shape": list(part.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for part in parts:
            for chunk in tensors.chunks(part):
                stream.write(chunk)
        stream.flush()
        os.fsync(stream.fileno())


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
