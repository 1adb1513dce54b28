"""Statistics of a checkpoint's weights, streamed from its files: the model is never built.

float32 math on any stored dtype, float64 sums. Letters: L layers, C hidden size, M columns of the matrices
that are compared (o_proj or down_proj), I MLP features.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor

from prunebench.core.shape import ModelShape
from prunebench.core.stats import PROJECTIONS, Array, WeightStats
from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint, tensor_name
from prunebench.models.family import num_columns

EPSILON: Final = 1e-12
COMPARED: Final = ("o", "down")
# Not those of `load`, which imports transformers: more memory than all of this takes.
_STORED: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Elements of a chunk: what stays in a processor's cache while it is widened to float64.
_CHUNK: Final = 1 << 17
# Bytes as stored (at most 8), float32, float64 and a temporary of it, for an element of a chunk.
_CHUNK_BYTES: Final = 8 + 4 + 8 + 8
# Elements of a sum: as many as torch sums in one thread.
_UNTHREADED: Final = 1 << 15
# What matrix products copy operands to (11 MB were seen), and modules that are imported late.
_LIBRARY_BYTES: Final = 32_000_000
# Floats in 64 bytes: products may depend on how their operands are aligned.
_ALIGNED: Final = 16


def weight_stats(
    checkpoint: Checkpoint, *, cka: bool, memory: int | None = None, reads: Counter[str] | None = None
) -> WeightStats:
    """Norms of the projections and, where asked for, the similarity of layers (WRP eq. 1-2).

    Args:
        checkpoint: what to read.
        cka: whether to compare o_proj and down_proj between all pairs of layers.
        memory: bytes that the comparison may take, besides what the process holds already; None for no bound.
            Where not all layers fit, pairs are compared in tiles and tensors read again, to the same bits.
        reads: counts here how often each tensor is read.

    Raises:
        InputError: the bound is too small for two layers, or a tensor is not finite or too large to compare.
    """
    held = {role: _layers_held(checkpoint.shape, role, memory) for role in COMPARED} if cka else {}
    scan = _Scan(checkpoint, Counter() if reads is None else reads)
    similarity = {role: _similarity(scan, role, layers) for role, layers in held.items()}
    scan.measure_rest()
    empty_LL = np.zeros((0, 0))
    return WeightStats(
        source=checkpoint.weights_id,
        norm_L7=np.sqrt(scan.square_L7),
        column_square_LI=scan.column_square_LI,
        cka_o_LL=similarity.get("o", empty_LL),
        cka_down_LL=similarity.get("down", empty_LL),
    )


def memory_needed(shape: ModelShape, role: str, held: int) -> int:
    """Bytes to compare a role's matrices between all layers, holding at most `held` layers at a time."""
    rows, columns = shape.hidden_size, num_columns(role, shape)
    matrix, gram, cross = rows * columns, rows**2, columns**2
    slots = _slots(shape, held)
    floats = matrix + slots * _padded(gram) if _by_gram(shape, role) else slots * _padded(matrix) + cross
    results = shape.num_layers * (len(PROJECTIONS) + shape.intermediate_size + 3 * shape.num_layers)
    widest = max(num_columns(role, shape) for role in PROJECTIONS)
    return 4 * floats + 8 * results + _CHUNK_BYTES * max(_CHUNK, widest) + _LIBRARY_BYTES


def _layers_held(shape: ModelShape, role: str, memory: int | None) -> int:
    """The most layers of a role that the bound lets one hold."""
    if memory is None:
        return shape.num_layers
    smallest = max(memory_needed(shape, any_role, 1) for any_role in COMPARED)
    if memory < smallest:
        raise InputError(
            f"{memory} bytes of memory are too few to compare the weights of two layers: "
            f"give at least {smallest} bytes"
        )
    return max(held for held in range(1, shape.num_layers + 1) if memory_needed(shape, role, held) <= memory)


def _slots(shape: ModelShape, held: int) -> int:
    """Layers alive at a time: unless all are held, one more passes by those that are."""
    return held + (held < shape.num_layers)


def _padded(floats: int) -> int:
    return -(-floats // _ALIGNED) * _ALIGNED


def _by_gram(shape: ModelShape, role: str) -> bool:
    """Whether Grams take fewer multiplications than cross products: <G_i, G_j>_F = ||W_i^T W_j||_F^2."""
    rows, columns, layers = shape.hidden_size, num_columns(role, shape), shape.num_layers
    pairs = layers * (layers + 1) // 2
    return layers * rows**2 * columns + pairs * rows**2 <= pairs * (columns**2 * rows + columns**2)


def _similarity(scan: "_Scan", role: str, held: int) -> Array:
    """Linear CKA between all layers, (L, L): tiles of `held` layers, past which the later ones go by."""
    compared = _Compared(scan, role, held)
    layers = range(scan.checkpoint.shape.num_layers)
    inner_LL = np.zeros((len(layers), len(layers)))
    for start in layers[::held]:
        tile = layers[start : start + held]
        for index in layers[start:]:
            compared.load(index, min(index - start, held))
            for other in tile[: index - start + 1]:
                product = compared.product(other - start, min(index - start, held))
                inner_LL[other, index] = inner_LL[index, other] = product
    norm_L = np.sqrt(np.diagonal(inner_LL))
    return inner_LL / (np.outer(norm_L, norm_L) + EPSILON)


class _Compared:
    """The layers of a role that are in memory, each in a slot: its Gram (C, C) or its centred matrix (C, M).

    All memory is taken at once and used again, so that none is lost between freed pieces.
    """

    def __init__(self, scan: "_Scan", role: str, held: int) -> None:
        shape = scan.checkpoint.shape
        rows, columns = shape.hidden_size, num_columns(role, shape)
        self._scan, self._module = scan, scan.checkpoint.family.projection(role).module
        self._by_gram = _by_gram(shape, role)
        self._size = (rows, rows if self._by_gram else columns)
        self._slots = torch.empty(_slots(shape, held), _padded(math.prod(self._size)))
        self._scratch = torch.empty(rows if self._by_gram else columns, columns)

    def load(self, layer: int, slot: int) -> None:
        """Read a layer into a slot.

        Raises:
            InputError: it is not finite, or too large to compare.
        """
        held = self._slot(slot)
        matrix_CM = self._scratch if self._by_gram else held
        matrix_CM -= self._scan.read(layer, self._module, matrix_CM).float()
        if self._by_gram:
            torch.mm(matrix_CM, matrix_CM.T, out=held)
        if not math.isfinite(self.product(slot, slot)):
            name = tensor_name(layer, f"{self._module}.weight")
            raise InputError(f"tensor '{name}' has weights too large to compare in float32")

    def product(self, one: int, other: int) -> float:
        """<G_one, G_other>_F of the layers in two slots."""
        if self._by_gram:
            return _dot(self._slot(one), self._slot(other))
        torch.mm(self._slot(one).T, self._slot(other), out=self._scratch)
        return _dot(self._scratch, self._scratch)

    def _slot(self, slot: int) -> Tensor:
        return self._slots[slot, : math.prod(self._size)].view(self._size)


def _dot(one: Tensor, other: Tensor) -> float:
    """<A, B>_F of contiguous float32 matrices: float32 products, float64 sums."""
    pieces = zip(one.view(-1).split(_UNTHREADED), other.view(-1).split(_UNTHREADED), strict=True)
    return math.fsum(float((a * b).double().sum()) for a, b in pieces)


class _Scan:
    """What was summed over the tensors of a checkpoint that were read so far."""

    def __init__(self, checkpoint: Checkpoint, reads: Counter[str]) -> None:
        shape = checkpoint.shape
        self.checkpoint = checkpoint
        self.square_L7: Array = np.zeros((shape.num_layers, len(PROJECTIONS)))
        self.column_square_LI: Array = np.zeros((shape.num_layers, shape.intermediate_size))
        self._reads = reads
        self._seen: set[str] = set()

    def measure_rest(self) -> None:
        """Read the projections that nobody read yet."""
        for layer in range(self.checkpoint.shape.num_layers):
            for module in self.checkpoint.family.linears:
                if tensor_name(layer, f"{module}.weight") not in self._seen:
                    self.read(layer, module)

    def read(self, layer: int, module: str, into: Tensor | None = None) -> Tensor:
        """Read a tensor, as float32 `into` where given, and sum its squares; the float64 mean of its rows.

        Raises:
            InputError: it is not finite, or its file was cut short.
        """
        name = tensor_name(layer, f"{module}.weight")
        entry = self.checkpoint.tensors[name]
        self._reads[name] += 1
        self._seen.add(name)
        rows, columns = entry.shape
        row_square = torch.zeros(rows, dtype=torch.float64)
        column_square = torch.zeros(columns, dtype=torch.float64)
        column_sum = torch.zeros(columns, dtype=torch.float64)
        for span, chunk in self._chunks(name):
            if into is not None:
                into[span] = chunk
            wide = chunk.double()
            column_sum += wide.sum(dim=0)
            wide.square_()
            row_square[span] = wide.sum(dim=1)
            column_square += wide.sum(dim=0)
        if not math.isfinite(float(row_square.sum())):
            raise InputError(
                f"{entry.file}: tensor '{name}' has weights that are infinite or not numbers in float32"
            )
        self._keep(layer, module, row_square, column_square)
        return column_sum / rows

    def _keep(self, layer: int, module: str, row_square: Tensor, column_square: Tensor) -> None:
        for position, role in enumerate(PROJECTIONS):
            slot = self.checkpoint.family.projection(role)
            if slot.module == module:
                self.square_L7[layer, position] = row_square[slot.rows(self.checkpoint.shape)].sum()
                if role == "down":
                    self.column_square_LI[layer] = column_square.numpy()

    def _chunks(self, name: str) -> Iterator[tuple[slice, Tensor]]:
        entry = self.checkpoint.tensors[name]
        rows, columns = entry.shape
        dtype = _STORED[entry.dtype]
        step = max(1, _CHUNK // columns)
        with entry.file.open("rb") as stream:
            stream.seek(entry.begin)
            for start in range(0, rows, step):
                span = slice(start, min(start + step, rows))
                data = bytearray((span.stop - start) * columns * dtype.itemsize)
                if stream.readinto(data) < len(data):
                    raise InputError(f"{entry.file} was cut short while it was read, in tensor '{name}'")
                yield span, torch.frombuffer(data, dtype=dtype).float().reshape(-1, columns)
