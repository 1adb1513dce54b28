"""LaCo, layer collapse: merge consecutive blocks from the top down while the output stays similar.

Budget: LaCo takes a threshold T, not a number of layers. A run is stopped at the first state with at least N
layers removed and reaches N if exactly N are; T, the window C and the step I are searched unless given.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from prunebench.core.budget import Budget
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement

MergeRule: TypeAlias = Literal["released", "rdsc", "drop"]

WINDOWS = (4, 5, 6, 7, 3)
"""The paper's working range of C, in the order of preference."""
LARGEST_WINDOW = 8
"""C = N + 1, which reaches N in one merge, is tried up to this size."""
INTERVALS = (2, 1, 3)
"""The paper's working range of I, in the order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaCoParams(Params):
    """Parameters of LaCo; a window that holds a protected layer is never merged."""

    merge_rule: MergeRule = "released"
    """`released`: the last block's matrices, in effect what the authors' code does; `rdsc`: the paper's formula
    theta_l + sum_k (theta_{l+k} - theta_l); `drop`: the first block's."""
    threshold: float | None = None
    """T: a merge is accepted where the similarity exceeds it; None searches the largest T that reaches N."""
    merge_layers: int | None = None
    """C: a window of C blocks becomes one; None tries 4, 5, 6, 7, 3 and N + 1 where that is at most 8."""
    interval: int | None = None
    """I: how far the pointer moves down after a merge; None tries 2, 1, 3."""

    def __post_init__(self) -> None:
        """Refuse what would merge nothing or never end."""
        if self.merge_rule not in ("released", "rdsc", "drop"):
            raise InputError(f"merge_rule '{self.merge_rule}': choose released, rdsc or drop")
        if self.merge_layers is not None and self.merge_layers < 2:
            raise InputError(f"merge_layers {self.merge_layers}: a merge takes at least 2 blocks")
        if self.interval is not None and self.interval < 1:
            raise InputError(f"interval {self.interval}: has to be at least 1")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise InputError(f"threshold {self.threshold}: a cosine lies between -1 and 1")


class Run(NamedTuple):
    """Where the loop ended; it is the same for every T with `rejected` <= T < `accepted`."""

    plan: PruningPlan
    rejected: float
    """Largest rejected similarity."""
    accepted: float
    """Smallest accepted similarity."""

    @property
    def removed(self) -> int:
        """Number of layers removed."""
        return self.plan.num_layers - len(self.plan.layers)


def merged(plan: PruningPlan, first: int, last: int, rule: MergeRule) -> PruningPlan:
    """The plan whose blocks at positions `first` to `last` are one, with the first's norms and biases.

    Blocks that are merges themselves are linear in the dense blocks, and so is the result.
    """
    window = plan.layers[first : last + 1]
    others = last - first
    factors = {
        "released": (0,) * others + (1,),
        "rdsc": (1 - others,) + (1,) * others,
        "drop": (1,) + (0,) * others,
    }[rule]
    blend: dict[int, float] = {}
    for factor, block in zip(factors, window, strict=True):
        for layer, coefficient in block.blend or ((block.base, 1.0),):
            blend[layer] = blend.get(layer, 0.0) + factor * coefficient
    one = LayerSpec(base=window[0].base, blend=tuple(blend.items()))
    return PruningPlan(num_layers=plan.num_layers, layers=(*plan.layers[:first], one, *plan.layers[last + 1 :]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    """The loop of the released code for one model, target and merge rule."""

    num_layers: int
    target: int
    rule: MergeRule
    protected: frozenset[int]
    similarity: Callable[[PruningPlan], float]

    def run(self, size: int, interval: int, threshold: float) -> Run:
        """Merge while the similarity exceeds `threshold` until at least `target` layers are removed.

        The released code may meet windows of one block and resets its pointer beyond the top; with C >= 2 and
        I >= 1 the pointer stays below the last block, and neither can happen.
        """
        plan = PruningPlan.dense(self.num_layers)
        rejected, accepted = -math.inf, math.inf
        first = self.num_layers - 1 - size
        while first >= 0 and len(plan.layers) > self.num_layers - self.target:
            last = min(first + size, len(plan.layers)) - 1
            step = 1
            if self.protected.isdisjoint(block.base for block in plan.layers[first : last + 1]):
                candidate = merged(plan, first, last, self.rule)
                similarity = self.similarity(candidate)
                if similarity > threshold:
                    plan, step = candidate, interval
                    accepted = min(accepted, similarity)
                else:
                    rejected = max(rejected, similarity)
            first -= step
        return Run(plan, rejected, accepted)

    def runs(self, size: int, interval: int) -> Iterator[Run]:
        """The run of every T from above all similarities down, each distinct one once."""
        threshold = math.inf
        while threshold > -math.inf:
            run = self.run(size, interval, threshold)
            yield run
            threshold = math.nextafter(run.rejected, -math.inf)


class LaCo(Method[LaCoParams]):
    """Of the plans that remove exactly N layers, the one whose output is most similar to the dense model's."""

    name: ClassVar[str] = "laco"
    title: ClassVar[str] = "LaCo (Yang et al., 2024)"
    params: ClassVar[type[Params]] = LaCoParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"probe"})
