"""Canonical JSON and its sha256: the identity of plans, units, weights and corpora."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def canonical_json(value: Json) -> str:
    """Serialise `value` to the one JSON text that every process writes for it.

    Keys are sorted, no spaces, non-ASCII kept, floats in shortest-repr form.

    Raises:
        TypeError: for anything that is not plain JSON (a default `str()` would differ between processes).
        ValueError: for NaN and infinities.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_text(text: str) -> str:
    """Return the 64 hex digits of the sha256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_json(value: Json) -> str:
    """Return the 64 hex digits of the sha256 of the canonical JSON of `value`."""
    return sha256_text(canonical_json(value))


def sha256_arrays(*arrays: np.ndarray) -> str:
    """Return the sha256 over dtype, shape and little-endian bytes of each array in turn."""
    digest = hashlib.sha256()
    for array in arrays:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(canonical_json([little.dtype.str, list(little.shape)]).encode())
        digest.update(little.tobytes())
    return digest.hexdigest()
