"""Sufficient statistics: sums that add across shards, and streamed weight statistics.

Shape letters: L layers, B = L + 1 block boundaries (h_0 … h_L, the last before the final norm), I MLP
features, A = heads · head_dim inputs of o_proj.
"""

import io
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from prunebench.errors import InputError

Array: TypeAlias = npt.NDArray[np.float64]


def _to_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _from_bytes(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationStats:
    """Sums over the non-padding tokens of one calibration; means are properties.

    `source` names what was measured (weights, dtype and token ids); only statistics of one source add.
    """

    source: str
    tokens: int
    cosine_BB: Array
    """Σ cos(h_i, h_j) between all block boundaries, before the final norm."""
    cosine_normed_L: Array
    """Σ cos(h_l, norm(h_L)) for l < L: what code that reads Hugging Face's last hidden state sees."""
    cosine_attention_L: Array
    """Σ cos(h_in, h_mid), h_mid the residual stream between the sublayers."""
    cosine_mlp_L: Array
    """Σ cos(h_mid, h_out)."""
    squared_change_L: Array
    """Σ ||h_{l+1} - h_l||_2^2."""
    absolute_change_L: Array
    """Σ ||h_{l+1} - h_l||_1 (sum over the hidden dimension)."""
    feature_sum_LI: Array
    """Σ φ, the input of down_proj."""
    feature_square_LI: Array
    """Σ φ^2."""
    attention_sum_LA: Array
    """Σ of the input of o_proj."""
    attention_square_LA: Array
    """Σ of its square."""
    hidden_size: int

    def __add__(self, other: "CalibrationStats") -> "CalibrationStats":
        """Add the sums of another shard of the same source."""
        if self.source != other.source:
            raise InputError(f"statistics of different sources do not add: {self.source} and {other.source}")
        summed = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name not in ("source", "hidden_size")
        }
        return CalibrationStats(source=self.source, hidden_size=self.hidden_size, **summed)

    @property
    def similarity_BB(self) -> Array:
        """Mean cosine between block boundaries, in [-1, 1], unit diagonal."""
        similarity = self.cosine_BB / self.tokens
        np.fill_diagonal(similarity, 1.0)
        return similarity

    def to_bytes(self) -> bytes:
        """The statistics as an npz file without pickles."""
        return _to_bytes({f.name: np.asarray(getattr(self, f.name)) for f in fields(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "CalibrationStats":
        """Inverse of `to_bytes`."""
        arrays = _from_bytes(data)
        scalars = {
            "source": str(arrays.pop("source")),
            "tokens": int(arrays.pop("tokens")),
            "hidden_size": int(arrays.pop("hidden_size")),
        }
        return cls(**scalars, **arrays)


PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
"""The seven projections of a block, in the order of `WeightStats.norm_L7`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStats:
    """Statistics of a checkpoint's weights, streamed from the file in float32 math and float64 sums."""

    source: str
    norm_L7: Array
    """Frobenius norms of q, k, v, o, gate, up, down."""
    column_square_LI: Array
    """||w_j||_2^2 of the columns of down_proj."""
    cka_o_LL: Array
    """Linear CKA between the o_proj of all pairs of layers (WRP eq. 2); shape (0, 0) when not asked for."""
    cka_down_LL: Array
    """The same for down_proj."""

    def to_bytes(self) -> bytes:
        """The statistics as an npz file without pickles."""
        return _to_bytes({f.name: np.asarray(getattr(self, f.name)) for f in fields(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "WeightStats":
        """Inverse of `to_bytes`."""
        arrays = _from_bytes(data)
        return cls(source=str(arrays.pop("source")), **arrays)
