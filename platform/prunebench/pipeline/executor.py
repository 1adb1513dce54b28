"""How work items reach workers: the protocol, and the executor that runs in this process."""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prunebench.core.lease import Delivery, ItemRunner
from prunebench.core.unit import WorkItem


class Executor(Protocol):
    """Moves work items to workers and their messages back, in any order."""

    def run(self, items: Sequence[WorkItem]) -> Iterator[Delivery]:
        """Deliver every message of every item; each item ends in results or `Failed`."""

    def close(self) -> None:
        """Let the workers go."""


class LocalExecutor:
    """Runs every item in this process."""

    def __init__(self, make_worker: Callable[[], ItemRunner]) -> None:
        self._make_worker = make_worker
        self._worker: ItemRunner | None = None

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
