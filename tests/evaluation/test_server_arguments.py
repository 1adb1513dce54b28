"""What vLLM is started with; vLLM itself is not needed here."""

import pytest

from prunebench.evaluation.generation.server import arguments
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint


@pytest.mark.parametrize(("parallel", "backend"), [(1, "uni"), (2, "mp")])
def test_a_model_over_several_gpus_stays_inside_the_worker_that_holds_them(tiny, parallel, backend):
    """Left to itself vLLM starts Ray actors of its own inside of one, which wait for the GPUs that it has."""
    path = tiny("llama")
    setup = ModelSetup(path=str(path), weights_id="w", dtype="bfloat16", attention="sdpa", device="cuda")
    engine = EngineSetup(kind="vllm", tensor_parallel=parallel, gpu_memory_utilization=0.8)
    chosen = arguments(engine, setup, Checkpoint.open(path))
    assert chosen["tensor_parallel_size"] == parallel
    assert chosen["distributed_executor_backend"] == backend
    assert chosen["gpu_memory_utilization"] == 0.8
