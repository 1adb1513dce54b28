"""RayExecutor: leases on a pool of worker actors; conforms to the pipeline's protocol by structure."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import exceptions
from ray.actor import ActorHandle

from prunebench.cluster.actors import WorkerActor
from prunebench.cluster.placement import Placement
from prunebench.core.lease import Delivery, Lease, Leases
from prunebench.core.unit import WorkItem
from prunebench.errors import ResourceError

logger = logging.getLogger(__name__)

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
START_TIMEOUT_S = 300
MAX_FAILED_STARTS = 3
LOST = (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.OutOfMemoryError)


@dataclass(slots=True)
class _Seat:
    """One worker: starting (waiting for `greeting`), idle, or streaming the messages of a lease."""

    actor: ActorHandle
    greeting: Any
    started: float
    name: str = ""
    host: str = ""
    lease: Lease | None = None
    stream: Any = None

    @property
    def awaited(self) -> Any:  # noqa: ANN401 (a reference or a stream of them)
        """What has to arrive next from this worker, None when idle."""
        return self.stream if self.lease else self.greeting


class RayExecutor:
    """Runs work items on actors that hold the dense model; replaces actors that die."""

    def __init__(self, factory: str, arguments: tuple[Any, ...], placement: Placement) -> None:
        """`factory` is "module:Class" of the worker that each actor builds from `arguments`."""
        placement.check({kind: float(amount) for kind, amount in ray.cluster_resources().items()})
        self._arguments = (factory, arguments)
        self._placement = placement
        self._seats: list[_Seat] = []
        self._failed_starts = 0

    def run(self, items: Sequence[WorkItem]) -> Iterator[Delivery]:
        """Deliver every message of every item, in the order of arrival."""
        leases = Leases(items)
        while leases.unfinished:
            self._hand_out(leases)
            awaited = [seat.awaited for seat in self._seats if seat.awaited is not None]
            ready, _ = ray.wait(awaited, num_returns=1, timeout=10.0)
            if ready:
                ready, _ = ray.wait(awaited, num_returns=len(awaited), timeout=0)
            self._check_starts()
            for seat in [seat for seat in self._seats if seat.awaited in ready]:
                if seat.lease is None:
                    self._greet(seat)
                else:
                    yield from self._receive(seat, seat.lease, leases)

    def close(self) -> None:
        """Kill the actors; the cluster stays for whoever started it."""
        for seat in self._seats:
            ray.kill(seat.actor)
        self._seats = []

    def _hand_out(self, leases: Leases) -> None:
        idle = [seat for seat in self._seats if seat.awaited is None]
        while idle and (lease := leases.take()):
            seat = idle.pop()
            seat.lease, seat.stream = (
                lease,
                seat.actor.run.options(num_returns="streaming").remote(lease.item),
            )
        starting = sum(seat.greeting is not None for seat in self._seats)
        for _ in range(min(self._placement.workers - len(self._seats), leases.waiting - starting)):
            self._seats.append(self._start_actor())

    def _start_actor(self) -> _Seat:
        threads = str(self._placement.threads)
        actor: Any = WorkerActor.options(
            num_cpus=self._placement.threads,
            num_gpus=self._placement.gpus,
            memory=self._placement.memory or None,
            runtime_env={"env_vars": dict.fromkeys(THREAD_VARIABLES, threads)},
        ).remote(*self._arguments)
        return _Seat(actor, actor.whoami.remote(), time.monotonic())

    def _check_starts(self) -> None:
        now = time.monotonic()
        if any(seat.greeting is not None and now - seat.started > START_TIMEOUT_S for seat in self._seats):
            raise ResourceError(f"a worker did not start within {START_TIMEOUT_S} s: look at `ray status`")

    def _greet(self, seat: _Seat) -> None:
        try:
            seat.name, seat.host = ray.get(seat.greeting)
            seat.greeting = None
            self._failed_starts = 0
        except LOST as error:
            self._seats.remove(seat)
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                cause = str(error).strip().splitlines()[-1].strip()
                raise ResourceError(
                    f"{self._failed_starts} workers in a row died at their start: {cause}"
                ) from error

    def _receive(self, seat: _Seat, lease: Lease, leases: Leases) -> Iterator[Delivery]:
        try:
            message = ray.get(next(seat.stream))
        except StopIteration:
            leases.finished(lease)
            seat.lease = seat.stream = None
            return
        except exceptions.RayTaskError as error:
            raise error.cause from error
        except LOST as error:
            logger.warning("worker %s on %s was lost: %s", seat.name, seat.host, str(error).splitlines()[0])
            self._seats.remove(seat)
            if failed := leases.lost(lease):
                yield Delivery(message=failed, worker=seat.name, host=seat.host, attempt=lease.attempt)
            return
        lease.delivered(message)
        yield Delivery(message=message, worker=seat.name, host=seat.host, attempt=lease.attempt)
