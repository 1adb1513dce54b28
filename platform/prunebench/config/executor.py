"""The executor section of an experiment file: where the work runs."""

from typing import Literal

from pydantic import Field

from prunebench.config.base import Strict

MAX_THREADS = 1024
"""OpenMP ends the process without a word when it cannot start as many threads as were asked for."""


class ExecutorEntry(Strict):
    """Where the work runs."""

    kind: Literal["local", "ray"] = "local"
    workers: int = Field(1, ge=1)
    threads: int = Field(1, ge=1, le=MAX_THREADS)
    """CPU threads a worker; another number may change the last bits of a result."""
    gpus_per_worker: float = Field(0, ge=0)
    wait_s: float = Field(600, ge=0)
    """Seconds that a run waits while the Ray cluster has no room for any worker, before it ends."""
    silence_s: float = Field(1800, gt=0)
    """Seconds after which a Ray worker that says nothing is taken for hanging and killed; 20 times the
    longest wait so far where that is more. An item is a minute of work, but loading a model is one step."""
    address: str | None = None
    """A running Ray cluster; RAY_ADDRESS or one started on this machine by default."""
