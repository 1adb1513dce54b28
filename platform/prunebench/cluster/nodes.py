"""The nodes of the connected Ray cluster, and the memory of their GPUs, which Ray does not tell."""

import logging
import math
import subprocess
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from prunebench.cluster.placement import Node

MIB: Final = 1 << 20
QUERY: Final = ("nvidia-smi", "--query-gpu=memory.total,mig.mode.current", "--format=csv,noheader,nounits")
ANSWER_TIMEOUT_S: Final = 60

logger = logging.getLogger(__name__)


def cluster_nodes(*, measure: bool) -> tuple[Node, ...]:
    """The nodes that are up.

    Args:
        measure: ask each node with GPUs for their memory, in a short task that needs none of them free.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    sizes = _gpu_memory([node for node in nodes if measure and node["Resources"].get("GPU")])
    return tuple(
        Node(
            name=node["NodeManagerHostname"],
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
            memory=node["Resources"].get("memory", math.inf),
            gpu_memory=sizes.get(node["NodeID"]),
        )
        for node in nodes
    )


def _gpu_memory(nodes: list[dict[str, Any]]) -> dict[str, int | None]:
    ask: Any = ray.remote(num_cpus=0, max_retries=0)(smallest_gpu)
    asked = {
        ask.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(): node
        for node in nodes
    }
    if not asked:
        return {}
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_TIMEOUT_S)
    for reference in late:
        logger.warning("%s did not tell of its GPUs", asked[reference]["NodeManagerHostname"])
    return {asked[reference]["NodeID"]: ray.get(reference) for reference in ready}


def smallest_gpu() -> int | None:
    """Bytes of this node's smallest GPU; None where the driver does not tell, or it is split into slices."""
    try:
        told = subprocess.run(QUERY, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return smallest_of(told)


def smallest_of(told: str) -> int | None:
    """The same from lines such as "81559, Disabled" (MiB, whether MIG splits the GPU)."""
    rows = [line.split(", ") for line in told.strip().splitlines()]
    if not rows or any(mig == "Enabled" or not size.isdecimal() for size, mig in rows):
        return None
    return min(int(size) * MIB for size, _ in rows)
