"""Random: the sanity row that removes layers at random."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomParams(Params):
    """Parameters of the random baseline; no layer is protected by default."""

    seed: int = 0
    """Seed of numpy's default generator, at least 0."""

    def __post_init__(self) -> None:
        """Refuse negative seeds."""
        if self.seed < 0:
            raise InputError(f"seed {self.seed}: has to be at least 0")


class RandomDrop(Method[RandomParams]):
    """The first N of one random permutation: for one seed, a larger budget removes a superset."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Random layers"
    params: ClassVar[type[Params]] = RandomParams
    requires: ClassVar[frozenset[Requirement]] = frozenset()

    def plan(self, seen: Measurements, budget: Budget, params: RandomParams) -> Planned:
        """Remove N layers drawn without replacement."""
        num_layers = seen.shape.num_layers
        self.check(seen.shape, budget, params)
        order = np.random.default_rng(params.seed).permutation(params.prunable(num_layers))
        return Planned(plan=PruningPlan.without(order[: budget.layers].tolist(), num_layers))
