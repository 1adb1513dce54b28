"""One model under one plan, timed by one protocol, without a store."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from prunebench.config.base import explain
from prunebench.config.tasks import EfficiencyTask
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import TaskData
from prunebench.models.checkpoint import Checkpoint
from prunebench.pipeline.prepare import text_codec
from prunebench.pipeline.tasks import Site, efficiency_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is timed, checked before anything is loaded."""

    checkpoint: Checkpoint
    plan: PruningPlan
    task: TaskData
    dtype: str
    attention: str
    site: Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What came of it."""

    job: Job
    samples: tuple[Sample, ...]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Value (null where it cannot be told here) and detail of each metric; times hold every repeat."""
        return {
            sample.metric: {
                "value": sample.value if sample.weight else None,
                **json.loads(sample.detail),
            }
            for sample in self.samples
        }

    def to_json(self) -> dict[str, Any]:
        """What --json prints."""
        return {
            "model": self.job.checkpoint.name,
            "plan_id": self.job.plan.plan_id,
            "removed_layers": list(self.job.plan.removed_layers),
            "dtype": self.job.dtype,
            "attention": self.job.attention,
            **self.job.task.recipe,
            "metrics": self.metrics,
        }


def parse_efficiency(protocol: str, settings: Mapping[str, Any]) -> EfficiencyTask:
    """A protocol with settings from the command line.

    Raises:
        InputError: unknown, or a value that a file could not hold either.
    """
    try:
        return EfficiencyTask.model_validate({"kind": "efficiency", "protocol": protocol, **settings})
    except ValidationError as error:
        raise explain(error, "bench") from error


def prepare_bench(
    model: str, plan: PruningPlan | None, setting: EfficiencyTask, *, dtype: str, attention: str, site: Site
) -> Job:
    """Resolve everything; no plan is the dense model, and dtype auto is float32 on a CPU, else the file's.

    Raises:
        InputError: no such model, or hardware that is not here.
    """
    checkpoint = Checkpoint.open(model)
    if dtype == "auto":
        dtype = "float32" if site.device == "cpu" else checkpoint.dtype
    return Job(
        checkpoint=checkpoint,
        plan=plan or PruningPlan.dense(checkpoint.shape.num_layers),
        task=efficiency_of("bench", setting, text_codec(checkpoint), site),
        dtype=dtype,
        attention=attention,
        site=site,
    )


def bench(job: Job) -> Timed:
    """Load the model and time it.

    Raises:
        InputError: a plan for a model of other sizes, or a task for other hardware.
        UnsupportedError: a plan without a deployed shape.
        ResourceError: no such device.
    """
    import torch

    from prunebench.evaluation.efficiency import Efficiency
    from prunebench.models.load import load_model

    torch.set_num_threads(job.site.threads)
    dense = load_model(job.checkpoint, dtype=job.dtype, attention=job.attention, device=job.site.device)
    ((_, samples),) = Efficiency().evaluate(dense, [job.plan], job.task.documents)
    assert isinstance(samples, tuple)
    return Timed(job=job, samples=samples)
