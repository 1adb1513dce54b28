"""The safetensors format, read by hand: where each tensor's bytes lie, without loading any.

A file is the header's length (8 bytes, little-endian), the header (JSON: name -> dtype, shape, offsets), then
the bytes.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prunebench.errors import InputError, UnsupportedError

DTYPE_BYTES: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
MAX_HEADER: Final = 100_000_000
CHUNK: Final = 1 << 23


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies. `begin` and `end` are byte offsets from the start of the file."""

    file: Path
    dtype: str
    """As safetensors spells it: F64, F32, F16 or BF16."""
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        """Size of the tensor's bytes."""
        return self.end - self.begin

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def chunks(self) -> Iterator[bytes]:
        """The tensor's bytes, a few MiB at a time."""
        with self.file.open("rb") as stream:
            stream.seek(self.begin)
            for start in range(self.begin, self.end, CHUNK):
                yield stream.read(min(CHUNK, self.end - start))


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of one file.

    Raises:
        InputError: not a safetensors file, truncated, or with a header that does not fit its bytes.
        UnsupportedError: tensors that are not floating point (quantised weights).
    """
    try:
        size, stream = file.stat().st_size, file.open("rb")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    with stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise InputError(
                f"{file} is truncated or not a safetensors file: {size} bytes, header of {length} bytes"
            )
        try:
            header = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            tensors = {name: _entry(file, name, facts, 8 + length) for name, facts in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{file} is not a safetensors file: its header cannot be read ({error!r})"
            ) from error
    needed = max((entry.end for entry in tensors.values()), default=8 + length)
    if size != needed:
        state = "truncated" if size < needed else "longer than its header says"
        raise InputError(f"{file} is {state}: {size} bytes instead of {needed}; download or copy it again")
    return tensors


def _entry(file: Path, name: str, facts: Mapping, start: int) -> TensorEntry:
    dtype, shape, (begin, end) = facts["dtype"], tuple(facts["shape"]), facts["data_offsets"]
    if dtype not in DTYPE_BYTES:
        raise UnsupportedError(f"{file}: tensor '{name}' has dtype {dtype}: quantised weights are refused")
    if end - begin != DTYPE_BYTES[dtype] * math.prod(shape):
        raise InputError(
            f"{file}: tensor '{name}' of shape {shape} and dtype {dtype} has {end - begin} bytes"
        )
    return TensorEntry(file, dtype, shape, start + begin, start + end)
