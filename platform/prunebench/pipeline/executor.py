"""How work items reach workers: the protocol, and the executor that runs in this process."""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prunebench.core.lease import Delivery, Faults, ItemRunner
from prunebench.core.unit import WorkItem


class Executor(Protocol):
    """Moves work items to workers and their messages back, in any order."""

    faults: Faults
    """What happened to the workers so far."""

    def run(self, items: Sequence[WorkItem]) -> Iterator[Delivery]:
        """Deliver every message of every item; each item ends in results or `Failed`."""

    def close(self) -> None:
        """Let the workers go."""


class LocalExecutor:
    """Runs every item in this process."""

    def __init__(self, make_worker: Callable[[], ItemRunner]) -> None:
        self._make_worker = make_worker
        self._worker: ItemRunner | None = None
        self.faults = Faults()

    def run(self, items: Sequence[WorkItem]) -> Iterator[Delivery]:
        """Deliver the messages in the order of the items."""
        host = socket.gethostname()
        for item in items:
            self._worker = self._worker or self._make_worker()
            for message in self._worker.run(item):
                yield Delivery(message=message, worker="local", host=host, attempt=1)

    def close(self) -> None:
        """Drop the model."""
        self._worker = None
