"""Variant: what was asked of a method, and what came of it."""

import functools
from dataclasses import asdict, dataclass
from typing import Any, Literal

from prunebench.core.fingerprint import canonical_json, sha256_json

DENSE = "dense"
"""The method name of the rows of the unpruned model."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One request (model, arithmetic, method, parameters, budget, calibration) and what came of it."""

    model: str
    weights_id: str
    dtype: str
    attention: str
    method: str
    params_json: str
    """Canonical JSON of the resolved parameters and whatever else decides the plan (a probe corpus)."""
    budget: str
    """As it was asked for: `7` or `ratio:0.25`."""
    budget_layers: int
    num_layers: int
    projection_params: int
    """Parameters of the dense model that budgets count: L·P_layer."""
    calibration: str | None = None
    calibration_id: str | None = None
    plan_id: str | None = None
    chosen_json: str = "{}"
    removed_layers: tuple[int, ...] = ()
    removed_params: int | None = None
    total_params: int | None = None
    warnings: tuple[str, ...] = ()
    seconds: float | None = None
    """Planning time. Kept from the first time where a later attempt gives the same answer."""
    peak_rss_mb: float | None = None
    status: Literal["ok", "unreachable", "unsupported", "failed"] = "ok"
    error: str | None = None

    @functools.cached_property
    def variant_key(self) -> str:
        """16 hex digits over the request; what came of it is not part of the key."""
        request = [
            self.model,
            self.weights_id,
            self.dtype,
            self.attention,
            self.method,
            self.params_json,
            self.budget_layers,
            self.calibration,
            self.calibration_id,
        ]
        return sha256_json(request)[:16]

    @property
    def dense(self) -> bool:
        """Whether this is the unpruned model."""
        return self.method == DENSE

    def to_row(self) -> dict[str, Any]:
        """The columns of `schema.VARIANTS`."""
        row = asdict(self)
        row["warnings_json"] = canonical_json(list(row.pop("warnings")))
        return {**row, "variant_key": self.variant_key, "dense": self.dense}
