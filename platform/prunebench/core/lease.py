"""Leases: who has which work item, and what happens when a worker is lost.

Delivery is at least once. One mechanism retries, this one: a lost worker gives its lease back without
counting against the work, except for a unit that was alone in a worker's hands at three deaths.
"""

import collections
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from prunebench.core.unit import (
    CalibrateItem,
    EvaluateItem,
    Failed,
    Generated,
    GenerateItem,
    Message,
    PlanItem,
    ProbeAnswered,
    StatsDone,
    TogetherItem,
    UnitDone,
    WorkItem,
)

MAX_DEATHS = 3


@dataclass(slots=True)
class Faults:
    """What a run met that was none of its own doing."""

    workers_lost: int = 0
    units_retried: int = 0
    """Units (or other items) that a lost worker had not answered, and another was given."""
    units_given_up: int = 0
    seconds_waiting: float = 0.0
    """Without any worker, because the cluster had no room for one."""

    def __str__(self) -> str:
        """One line for a person; empty where nothing happened."""
        told = (
            ("workers lost", self.workers_lost),
            ("units tried again", self.units_retried),
            ("units given up", self.units_given_up),
            ("s without workers", round(self.seconds_waiting)),
        )
        return ", ".join(f"{count} {what}" for what, count in told if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message of a work item, and where it came from."""

    message: Message
    worker: str
    host: str
    attempt: int
    """1 for the first time that the item was handed out."""


class ItemRunner(Protocol):
    """What a worker is to an executor."""

    def run(self, item: WorkItem) -> Iterator[Message]:
        """Stream the item's messages; exceptions of evaluation code arrive as `Failed`."""


@dataclass(slots=True)
class Lease:
    """An item in a worker's hands: what remains of it shrinks as results arrive."""

    item: WorkItem
    attempt: int
    losses: int = 0
    """Workers lost with more than one unit of it in their hands."""

    @property
    def remaining(self) -> tuple[str, ...]:
        """Ids of what remains: unit ids of an evaluation, the key of any other item."""
        match self.item:
            case EvaluateItem(unit=unit, plans=plans):
                return tuple(unit.for_plan(plan.plan_id).unit_id for plan in plans)
            case GenerateItem():
                return self.item.unit_ids
            case TogetherItem():
                return tuple(key for part in self._parts() for key in part.remaining)
            case _:
                return (self.item.key,)

    def delivered(self, message: Message) -> None:
        """Take what `message` settles off the item, so that a lost worker repeats nothing."""
        match self.item, message:
            case EvaluateItem() | GenerateItem(), UnitDone(unit=unit):
                self._settle({unit.unit_id})
            case EvaluateItem() | GenerateItem(), Failed(keys=keys):
                self._settle(set(keys))
            case GenerateItem() as item, Generated(unit=unit, generation=generation):
                self.item = item.with_known(unit.generation_id, generation)
            case PlanItem() as item, ProbeAnswered(call_id=call_id, value=value):
                self.item = replace(item, remembered={**item.remembered, call_id: value})
            case TogetherItem() as item, _:
                parts = self._parts()
                for part in parts:
                    part.delivered(message)
                settled = _settled_keys(message)
                left = [
                    part.item
                    for part in parts
                    if isinstance(part.item, CalibrateItem | EvaluateItem) and set(part.remaining) - settled
                ]
                self.item = replace(item, items=tuple(left))

    def _settle(self, settled: set[str]) -> None:
        match self.item:
            case EvaluateItem(unit=unit, plans=plans) as item:
                left = [plan for plan in plans if unit.for_plan(plan.plan_id).unit_id not in settled]
                self.item = replace(item, plans=tuple(left))
            case GenerateItem() as item:
                self.item = item.only(set(item.unit_ids) - settled)

    def _parts(self) -> list["Lease"]:
        assert isinstance(self.item, TogetherItem)
        return [Lease(item, self.attempt) for item in self.item.items]

    def split(self) -> list["Lease"]:
        """One lease for each remaining unit, so that one that kills its worker is found."""
        match self.item:
            case EvaluateItem(plans=plans) as item:
                return [Lease(replace(item, plans=(plan,)), self.attempt) for plan in plans]
            case GenerateItem() as item:
                return [Lease(item.only({unit_id}), self.attempt) for unit_id in item.unit_ids]
            case TogetherItem():
                return [one for part in self._parts() for one in part.split()]
            case _:
                return [self]


def _settled_keys(message: Message) -> set[str]:
    match message:
        case UnitDone(unit=unit):
            return {unit.unit_id}
        case StatsDone(key=key):
            return {key}
        case Failed(keys=keys):
            return set(keys)
        case _:
            return set()


class Leases:
    """The queue of work items and the count of worker deaths by unit."""

    def __init__(self, items: Sequence[WorkItem]) -> None:
        self._waiting = collections.deque(Lease(item, 0) for item in items)
        self._deaths: collections.Counter[str] = collections.Counter()
        self._out = 0

    @property
    def unfinished(self) -> bool:
        """Whether anything is waiting or in a worker's hands."""
        return bool(self._waiting) or self._out > 0

    @property
    def waiting(self) -> int:
        """Number of leases that no worker has."""
        return len(self._waiting)

    def take(self) -> Lease | None:
        """The next lease, or None when none is waiting."""
        if not self._waiting:
            return None
        lease = self._waiting.popleft()
        lease.attempt += 1
        self._out += 1
        return lease

    def finished(self, lease: Lease) -> None:
        """The worker came to the item's end."""
        del lease
        self._out -= 1

    def lost(self, lease: Lease, cause: str) -> Failed | None:
        """The worker died: put back what remains, or give up the one unit that was alone at three deaths."""
        self._out -= 1
        left = lease.remaining
        if len(left) > 1:
            # Which of them its worker died at is not known, and a node takes whatever it holds along.
            lease.losses += 1
            self._waiting.extendleft(lease.split() if lease.losses > 1 else [lease])
            return None
        self._deaths.update(left)
        if left and self._deaths[left[0]] >= MAX_DEATHS:
            return Failed(
                keys=left, error=f"in flight at {MAX_DEATHS} worker deaths, the last: {cause}", traceback=""
            )
        if left:
            self._waiting.appendleft(lease)
        return None
