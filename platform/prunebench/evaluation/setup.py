"""How workers load models and start engines: plain values, so that a driver without torch can say it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """How a worker starts one engine; `config.engines` tells what the settings mean."""

    kind: str
    """hf, vllm or fake."""
    execution: str = "padded"
    max_model_len: int | None = None
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    batch_invariant: bool = False
    orders: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetup:
    """How a worker loads one model, and the engines that may write with it."""

    path: str
    weights_id: str
    """The weights that the driver planned for; a worker that finds others refuses."""
    dtype: str
    attention: str
    device: str
    gpus: int = 1
    """Over how many of the worker's GPUs Transformers spreads it."""
    streamed: bool = False
    """Whether its weights are read block by block."""
    trust_remote_code: bool = False
    """Whether code that the checkpoint brings runs."""
    engines: Mapping[str, EngineSetup] = field(default_factory=dict)
    allow_code_execution: bool = False
    """Whether graders may run code that a model wrote."""
