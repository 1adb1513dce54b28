"""Placement: how many workers of which size a cluster's nodes hold. No Ray here: sizes in, sizes out.

A worker is one actor, and Ray keeps an actor on one node: one that asks for several GPUs gets them there. A
share of a GPU is the user's and Ray's book-keeping alone, so what shares a GPU has to fit by its numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prunebench.config.executor import ExecutorEntry
from prunebench.errors import ResourceError
from prunebench.evaluation.need import Need
from prunebench.models.footprint import GIB

USABLE: Final = 0.95
"""Share of a GPU's memory that is planned with: allocators leave gaps."""
GRAIN: Final = 10_000
"""Ray counts shares in ten-thousandths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one node offers."""

    name: str
    cpus: float
    gpus: float = 0.0
    memory: float = math.inf
    """Bytes that Ray hands out."""
    gpu_memory: int | None = None
    """Bytes of its smallest GPU; None where nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What the workers need: their number; CPU threads, GPUs and bytes of memory each."""

    workers: int
    threads: int
    gpus: float = 0.0
    memory: int = 0

    def check(self, nodes: Sequence[Node]) -> None:
        """Compare the need with a cluster's nodes; Ray itself would wait for ever without a word.

        Raises:
            ResourceError: with the numbers and what to do.
        """
        for kind, need, have in (
            ("CPU", self.workers * self.threads, sum(node.cpus for node in nodes)),
            ("GPU", self.workers * self.gpus, sum(node.gpus for node in nodes)),
        ):
            if need > have:
                each = "threads" if kind == "CPU" else "gpus_per_worker"
                raise ResourceError(
                    f"{self.workers} workers need {need:g} {kind}s, but the Ray cluster has {have:g}: "
                    f"lower executor.workers or executor.{each}, or add nodes"
                )

        if self.workers > (held := sum(map(self.fitting, nodes))):
            raise ResourceError(
                f"{self.workers} workers of {self.size} each are wanted, but the {len(nodes)} nodes hold "
                f"{held} (the largest has {_largest(nodes)}): lower executor.workers, or add nodes"
            )

    def fitting(self, node: Node) -> int:
        """How many such workers one node holds."""
        fits = node.cpus // self.threads
        if self.memory:
            fits = min(fits, node.memory // self.memory)
        if self.gpus >= 1:
            fits = min(fits, node.gpus // self.gpus)
        elif self.gpus:
            fits = min(fits, node.gpus * math.floor(1 / self.gpus))
        return int(fits)

    @property
    def size(self) -> str:
        """One worker's size in words."""
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        memory = f" and {self.memory / GIB:.1f} GiB of memory" if self.memory else ""
        return f"{self.threads} CPUs{gpus}{memory}"


def place(entry: ExecutorEntry, needs: Sequence[Need], nodes: Sequence[Node]) -> Placement:
    """The workers of a run: every worker may be given every model, so each is as large as the largest needs.

    `gpus_per_worker: auto` is a whole GPU, or as many as the largest model needs; where more workers are
    wanted than that leaves room for and several fit one GPU, they share. Where GPUs differ, the smallest
    counts: Ray may start a worker on any.

    Raises:
        ResourceError: a model does not fit its worker, or the workers do not fit the nodes, with the numbers.
    """
    gpus = _gpus(entry, needs, nodes)
    memory = max((need.memory for need in needs), default=0)
    one = Placement(workers=1, threads=entry.threads, gpus=gpus, memory=memory)
    held = sum(map(one.fitting, nodes))
    workers = max(1, held) if entry.workers == "auto" else entry.workers
    if workers > held and entry.gpus_per_worker == "auto" and gpus == 1:
        gpus = _share(workers, one, needs, nodes)
    placement = Placement(workers=workers, threads=entry.threads, gpus=gpus, memory=memory)
    placement.check(nodes)
    return placement


def _gpus(entry: ExecutorEntry, needs: Sequence[Need], nodes: Sequence[Node]) -> float:
    """GPUs of one worker: those asked for, checked, or a whole number of them that holds every model."""
    resident = [need for need in needs if need.weights]
    if entry.gpus_per_worker != "auto":
        for need in resident:
            _check_fits(need, entry.gpus_per_worker, _smallest(nodes))
        return entry.gpus_per_worker
    if not resident:
        return 0.0
    if (smallest := _smallest(nodes)) is None:
        if any(node.gpus for node in nodes):
            names = ", ".join(node.name for node in nodes if node.gpus and node.gpu_memory is None)
            raise ResourceError(
                f"the memory of the GPUs of {names} cannot be told (nvidia-smi fails, or MIG splits "
                "MIG): set executor.gpus_per_worker instead of auto"
            )
        raise ResourceError(
            f"{resident[0].model} asks for device: cuda, but no node of the cluster has a GPU (Ray knows of "
            "none): set device: cpu, or add nodes"
        )
    gpus = max(max(need.parallel, _whole(need, smallest)) for need in resident)
    for need in resident:
        _check_fits(need, gpus, smallest)
    return float(gpus)


def _whole(need: Need, gpu_memory: int) -> int:
    """The fewest GPUs that hold the model beside the work on each.

    Raises:
        ResourceError: not even the work fits one.
    """
    room = USABLE * gpu_memory - need.work
    if room <= 0:
        raise ResourceError(
            f"{need.model} works with {need.work / GIB:.1f} GiB on each GPU, but the smallest has "
            f"{gpu_memory / GIB:.1f} GiB: choose a narrower dtype or attention: sdpa, or a larger GPU"
        )
    return math.ceil(need.weights / room)


def _check_fits(need: Need, gpus: float, gpu_memory: int | None) -> None:
    """Refuse a worker that its model overfills; where a GPU's memory is unknown nothing can be said.

    Raises:
        ResourceError: with the numbers.
    """
    if gpu_memory is None or not gpus:
        return
    if need.parallel and gpus >= 1:
        has = need.parallel * need.utilization * gpu_memory
        if need.weights > has:
            raise ResourceError(
                f"{need.model} has {need.weights / GIB:.1f} GiB of weights, but vLLM on {need.parallel} GPUs "
                f"may take {has / GIB:.1f} GiB: raise the engine's tensor_parallel"
            )
    wanted = need.weights + max(1, gpus) * need.work
    has = USABLE * gpus * gpu_memory
    if wanted > has:
        raise ResourceError(
            f"{need.model} needs {wanted / GIB:.1f} GiB ({need.weights / GIB:.1f} of weights, "
            f"{need.work / GIB:.1f} of work on each GPU), but {gpus:g} GPUs a worker give {has / GIB:.1f} "
            "GiB: raise executor.gpus_per_worker (or leave it auto), choose a narrower dtype, or stream the "
            "model (docs/large-models.md)"
        )


def _share(workers: int, one: Placement, needs: Iterable[Need], nodes: Sequence[Node]) -> float:
    """The largest share of a GPU at which the nodes hold all workers, if their models fit it; else 1."""
    smallest = _smallest(nodes)
    assert smallest is not None
    largest = max(need.weights + need.work for need in needs)
    # vLLM measures its share of the whole GPU.
    together = 1 if any(need.parallel for need in needs) else int(USABLE * smallest // largest)
    for tenants in range(2, together + 1):
        share = share_of(tenants)
        shared = Placement(workers=workers, threads=one.threads, gpus=share, memory=one.memory)
        if sum(map(shared.fitting, nodes)) >= workers:
            return share
    return 1.0


def share_of(tenants: int) -> float:
    """The share of a GPU that so many workers each get, as Ray counts it: together never more than one."""
    return math.floor(GRAIN / tenants) / GRAIN


def _smallest(nodes: Iterable[Node]) -> int | None:
    """Bytes of the smallest GPU; None where one is unknown, or there is none."""
    known = [node.gpu_memory for node in nodes if node.gpus]
    return None if None in known else min((size for size in known if size is not None), default=None)


def _largest(nodes: Sequence[Node]) -> str:
    node = max(nodes, key=lambda node: (node.gpus, node.cpus, node.memory))
    memory = f" and {node.memory / GIB:.1f} GiB of memory" if math.isfinite(node.memory) else ""
    return f"{node.cpus:g} CPUs, {node.gpus:g} GPUs{memory}"
