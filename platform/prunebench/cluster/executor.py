"""RayExecutor: leases on a pool of worker actors; conforms to the pipeline's protocol by structure."""

import logging
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import exceptions

from prunebench.cluster.head import Head
from prunebench.cluster.metrics import RunMetrics
from prunebench.cluster.nodes import cluster_nodes
from prunebench.cluster.placement import Placement
from prunebench.cluster.seats import LOST, Seat, Seats
from prunebench.core.lease import Delivery, Faults, Lease, Leases
from prunebench.core.unit import Failed, Message, WorkItem
from prunebench.errors import PrunebenchError

logger = logging.getLogger(__name__)

LONGEST_TIMES = 20
"""How much longer than the longest wait for a message so far a wait may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a driver waits for workers, in seconds."""

    wait_s: float = 600.0
    """Without any worker, before the run ends."""
    silence_s: float = 1800.0
    """For a message of a worker at work, or LONGEST_TIMES the longest wait so far where that is longer."""


class RayExecutor:
    """Runs work items on actors that hold the dense model; replaces actors that die or hang."""

    def __init__(
        self,
        factory: str,
        arguments: tuple[Any, ...],
        placement: Placement,
        patience: Patience = Patience(),
    ) -> None:
        """`factory` is "module:Class" of the worker that each actor builds from `arguments`."""
        placement.check(cluster_nodes(measure=False))
        self._head = Head()
        self._patience = patience
        self._seats = Seats((factory, arguments), placement, patience.wait_s)
        self._longest = 0.0
        self._metrics = RunMetrics()
        self.faults = Faults()

    def run(self, items: Sequence[WorkItem]) -> Iterator[Delivery]:
        """Deliver every message of every item, in the order of arrival.

        Raises:
            ResourceError: the head is gone, no worker could be had, or a worker says what its machine lacks.
        """
        leases = Leases(items)
        self._seats.begin()
        while leases.unfinished:
            self._head.check()
            for seat in self._seats.idle():
                if lease := leases.take():
                    seat.work(lease)
            self._seats.fill(leases.waiting)
            self._metrics.state(waiting=leases.waiting, workers=len(self._seats.ready()))
            self.faults.seconds_waiting += self._seats.wait_for_room()
            for seat in self._heard():
                if seat.lease is None:
                    self._seats.greet(seat)
                else:
                    yield from self._receive(seat, seat.lease, leases)
            yield from self._end_silence(leases)

    def close(self) -> None:
        """Kill the actors; the cluster stays for whoever started it."""
        self._seats.close(kill=not self._head.lost)

    def _heard(self) -> list[Seat]:
        """The seats from which something arrived; waits at most a second for the first."""
        awaited = [seat.awaited for seat in self._seats if seat.awaited is not None]
        ready, _ = ray.wait(awaited, num_returns=1, timeout=1.0)
        if ready:
            ready, _ = ray.wait(awaited, num_returns=len(awaited), timeout=0)
        return [seat for seat in self._seats if seat.awaited in ready]

    def _receive(self, seat: Seat, lease: Lease, leases: Leases) -> Iterator[Delivery]:
        try:
            message = ray.get(next(seat.stream))
        except StopIteration:
            leases.finished(lease)
            seat.rest()
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, PrunebenchError):
                raise error.cause from error
            # Outside what the worker itself reports, for example a message that does not pickle.
            leases.finished(lease)
            seat.rest()
            yield _delivery(seat, lease, _failed(lease, error))
        except LOST as error:
            yield from self._lose(seat, lease, leases, str(error).splitlines()[0])
        else:
            now = time.monotonic()
            self._longest, seat.heard = max(self._longest, now - seat.heard), now
            lease.delivered(message)
            self._metrics.message(message)
            yield _delivery(seat, lease, message)

    def _end_silence(self, leases: Leases) -> Iterator[Delivery]:
        """Kill the workers that have said nothing for too long."""
        limit = max(self._patience.silence_s, LONGEST_TIMES * self._longest)
        now = time.monotonic()
        for seat in self._seats:
            if seat.lease and now - seat.heard > limit:
                yield from self._lose(seat, seat.lease, leases, f"it said nothing for {limit:.0f} s")

    def _lose(self, seat: Seat, lease: Lease, leases: Leases, cause: str) -> Iterator[Delivery]:
        logger.warning("worker %s on %s was lost: %s", seat.name, seat.host, cause)
        self._seats.remove(seat)
        held = len(lease.remaining)
        failed = leases.lost(lease, cause)
        given_up = len(failed.keys) if failed else 0
        self._metrics.lost()
        self.faults.workers_lost += 1
        self.faults.units_retried += held - given_up
        self.faults.units_given_up += given_up
        if failed:
            self._metrics.message(failed)
            yield _delivery(seat, lease, failed)


def _delivery(seat: Seat, lease: Lease, message: Message) -> Delivery:
    return Delivery(message=message, worker=seat.name, host=seat.host, attempt=lease.attempt)


def _failed(lease: Lease, error: exceptions.RayTaskError) -> Failed:
    cause = error.cause
    text = "".join(traceback.format_exception(error))
    return Failed(keys=lease.remaining, error=f"{type(cause).__name__}: {cause}", traceback=text)
