"""The only place that chooses between this process and Ray. What costs seconds is imported inside."""

import os
from collections.abc import Callable
from typing import Any

from prunebench.errors import ResourceError


def make_worker(setups: dict[str, Any], threads: int) -> Any:  # noqa: ANN401 (importing its type would import torch)
    """A worker in this process."""
    from prunebench.evaluation.worker import Worker

    return Worker(setups, threads)


def executor_of(entry: Any) -> Callable[[dict[str, Any]], Any]:  # noqa: ANN401 (config and pipeline types: lazy)
    """The executor that the configuration names, to be made once everything else is checked."""
    from prunebench.pipeline.executor import LocalExecutor

    def local(setups: dict[str, Any]) -> LocalExecutor:
        if any(setup.device == "cuda" for setup in setups.values()):
            need_local_gpu()
        return LocalExecutor(lambda: make_worker(setups, entry.threads))

    def ray(setups: dict[str, Any]) -> Any:  # noqa: ANN401
        from prunebench.cluster.connect import connect
        from prunebench.cluster.executor import Patience, RayExecutor
        from prunebench.cluster.placement import Placement

        connect(entry.address, cpus=max(os.cpu_count() or 1, entry.workers * entry.threads))
        placement = Placement(workers=entry.workers, threads=entry.threads, gpus=entry.gpus_per_worker)
        patience = Patience(wait_s=entry.wait_s, silence_s=entry.silence_s)
        return RayExecutor(
            "prunebench.evaluation.worker:Worker", (setups, entry.threads), placement, patience
        )

    return ray if entry.kind == "ray" else local


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
