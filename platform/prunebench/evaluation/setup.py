"""How workers load models: plain values, so that a driver without torch can say it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetup:
    """How a worker loads one model."""

    path: str
    weights_id: str
    """The weights that the driver planned for; a worker that finds others refuses."""
    dtype: str
    attention: str
    device: str
