"""What a worker needs of a node to hold a model: arithmetic on the setup and the checkpoint's headers."""

from dataclasses import dataclass
from typing import Final

from prunebench.evaluation.setup import ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.footprint import GIB, cache_bytes, weight_bytes, windows_of, work_bytes

PROCESS_BYTES: Final = 3 * GIB // 4
"""Resident memory of a worker with torch and Transformers, before it holds anything."""
CONTEXT_BYTES: Final = GIB // 2
"""What CUDA and its libraries take of a GPU for each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The most that one worker needs for one model."""

    model: str
    weights: int = 0
    """Bytes of its parameters on GPUs, spread over all of the worker's; 0 for a model on the CPU."""
    work: int = 0
    """Bytes beside them on each of these GPUs."""
    memory: int
    """Bytes of the node's own memory."""
    parallel: int = 0
    """GPUs that its vLLM engines spread over; 0 where there are none, or none on GPUs."""
    utilization: float = 0.0
    """Share of each of these that vLLM takes."""

    @property
    def words(self) -> str:
        """The sizes, for people."""
        memory = f"{self.memory / GIB:.1f} GiB of memory"
        if not self.weights:
            return memory
        return f"{memory}, {self.weights / GIB:.1f} GiB of GPUs and {self.work / GIB:.1f} GiB on each of them"


def need_of(name: str, setup: ModelSetup) -> Need:
    """The need of one model.

    A model on the CPU: weights, the work on them and the process. One on GPUs: weights and work there, and of
    the node's memory the process. vLLM's engines are compared with the model on the CPU, which holds it too.

    Raises:
        InputError: the checkpoint cannot be read.
    """
    checkpoint = Checkpoint.open(setup.path, trust_remote_code=setup.trust_remote_code)
    weights = weight_bytes(checkpoint.shape, setup.dtype)
    work = work_bytes(checkpoint, setup.dtype, setup.attention)
    for engine in setup.engines.values():
        if engine.kind == "hf":
            tokens = engine.max_model_len or checkpoint.config["max_position_embeddings"]
            windows = windows_of(checkpoint)
            work = max(work, cache_bytes(checkpoint.shape, setup.dtype, tokens=tokens, windows=windows))
    engines = [engine for engine in setup.engines.values() if engine.kind == "vllm"]
    if setup.device == "cpu":
        copies = 2 if engines else 1
        return Need(model=name, memory=PROCESS_BYTES + copies * weights + work)
    return Need(
        model=name,
        weights=weights,
        work=work + CONTEXT_BYTES,
        memory=PROCESS_BYTES + (weights if engines else 0),
        parallel=max((engine.tensor_parallel for engine in engines), default=0),
        utilization=max((engine.gpu_memory_utilization for engine in engines), default=0.0),
    )
