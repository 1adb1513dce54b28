"""LLM-Streamline, layer selection part: remove the contiguous run that changes the state least."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.depth import LastState, span_similarity, tie_warning
from prunebench.methods.space import Choices, Distribution, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMStreamlineParams(Params):
    """Parameters of LLM-Streamline; windows that touch a protected layer are left out."""

    last_state: LastState = "prenorm"
    """`hf` scores the last window with the normed state, as the authors' code does."""


class LLMStreamline(Method[LLMStreamlineParams]):
    """The window j of N layers of highest 0.5 + 0.5·E[cos(h_j, h_{j+N})], j = 0 … L-N, first on ties."""

    name: ClassVar[str] = "llm_streamline"
    title: ClassVar[str] = "LLM-Streamline, training-free (Chen et al., 2025)"
    params: ClassVar[type[Params]] = LLMStreamlineParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration"})

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """Which last state is scored."""
        return {"last_state": Choices(("prenorm", "hf"))}

    def start(self, shape: ModelShape, budget: Budget) -> Mapping[str, Scalar]:
        """The state before the norm."""
        return {"last_state": "prenorm"}

    def check(self, shape: ModelShape, budget: Budget, params: LLMStreamlineParams) -> None:
        """Refuse a budget longer than the longest run of layers that are not protected."""
        super().check(shape, budget, params)
        protected = params.protected(shape.num_layers)
        runs = groupby(range(shape.num_layers), key=protected.__contains__)
        longest = max(len(list(run)) for is_protected, run in runs if not is_protected)
        why = f"the longest run between the protected layers {sorted(protected)}"
        budget.check(longest, shape.num_layers, why)

    def plan(self, seen: Measurements, budget: Budget, params: LLMStreamlineParams) -> Planned:
        """Remove the best window of N layers."""
        num_layers, span = seen.shape.num_layers, budget.layers
        self.check(seen.shape, budget, params)
        scores = 0.5 + 0.5 * span_similarity(seen.need_calibration(), span, params.last_state)
        protected = params.protected(num_layers)
        starts = [j for j in range(len(scores)) if protected.isdisjoint(range(j, j + span))]
        best, *others = sorted(starts, key=lambda j: (-scores[j], j))
        warnings = tie_warning("similarity of windows", best, others[0], scores, "start") if others else ()
        plan = PruningPlan.without(range(best, best + span), num_layers)
        return Planned(plan=plan, chosen={"start": best}, warnings=warnings)
