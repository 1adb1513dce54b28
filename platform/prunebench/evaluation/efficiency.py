"""Latency, throughput and memory of a plan's deployed shape (`data.protocols` says by which protocol).

Each metric is the protocol's statistic of the repeats, all of which are in its detail with their sd. The
dense model stays in memory beside the deployed one, so the peak is counted as if it did not: the bytes of the
deployed model's own parameters and buffers, and what the work took on top of what was allocated before it.

Nothing else may run on the machine meanwhile. A work item times one plan; the executor's `workers` decide how
many items run at once, and have to be one a machine.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import Document, Protocol, Workload
from prunebench.errors import InputError, NonFiniteError
from prunebench.models.hardware import Meter, hardware_name
from prunebench.models.load import DenseModel
from prunebench.models.view import ModelView

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Seconds of one timed repeat."""

    prefill: float
    decode: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All that was measured of one plan."""

    repeats: tuple[Repeat, ...]
    growth: int | None
    """Bytes above those in use before the first warm-up; None where they cannot be told."""
    weights: int
    """Bytes of parameters and buffers."""
    parameters: int


@dataclass(frozen=True)
class Efficiency:
    """One sample a metric; each range of documents is one workload."""

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | NonFiniteError]]:
        """Yield each distinct plan with its samples.

        Raises:
            InputError: other hardware or another number of threads than the workload is for, or a model over
                several GPUs, whose blocks wait for each other.
            UnsupportedError: a plan that has no deployed shape.
        """
        if len(devices := {parameter.device for parameter in dense.model.parameters()}) > 1:
            raise InputError(
                f"the model is spread over {len(devices)} GPUs: latency and memory are those of one GPU; "
                "leave tasks of kind efficiency out, or take a GPU that holds the model"
            )
        view = ModelView(dense)
        for plan in dict.fromkeys(plans):
            samples: list[Sample] = []
            for document in documents:
                work = _workload(document, dense.device)
                with view.applied(plan, deployed=True) as model:
                    timing = time_model(model, work, dense.device)
                samples += _samples(document, work.protocol, timing, dense.device)
            yield plan, tuple(samples)


def _workload(document: Document, device: str) -> Workload:
    assert isinstance(document.payload, Workload)
    work, found = document.payload, hardware_name(device)
    if work.hardware != found:
        raise InputError(
            f"this worker runs on {found}, but the task is for {work.hardware}: set the task's hardware to "
            f"{found}, or run it elsewhere"
        )
    if work.threads != torch.get_num_threads():
        raise InputError(
            f"this worker has {torch.get_num_threads()} CPU threads, but the task is for {work.threads}"
        )
    return work


@torch.inference_mode()
def time_model(model: Any, work: Workload, device: str) -> Timing:  # noqa: ANN401 (a Transformers model)
    """Warm up and time a model as it is.

    Args:
        model: a Transformers `...ForCausalLM` on the device.
        work: what is timed.
        device: where the model is.
    """
    ids, meter = torch.from_numpy(work.ids).to(device), Meter(device)
    step: Callable[..., Any] = torch.compile(model.forward) if work.compiled else model
    # What a process takes once, such as workspaces of libraries, is no plan's own.
    model(input_ids=ids[:, :1], use_cache=False)
    meter.take_baseline()
    for _ in range(work.protocol.warmup):
        _repeat(model, step, ids, work.protocol, meter)
    meter.reset_peak()
    repeats = tuple(_repeat(model, step, ids, work.protocol, meter) for _ in range(work.protocol.repeats))
    growth = meter.growth()
    if work.compiled:
        torch.compiler.reset()
    tensors = [*model.parameters(), *model.buffers()]
    return Timing(
        repeats=repeats,
        growth=growth,
        weights=sum(tensor.nbytes for tensor in tensors),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def _repeat(
    model: Any,  # noqa: ANN401 (a Transformers model)
    step: Callable[..., Any],
    ids: Tensor,
    protocol: Protocol,
    meter: Meter,
) -> Repeat:
    """One prefill, by `step` where there is nothing else to do, and its steps."""
    prefill = model if protocol.steps else step
    cache = _cache(model.config, protocol)
    meter.settle()
    began = time.perf_counter()
    token = _next(
        prefill(
            input_ids=ids,
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=int(protocol.last_logits),
        )
    )
    meter.settle()
    filled = time.perf_counter()
    for _ in range(protocol.steps):
        token = _next(step(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1))
    meter.settle()
    return Repeat(prefill=filled - began, decode=time.perf_counter() - filled)


def _next(output: Any) -> Tensor:  # noqa: ANN401 (a Transformers output)
    return output.logits[:, -1:].argmax(-1)


def _cache(config: Any, protocol: Protocol) -> Cache | None:  # noqa: ANN401 (a Transformers config)
    match protocol.cache:
        case "static":
            return StaticCache(config=config, max_cache_len=protocol.prompt_tokens + protocol.steps)
        case "dynamic":
            return DynamicCache(config=config)
        case "none":
            return None


def _samples(document: Document, protocol: Protocol, timing: Timing, device: str) -> Iterator[Sample]:
    prefill = [repeat.prefill for repeat in timing.repeats]
    decode = [repeat.decode for repeat in timing.repeats]
    yield _statistic(document, protocol, "prefill_ms", [1000 * seconds for seconds in prefill])
    if protocol.steps:
        steps = [1000 * seconds / protocol.steps for seconds in decode]
        yield _statistic(document, protocol, "decode_ms_per_token", steps)
    per_prompt = protocol.prompt_tokens if protocol.throughput == "prefill" else protocol.steps
    counted = {"prefill": prefill, "decode": decode, "both": map(sum, zip(prefill, decode, strict=True))}
    speeds = [protocol.batch * per_prompt / seconds for seconds in counted[protocol.throughput]]
    yield _statistic(document, protocol, "tokens_per_s", speeds)
    weights, growth = timing.weights, timing.growth
    detail: dict[str, Json] = {"weights_bytes": weights, "growth_bytes": growth}
    if device == "cpu":
        yield _sample(document, "peak_rss_growth_gib", None if growth is None else growth / GIB, detail)
    else:
        yield _sample(document, "peak_memory_gib", (weights + (growth or 0)) / GIB, detail)
    yield _sample(document, "parameters", timing.parameters, {})


def _statistic(document: Document, protocol: Protocol, metric: str, repeats: list[float]) -> Sample:
    value = statistics.median(repeats) if protocol.statistic == "median" else statistics.fmean(repeats)
    spread = statistics.stdev(repeats) if len(repeats) > 1 else None
    detail: dict[str, Json] = {"repeats": repeats, "sd": spread, "statistic": protocol.statistic}
    return _sample(document, metric, value, detail)


def _sample(document: Document, metric: str, value: float | None, detail: dict[str, Json]) -> Sample:
    measured = value is not None
    return Sample(
        doc_id=document.doc_id,
        doc_hash=document.doc_hash,
        metric=metric,
        value=float(value) if measured else 0.0,
        weight=float(measured),
        detail=canonical_json(detail),
        status="ok" if measured else "not_measurable_here",
    )
