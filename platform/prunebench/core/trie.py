"""Plans as a trie of block lists: what plans share is one path from the root."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from prunebench.core.plan import LayerSpec, PruningPlan


@dataclass(slots=True)
class Node:
    """The prefix of blocks on the path to here: plans that end here, and the next blocks of the others."""

    plans: list[PruningPlan] = field(default_factory=list)
    children: dict[LayerSpec, "Node"] = field(default_factory=dict)

    def add(self, plan: PruningPlan) -> int:
        """Add a plan below this root, once; returns how many of its blocks no plan before it shares."""
        node, new = self, 0
        for spec in plan.layers:
            new += spec not in node.children
            node = node.children.setdefault(spec, Node())
        if plan not in node.plans:
            node.plans.append(plan)
        return new


def grow(plans: Iterable[PruningPlan]) -> Node:
    """The trie of the plans; equal plans are kept once."""
    root = Node()
    for plan in plans:
        root.add(plan)
    return root


def count_nodes(plans: Iterable[PruningPlan]) -> int:
    """Blocks that have to be run for all plans: the nodes of their trie, without the root."""
    root = Node()
    return sum(root.add(plan) for plan in plans)
