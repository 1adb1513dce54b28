"""ShortGPT: remove the blocks whose output is most similar to their input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.depth import LastState, lowest, span_similarity
from prunebench.methods.space import Choices, Distribution, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortGPTParams(Params):
    """Parameters of ShortGPT; no layer is protected by default, as in the authors' code."""

    last_state: LastState = "prenorm"
    """`hf` scores the last block with the normed state, as the authors' code does."""


class ShortGPT(Method[ShortGPTParams]):
    """Lowest Block Influence BI_l = 1 - E[cos(h_l, h_{l+1})], the mean over tokens."""

    name: ClassVar[str] = "shortgpt"
    title: ClassVar[str] = "ShortGPT (Men et al., 2025)"
    params: ClassVar[type[Params]] = ShortGPTParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration"})

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """Which last state is scored."""
        return {"last_state": Choices(("prenorm", "hf"))}

    def start(self, shape: ModelShape, budget: Budget) -> Mapping[str, Scalar]:
        """The state before the norm."""
        return {"last_state": "prenorm"}

    def plan(self, seen: Measurements, budget: Budget, params: ShortGPTParams) -> Planned:
        """Remove the N layers of lowest Block Influence."""
        num_layers = seen.shape.num_layers
        self.check(seen.shape, budget, params)
        influence_L = 1 - span_similarity(seen.need_calibration(), 1, params.last_state)
        removed, warnings = lowest(influence_L, params.prunable(num_layers), budget.layers, "Block Influence")
        return Planned(plan=PruningPlan.without(removed, num_layers), warnings=warnings)
