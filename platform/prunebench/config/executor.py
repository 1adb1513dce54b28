"""The executor section of an experiment file: where the work runs."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from prunebench.config.base import Strict

MAX_THREADS = 1024
"""OpenMP ends the process without a word when it cannot start as many threads as were asked for."""


class ExecutorEntry(Strict):
    """Where the work runs."""

    kind: Literal["local", "ray"] = "local"
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = 1
    """How many; auto: as many as the cluster holds when the run starts. Read by Ray alone."""
    threads: int = Field(1, ge=1, le=MAX_THREADS)
    """CPU threads a worker; another number may change the last bits of a result."""
    wait_s: float = Field(600, ge=0)
    """Seconds that a run waits while the Ray cluster has no room for any worker, before it ends."""
    silence_s: float = Field(1800, gt=0)
    """Seconds after which a Ray worker that says nothing is taken for hanging and killed; 20 times the
    longest wait so far where that is more. An item is a minute of work, but loading a model is one step."""
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    """A whole number, or a share of a GPU; auto: none for device: cpu, else what the largest model needs."""
    address: str | None = None
    """A running Ray cluster; RAY_ADDRESS or one started on this machine by default."""

    @field_validator("gpus_per_worker")
    @classmethod
    def is_whole_or_a_share(cls, gpus: float | Literal["auto"]) -> float | Literal["auto"]:
        """Refuse what Ray refuses when a worker starts."""
        if gpus != "auto" and gpus > 1 and gpus != int(gpus):
            raise ValueError(f"{gpus:g} GPUs a worker: write a whole number, or a share of one such as 0.5")
        return gpus
