"""The only place that chooses between this process and Ray. What costs seconds is imported inside."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prunebench.errors import ResourceError


def make_worker(setups: dict[str, Any], threads: int) -> Any:  # noqa: ANN401 (importing its type would import torch)
    """A worker in this process."""
    from prunebench.evaluation.worker import Worker

    return Worker(setups, threads)


def executor_of(entry: Any) -> Callable[[dict[str, Any]], Any]:  # noqa: ANN401 (config and pipeline types: lazy)
    """The executor that the configuration names, to be made once everything else is checked."""
    from prunebench.cluster.placement import place
    from prunebench.pipeline.executor import LocalExecutor

    def local(setups: dict[str, Any]) -> LocalExecutor:
        if any(setup.device == "cuda" for setup in setups.values()):
            need_local_gpu()
            own = entry.model_copy(update={"workers": 1})
            setups = spread(setups, place(own, needs_of(setups), [this_machine()]).gpus)
        return LocalExecutor(lambda: make_worker(setups, entry.threads))

    def ray(setups: dict[str, Any]) -> Any:  # noqa: ANN401
        from prunebench.cluster.connect import connect
        from prunebench.cluster.executor import Patience, RayExecutor
        from prunebench.cluster.nodes import cluster_nodes

        wanted = 0 if entry.workers == "auto" else entry.workers * entry.threads
        connect(entry.address, cpus=max(os.cpu_count() or 1, wanted))
        on_gpus = any(setup.device == "cuda" for setup in setups.values())
        placement = place(entry, needs_of(setups), cluster_nodes(measure=on_gpus))
        arguments = (spread(setups, placement.gpus), entry.threads)
        patience = Patience(wait_s=entry.wait_s, silence_s=entry.silence_s)
        return RayExecutor("prunebench.evaluation.worker:Worker", arguments, placement, patience)

    return ray if entry.kind == "ray" else local


def needs_of(setups: Mapping[str, Any]) -> list[Any]:
    """What a worker needs for each model."""
    from prunebench.evaluation.need import need_of

    return [need_of(name, setup) for name, setup in setups.items()]


def spread(setups: Mapping[str, Any], gpus: float) -> dict[str, Any]:
    """The setups of workers that have so many GPUs."""
    return {name: replace(setup, gpus=max(1, int(gpus))) for name, setup in setups.items()}


def need_local_gpu() -> None:
    """Refuse a run on a GPU that this machine has not.

    Raises:
        ResourceError: torch sees no usable NVIDIA GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise ResourceError(
            "device: cuda was asked for, but this machine has no usable NVIDIA GPU: set device: cpu"
        )


def this_machine() -> Any:  # noqa: ANN401
    """This machine as a node, with the GPUs that torch sees."""
    import torch

    from prunebench.cluster.placement import Node

    count = torch.cuda.device_count()
    sizes = [torch.cuda.get_device_properties(gpu).total_memory for gpu in range(count)]
    return Node(name="this machine", cpus=math.inf, gpus=count, gpu_memory=min(sizes))
