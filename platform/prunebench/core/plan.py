"""PruningPlan: what a pruned model *is*, as a value with a content address.

A plan lists the kept blocks in order. Each has a `base` dense block, which lends norms, biases and layer
type, and optionally a linear `blend` of dense blocks for its attention and MLP matrices, a mask of kept MLP
`features` and the sublayers it `drop`s. The dense model is the plan that removes nothing.
"""

import base64
import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from prunebench.core.fingerprint import Json, canonical_json, sha256_text
from prunebench.core.shape import ModelShape
from prunebench.errors import InputError

PLAN_VERSION = 1
Sublayer: TypeAlias = Literal["attention", "mlp"]
Blend: TypeAlias = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """Kept positions of an axis, as packed little-endian bits (hashable, compact, JSON-ready)."""

    packed: bytes

    @classmethod
    def keep(cls, indices: Iterable[int], width: int) -> "Mask | None":
        """Mask of the kept `indices` among `width` positions; None when all are kept."""
        kept = np.zeros(width, dtype=bool)
        kept[list(indices)] = True
        return None if kept.all() else cls(np.packbits(kept, bitorder="little").tobytes())

    @property
    def indices(self) -> np.ndarray:
        """Kept positions, ascending, int64 of shape (kept,)."""
        bits = np.unpackbits(np.frombuffer(self.packed, dtype=np.uint8), bitorder="little")
        return np.flatnonzero(bits)

    @property
    def count(self) -> int:
        """Number of kept positions."""
        return int.from_bytes(self.packed, "little").bit_count()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One kept block. `blend` is empty for the base block's own matrices."""

    base: int
    blend: Blend = ()
    features: Mask | None = None
    drop: tuple[Sublayer, ...] = ()

    def __post_init__(self) -> None:
        """Bring equal blocks to one spelling: blend sorted by layer, zero terms and the identity left out."""
        blend = tuple(sorted((int(j), float(c)) for j, c in self.blend if c != 0))
        object.__setattr__(self, "blend", () if blend == ((self.base, 1.0),) else blend)
        object.__setattr__(self, "drop", tuple(sorted(set(self.drop))))

    def to_json(self) -> dict[str, Json]:
        """The block as JSON, defaults left out, coefficients as shortest-repr strings."""
        spec: dict[str, Json] = {"base": self.base}
        if self.blend:
            spec["blend"] = [[j, repr(c)] for j, c in self.blend]
        if self.features is not None:
            spec["features"] = base64.b64encode(self.features.packed).decode()
        if self.drop:
            spec["drop"] = list(self.drop)
        return spec

    @classmethod
    def from_json(cls, spec: dict) -> "LayerSpec":
        """Inverse of `to_json`."""
        if unknown := sorted(set(spec) - {"base", "blend", "features", "drop"}):
            raise InputError(f"the plan's block has fields this version does not know: {', '.join(unknown)}")
        features = Mask(base64.b64decode(spec["features"])) if "features" in spec else None
        blend = tuple((int(j), float(c)) for j, c in spec.get("blend", ()))
        if endless := [c for _, c in blend if not math.isfinite(c)]:
            raise InputError(f"the plan blends with the coefficient {endless[0]}: it has to be finite")
        drop = tuple(spec.get("drop", ()))
        if unknown := sorted(set(drop) - set(get_args(Sublayer))):
            raise InputError(f"the plan drops '{unknown[0]}'; a block has {' and '.join(get_args(Sublayer))}")
        return cls(base=int(spec["base"]), blend=blend, features=features, drop=drop)

    def removed_params(self, shape: ModelShape) -> int:
        """Projection parameters of the dense base block that this block lacks."""
        attention = shape.attention_params if "attention" in self.drop else 0
        if "mlp" in self.drop:
            return attention + shape.mlp_params
        if self.features is None:
            return attention
        return attention + shape.params_per_feature * (shape.intermediate_size - self.features.count)


@dataclass(frozen=True, kw_only=True)
class PruningPlan:
    """The kept blocks of a model of `num_layers` dense layers, in order. At least one block is kept."""

    num_layers: int
    layers: tuple[LayerSpec, ...] = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse blocks outside the dense model, and an empty model."""
        if not self.layers:
            raise InputError("a plan has to keep at least one block")
        for spec in self.layers:
            if outside := [
                j for j in (spec.base, *(j for j, _ in spec.blend)) if not 0 <= j < self.num_layers
            ]:
                raise InputError(
                    f"the plan names layer {outside[0]}, but the model has {self.num_layers} layers"
                )

    @classmethod
    def dense(cls, num_layers: int) -> "PruningPlan":
        """The plan that removes nothing."""
        return cls(num_layers=num_layers, layers=tuple(LayerSpec(base=i) for i in range(num_layers)))

    @classmethod
    def without(cls, removed: Iterable[int], num_layers: int) -> "PruningPlan":
        """The plan that removes whole blocks and changes no other."""
        gone = frozenset(int(i) for i in removed)
        return cls(
            num_layers=num_layers, layers=tuple(LayerSpec(base=i) for i in range(num_layers) if i not in gone)
        )

    @property
    def removed_layers(self) -> tuple[int, ...]:
        """Dense layers that are no block's base, ascending."""
        return tuple(sorted(set(range(self.num_layers)) - {spec.base for spec in self.layers}))

    @property
    def is_dense(self) -> bool:
        """Whether the plan removes and changes nothing."""
        return self == PruningPlan.dense(self.num_layers)

    @property
    def merged(self) -> dict[int, Blend]:
        """The blend of each kept block that has one, by base."""
        return {spec.base: spec.blend for spec in self.layers if spec.blend}

    @property
    def kept_features(self) -> dict[int, int]:
        """Number of kept MLP features of each trimmed block, by base."""
        return {spec.base: spec.features.count for spec in self.layers if spec.features is not None}

    @property
    def dropped(self) -> dict[int, tuple[Sublayer, ...]]:
        """The sublayers that kept blocks lack, by base."""
        return {spec.base: spec.drop for spec in self.layers if spec.drop}

    def removed_params(self, shape: ModelShape) -> int:
        """Projection parameters removed: whole blocks, features and sublayers."""
        blocks = (self.num_layers - len(self.layers)) * shape.params_per_layer
        return blocks + sum(spec.removed_params(shape) for spec in self.layers)

    def total_params(self, shape: ModelShape) -> int:
        """All parameters of the pruned model (norms and biases of dropped sublayers are still counted)."""
        extra = (self.num_layers - len(self.layers)) * shape.block_extra_params
        return shape.total_params - self.removed_params(shape) - extra

    def to_json(self) -> dict[str, Json]:
        """The plan as JSON with defaults left out."""
        layers: list[Json] = [spec.to_json() for spec in self.layers]
        return {"plan_version": PLAN_VERSION, "num_layers": self.num_layers, "layers": layers}

    @functools.cached_property
    def canonical(self) -> str:
        """The one JSON text of this plan."""
        return canonical_json(self.to_json())

    @functools.cached_property
    def plan_id(self) -> str:
        """First 16 hex digits of the sha256 of the canonical JSON. Names neither model nor method."""
        return sha256_text(self.canonical)[:16]

    @classmethod
    def from_json(cls, text: str) -> "PruningPlan":
        """Read a plan.

        Raises:
            InputError: not a plan, or one of a newer version.
        """
        try:
            data = json.loads(text)
            version = data["plan_version"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise InputError(f"not a pruning plan: {error!r}") from error
        if version != PLAN_VERSION:
            raise InputError(f"the plan has version {version}; this program reads version {PLAN_VERSION}")
        if unknown := sorted(set(data) - {"plan_version", "num_layers", "layers"}):
            raise InputError(f"the plan has fields this version does not know: {', '.join(unknown)}")
        try:
            num_layers, layers = int(data["num_layers"]), tuple(map(LayerSpec.from_json, data["layers"]))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"not a pruning plan: {error!r}") from error
        return cls(num_layers=num_layers, layers=layers)
