"""Planning one method on one model, in this process and without a store."""

import functools
import json
import operator
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prunebench.config.experiment import MethodEntry
from prunebench.config.params import params_json, parse_params
from prunebench.core.fingerprint import Json
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.core.unit import (
    CalibrateItem,
    Failed,
    Message,
    PlanDone,
    PlanItem,
    ProbeAnswered,
    StatsDone,
    WeightsItem,
    WorkItem,
)
from prunebench.data.corpus import Corpus, load_corpus
from prunebench.data.spec import parse_spec
from prunebench.errors import InputError, PrunebenchError, UnreachableError
from prunebench.evaluation.planning import ask_method
from prunebench.methods import method_named
from prunebench.methods.base import Measurements
from prunebench.models.checkpoint import Checkpoint
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.measure import shards
from prunebench.pipeline.prepare import Request, request_of, text_codec
from prunebench.pipeline.progress import Progress
from prunebench.pipeline.together import shards_together


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What `prunebench prune` prints."""

    request: Request
    plan: PruningPlan
    chosen: str
    warnings: tuple[str, ...]
    dtype: str
    removed_params: int
    requested_params: int
    total_params: int
    seconds: float
    peak_rss_mb: float

    def to_json(self) -> dict[str, Json]:
        """The contract of the command line's --json."""
        return {
            "method": self.request.method.name,
            "params": params_json(self.request.params),
            "chosen": json.loads(self.chosen),
            "budget": self.request.budget.layers,
            "num_layers": self.plan.num_layers,
            "removed_layers": list(self.plan.removed_layers),
            "merged": {str(base): [[j, c] for j, c in blend] for base, blend in self.plan.merged.items()},
            "kept_features": {str(layer): m for layer, m in self.plan.kept_features.items()},
            "dropped": {str(layer): list(names) for layer, names in self.plan.dropped.items()},
            "removed_params": self.removed_params,
            "requested_params": self.requested_params,
            "total_params": self.total_params,
            "plan_id": self.plan.plan_id,
            "plan": self.plan.to_json(),
            "dtype": self.dtype,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "peak_rss_mb": self.peak_rss_mb,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One method on one model, resolved and checked."""

    checkpoint: Checkpoint
    request: Request
    calibration: Corpus | None
    probe: Corpus | None
    memory: int | None


def prepare_prune(
    *,
    model: str,
    method: str,
    budget: str,
    params: dict[str, Any],
    calibration: str | None,
    probe: str | None,
    mirror: Path | None,
    memory: int | None,
) -> Job:
    """Resolve the model, the parameters and the corpora; relative paths start at the working directory.

    Raises:
        InputError: anything that is wrong with them.
    """
    parse_params(method_named(method), params)
    entry = MethodEntry(method=method, params=params)
    checkpoint = Checkpoint.open(model)
    request = request_of(checkpoint, entry, budget)
    if request.unsupported:
        raise InputError(request.unsupported)
    codec = text_codec(checkpoint)

    def corpus(spec: str | None, needed: bool, what: str) -> Corpus | None:
        if not needed:
            return None
        if spec is None:
            raise InputError(
                f"{method} needs {what}, such as --calibration 'builtin:pydoc?samples=8&length=512'"
            )
        return load_corpus(parse_spec(spec, Path.cwd()), codec, mirror=mirror)

    return Job(
        checkpoint=checkpoint,
        request=request,
        calibration=corpus(calibration, request.calibration is not None, "--calibration SPEC"),
        probe=corpus(probe or calibration, request.probe is not None, "--probe SPEC or --calibration SPEC"),
        memory=memory,
    )


def prune(
    job: Job, *, dtype: str, executor: LocalExecutor, progress: Progress, streamed: bool = False
) -> Pruning:
    """Measure what the method needs and plan.

    Raises:
        UnreachableError: no setting of the method removes exactly the budget.
        PrunebenchError: the evaluation failed.
    """
    started = time.perf_counter()
    request, shape = job.request, job.checkpoint.shape
    needs = request.method.needs(request.params)
    seen = _measure(job, needs, executor, progress, dtype if streamed else None)
    if job.probe is None:
        measured = Measurements(shape=shape, calibration=_calibration(seen), weights=_weights(seen))
        done = ask_method("plan", request.method.name, measured, request.budget, request.params)
    else:
        item = PlanItem(
            key="plan",
            model="model",
            method=request.method.name,
            params=request.params,
            budget=request.budget.layers,
            calibration=seen.get("calibration"),
            weights=seen.get("weights"),
            corpus_id=job.probe.corpus_id,
            rows=job.probe.rows,
        )
        (done,) = [
            message for message in _run(executor, "plan", [item], progress) if isinstance(message, PlanDone)
        ]
    if done.plan is None:
        raise UnreachableError(f"{request.method.name}, budget {request.budget.layers}: {done.unreachable}")
    plan = PruningPlan.from_json(done.plan)
    return Pruning(
        request=request,
        plan=plan,
        chosen=done.chosen,
        warnings=done.warnings,
        dtype=dtype,
        removed_params=plan.removed_params(shape),
        requested_params=request.budget.params(shape),
        total_params=plan.total_params(shape),
        seconds=time.perf_counter() - started,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _measure(
    job: Job,
    needs: frozenset[str],
    executor: LocalExecutor,
    progress: Progress,
    streamed_dtype: str | None,
) -> dict[str, bytes]:
    """Serialised statistics by what they are: calibration, weights; a dtype: the model is streamed."""
    items: list[WorkItem] = []
    if job.calibration is not None:
        rows = job.calibration.rows
        source = job.calibration.corpus_id
        parts = [
            CalibrateItem(key=f"calibration-{start}", model="model", source=source, rows=rows[start:stop])
            for start, stop in shards(job.calibration)
        ]
        shape = job.checkpoint.shape
        items += parts if streamed_dtype is None else shards_together(parts, shape, streamed_dtype)
    if needs & {"weights", "cka"}:
        items.append(WeightsItem(key="weights", model="model", cka="cka" in needs, memory=job.memory))
    done = [
        message for message in _run(executor, "measure", items, progress) if isinstance(message, StatsDone)
    ]
    seen = {message.key: message.data for message in done if message.key == "weights"}
    if parts := [CalibrationStats.from_bytes(message.data) for message in done if message.key != "weights"]:
        seen["calibration"] = functools.reduce(operator.add, parts).to_bytes()
    return seen


def _run(executor: LocalExecutor, stage: str, items: Sequence[WorkItem], progress: Progress) -> list[Message]:
    messages: list[Message] = []
    if items:
        progress.start(stage, len(items))
        for delivery in executor.run(items):
            if isinstance(delivery.message, Failed):
                raise PrunebenchError(f"{stage}: {delivery.message.error}")
            messages.append(delivery.message)
            if not isinstance(delivery.message, ProbeAnswered):
                progress.advance()
        progress.finish()
    return messages


def _calibration(seen: dict[str, bytes]) -> CalibrationStats | None:
    return CalibrationStats.from_bytes(seen["calibration"]) if "calibration" in seen else None


def _weights(seen: dict[str, bytes]) -> WeightStats | None:
    return WeightStats.from_bytes(seen["weights"]) if "weights" in seen else None
