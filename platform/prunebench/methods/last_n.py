"""Last-n: the sanity row that removes the deepest layers and looks at nothing."""

from typing import ClassVar

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement


class LastN(Method[Params]):
    """The N deepest layers that are not protected, the very last included.

    This is the reverse-order rule of "Reassessing Layer Pruning in LLMs" (arXiv:2411.15558). Gromov et al.'s
    simple heuristic keeps the last block and drops the N before it: that is `protect=[-1]`.
    """

    name: ClassVar[str] = "last_n"
    title: ClassVar[str] = "Last n layers (Lu et al., 2024)"
    params: ClassVar[type[Params]] = Params
    requires: ClassVar[frozenset[Requirement]] = frozenset()

    def plan(self, seen: Measurements, budget: Budget, params: Params) -> Planned:
        """Remove the N deepest layers."""
        self.check(seen.shape, budget, params)
        removed = params.prunable(seen.shape.num_layers)[-budget.layers :]
        return Planned(plan=PruningPlan.without(removed, seen.shape.num_layers))
