"""Seats: the worker actors of one driver, started, replaced, and waited for where the cluster has no room."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import exceptions
from ray.actor import ActorHandle

from prunebench.cluster.actors import WorkerActor
from prunebench.cluster.placement import Placement
from prunebench.cluster.threads import THREAD_VARIABLES
from prunebench.core.lease import Lease
from prunebench.errors import ResourceError

logger = logging.getLogger(__name__)

MAX_FAILED_STARTS = 3
LINE_EVERY_S = 30.0
FIRST_LINE_S = 3.0
"""The first line comes sooner where the last worker was lost than where the first one starts."""
LOST = (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.OutOfMemoryError)


@dataclass(slots=True)
class Seat:
    """One worker: starting (waiting for `greeting`), idle, or streaming the messages of a lease."""

    actor: ActorHandle
    greeting: Any
    name: str = ""
    host: str = ""
    lease: Lease | None = None
    stream: Any = None
    heard: float = field(default_factory=time.monotonic)
    """When it last said something or was given work, in seconds of the monotonic clock."""

    @property
    def awaited(self) -> Any:  # noqa: ANN401 (a reference or a stream of them)
        """What has to arrive next from this worker, None when idle."""
        return self.stream if self.lease else self.greeting

    def work(self, lease: Lease) -> None:
        """Hand it a lease."""
        self.lease, self.heard = lease, time.monotonic()
        self.stream = self.actor.run.options(num_returns="streaming").remote(lease.item)

    def rest(self) -> None:
        """Take the finished lease from it."""
        self.lease = self.stream = None


class Seats:
    """As many workers as the placement asks for and the cluster has room for."""

    def __init__(self, arguments: tuple[str, tuple[Any, ...]], placement: Placement, wait_s: float) -> None:
        """`arguments` are the factory's name and what it takes; `wait_s` bounds the time without a worker."""
        self._arguments = arguments
        self._placement = placement
        self._wait_s = wait_s
        self._all: list[Seat] = []
        self._failed_starts = 0
        self._had_one = False
        self.begin()

    def begin(self) -> None:
        """Work begins: the time until now was not spent waiting."""
        self._looked = time.monotonic()
        self._alone, self._line_at = 0.0, LINE_EVERY_S
        self._short, self._short_line_at = 0.0, FIRST_LINE_S

    def __iter__(self) -> Iterator[Seat]:
        """Every seat, also where some leave meanwhile."""
        return iter(tuple(self._all))

    def idle(self) -> list[Seat]:
        """Who waits for work."""
        return [seat for seat in self._all if seat.awaited is None]

    def ready(self) -> list[Seat]:
        """Who has started."""
        return [seat for seat in self._all if seat.greeting is None]

    def fill(self, waiting: int) -> None:
        """Start what is missing of the workers, but no more than the `waiting` leases keep busy."""
        starting = sum(seat.greeting is not None for seat in self._all)
        for _ in range(min(self._placement.workers - len(self._all), waiting - starting)):
            threads = str(self._placement.threads)
            actor: Any = WorkerActor.options(
                num_cpus=self._placement.threads,
                num_gpus=self._placement.gpus,
                memory=self._placement.memory or None,
                runtime_env={"env_vars": dict.fromkeys(THREAD_VARIABLES, threads)},
            ).remote(*self._arguments)
            self._all.append(Seat(actor, actor.whoami.remote()))

    def greet(self, seat: Seat) -> None:
        """Take a worker's first word.

        Raises:
            ResourceError: the third worker in a row died at its start.
        """
        try:
            seat.name, seat.host = ray.get(seat.greeting)
        except LOST as error:
            self.remove(seat)
            # A node that dies takes all its workers along, and says nothing about how workers start.
            self._failed_starts += "node has died" not in str(error)
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise ResourceError(
                    f"{self._failed_starts} workers in a row died at their start: {last_line(error)}"
                ) from error
            return
        seat.greeting = None
        self._failed_starts = 0
        self._had_one = True

    def remove(self, seat: Seat) -> None:
        """Let a lost or silent worker go; its process, where there is one left, is killed."""
        ray.kill(seat.actor)
        self._all.remove(seat)

    def wait_for_room(self) -> float:
        """Say every 30 seconds what is waited for while there is no worker at all.

        Returns:
            Seconds since the last look in which there was none any more.

        Raises:
            ResourceError: there was none for `wait_s`.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        if ready := len(self.ready()):
            self._alone, self._line_at = 0.0, FIRST_LINE_S
            self._tell_shortage(ready, passed)
            return 0.0
        self._alone += passed
        if self._alone >= self._wait_s:
            raise ResourceError(
                f"no worker for {self._alone:.0f} s: {self._missing()}; add nodes (see `ray status`) and run "
                "the same command to resume, or raise executor.wait_s"
            )
        if self._alone >= self._line_at:
            logger.warning("%s, for %.0f s of at most %.0f s", self._missing(), self._alone, self._wait_s)
            self._line_at = self._alone + LINE_EVERY_S
        return passed if self._had_one else 0.0

    def _tell_shortage(self, ready: int, passed: float) -> None:
        """Say every 30 seconds that the cluster has no room for some of the workers, where that is so."""
        self._short = 0.0 if ready == len(self._all) else self._short + passed
        if not self._short:
            self._short_line_at = FIRST_LINE_S
        if self._short < self._short_line_at:
            return
        self._short_line_at = self._short + LINE_EVERY_S
        total, workers = ray.cluster_resources(), len(self._all)
        for kind, need in (("GPU", self._placement.gpus), ("CPU", self._placement.threads)):
            # Workers that load a large model wait for nobody.
            if (have := total.get(kind, 0.0)) < workers * need:
                told = f"{workers} workers need {workers * need:g} {kind}s, but the cluster has {have:g}"
                logger.warning("%s: %d of them go on, the others wait for nodes", told, ready)
                return

    def _missing(self) -> str:
        total, free = ray.cluster_resources(), ray.available_resources()
        for kind, need in (("GPU", self._placement.gpus), ("CPU", self._placement.threads)):
            if free.get(kind, 0.0) < need:
                have = f"{total.get(kind, 0.0):g}, of which {free.get(kind, 0.0):g} are free"
                return f"waiting for {need:g} {kind}{'s' * (need != 1)}: the cluster has {have}"
        return "waiting for a worker to start"

    def close(self, *, kill: bool) -> None:
        """Forget every worker; `kill` their processes unless nobody is there to do it."""
        for seat in self._all if kill else ():
            ray.kill(seat.actor)
        self._all = []


def last_line(error: Exception) -> str:
    """What an error of Ray comes to."""
    return str(error).strip().splitlines()[-1].strip()
