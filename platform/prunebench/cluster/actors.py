"""Actors: shells around `evaluation.worker.Worker` that hold the dense model."""

import importlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import ray

from prunebench.core.lease import ItemRunner
from prunebench.core.unit import Message, WorkItem


class WorkerShell:
    """One worker process."""

    def __init__(self, factory: str, arguments: tuple[Any, ...]) -> None:
        # Imported here and not by the driver, which does without torch.
        module, _, name = factory.partition(":")
        self._worker: ItemRunner = getattr(importlib.import_module(module), name)(*arguments)

    def whoami(self) -> tuple[str, str]:
        """Process id and host."""
        return str(os.getpid()), socket.gethostname()

    def run(self, item: WorkItem) -> Iterator[Message]:
        """Stream the item's messages."""
        yield from self._worker.run(item)


WorkerActor = ray.remote(max_restarts=0, max_task_retries=0)(WorkerShell)
"""Ray never restarts it: the driver's leases are the one retry."""
