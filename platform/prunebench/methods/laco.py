"""LaCo, layer collapse: merge consecutive blocks from the top down while the output stays similar.

LaCo takes a threshold T, not a number of layers. For a budget of N a run stops at the first state with at
least N layers removed, and reaches N if exactly N are. T, the window C and the step I are searched unless
they are given.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from prunebench.core.budget import Budget
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.space import Distribution, Ints

MergeRule: TypeAlias = Literal["released", "rdsc", "drop"]

WINDOWS = (4, 5, 6, 7, 3)
"""The paper's working range of C, in the order of preference."""
LARGEST_WINDOW = 8
"""C = N + 1, which removes N layers in one merge, is tried up to this size."""
INTERVALS = (2, 1, 3)
"""The paper's working range of I, in the order of preference."""
LARGEST_INTERVAL = 4
"""Largest I that a search tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaCoParams(Params):
    """Parameters of LaCo; a window that holds a protected layer is never merged."""

    merge_rule: MergeRule = "released"
    """`released`: the last block's matrices, in effect what the authors' code does; `rdsc`: the paper's
    theta_l + sum_k (theta_{l+k} - theta_l); `drop`: the first block's."""
    threshold: float | None = None
    """T: a merge whose similarity exceeds it is accepted; None searches the largest T that reaches N."""
    merge_layers: int | None = None
    """C: a window of C blocks becomes one; None tries 4, 5, 6, 7, 3 and N + 1 where that is at most 8."""
    interval: int | None = None
    """I: how far the pointer moves down after a merge; None tries 2, 1, 3."""
    hits: Literal["highest", "all"] = "highest"
    """Whether the walk over T ends at the largest that removes exactly N layers, or goes on down and names
    every plan that does. The plan is the same: that of the largest T."""

    def __post_init__(self) -> None:
        """Refuse what would merge nothing or never end."""
        if self.merge_layers is not None and self.merge_layers < 2:
            raise InputError(f"merge_layers {self.merge_layers}: a merge takes at least 2 layers")
        if self.interval is not None and self.interval < 1:
            raise InputError(f"interval {self.interval}: has to be at least 1")

    def settings(self, budget: Budget) -> list[tuple[int, int]]:
        """The pairs (C, I) to try, in the order of preference."""
        windows = (self.merge_layers,) if self.merge_layers else WINDOWS
        if not self.merge_layers and budget.layers + 1 <= LARGEST_WINDOW:
            windows = (*WINDOWS, budget.layers + 1)
        intervals = (self.interval,) if self.interval else INTERVALS
        return list(product(dict.fromkeys(windows), intervals))


class Run(NamedTuple):
    """Where a run ended: the same for every T with `rejected` <= T < `accepted`."""

    plan: PruningPlan
    rejected: float
    """Largest rejected similarity."""
    accepted: float
    """Smallest accepted similarity."""

    @property
    def removed(self) -> int:
        """Number of layers removed."""
        return self.plan.num_layers - len(self.plan.layers)

    @property
    def threshold(self) -> float:
        """The observed similarity that gives this run as T, or just below all where none was rejected."""
        return self.rejected if self.rejected > -math.inf else math.nextafter(self.accepted, -math.inf)


def merged(plan: PruningPlan, first: int, last: int, rule: MergeRule) -> PruningPlan:
    """The plan in which the blocks at positions `first` to `last` are one, with the first's norms and biases.

    A block that is a merge itself is linear in dense blocks that no other block has, and so is the result.
    """
    window = plan.layers[first : last + 1]
    others = last - first
    factors = {
        "released": (0,) * others + (1,),
        "rdsc": (1 - others,) + (1,) * others,
        "drop": (1,) + (0,) * others,
    }[rule]
    blend = tuple(
        (layer, factor * coefficient)
        for factor, block in zip(factors, window, strict=True)
        for layer, coefficient in block.blend or ((block.base, 1.0),)
    )
    one = LayerSpec(base=window[0].base, blend=blend)
    return PruningPlan(
        num_layers=plan.num_layers, layers=(*plan.layers[:first], one, *plan.layers[last + 1 :])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    """The loop of the released code, for one window and step.

    The released code allows windows of one block and resets a pointer beyond the last block; with C >= 2 and
    I >= 1 the pointer always stays below the last block, and neither happens.
    """

    num_layers: int
    target: int
    """Number of removed layers at which a run stops."""
    size: int
    """C."""
    interval: int
    """I."""
    rule: MergeRule
    protected: frozenset[int]
    similarity: Callable[[PruningPlan], float]

    def counts(self) -> Callable[[int, int], frozenset[int]]:
        """Function of pointer and number of blocks: the numbers of layers removed at the possible ends."""

        @cache
        def counts(first: int, blocks: int) -> frozenset[int]:
            removed = self.num_layers - blocks
            if removed >= self.target or first < 0:
                return frozenset({removed})
            merge = min(first + self.size, blocks) - 1 - first
            return counts(first - 1, blocks) | counts(first - self.interval, blocks - merge)

        return counts

    @property
    def start(self) -> int:
        """Where the pointer starts: the first window ends at the block before the last."""
        return self.num_layers - 1 - self.size

    def run(
        self, threshold: float, worthwhile: Callable[[int, int], bool] = lambda first, blocks: True
    ) -> Run:
        """Merge what exceeds `threshold` until at least `target` layers are removed or the bottom is reached.

        Also ends where `worthwhile(pointer, number of blocks)` is false, before asking a further similarity.
        """
        plan, first = PruningPlan.dense(self.num_layers), self.start
        rejected, accepted = -math.inf, math.inf
        while first >= 0 and self.num_layers - len(plan.layers) < self.target:
            if not worthwhile(first, len(plan.layers)):
                break
            last = min(first + self.size, len(plan.layers)) - 1
            step = 1
            if self.protected.isdisjoint(block.base for block in plan.layers[first : last + 1]):
                candidate = merged(plan, first, last, self.rule)
                similarity = self.similarity(candidate)
                if similarity > threshold:
                    plan, step = candidate, self.interval
                    accepted = min(accepted, similarity)
                else:
                    rejected = max(rejected, similarity)
            first -= step
        return Run(plan, rejected, accepted)

    def runs(self) -> Iterator[Run]:
        """The runs at every T, from above all similarities down, each distinct one once.

        A run ends early where no decisions lead to exactly `target`; it then stands for every T that shares
        its decisions so far.
        """
        counts = self.counts()
        threshold = math.inf
        while threshold > -math.inf:
            run = self.run(threshold, lambda first, blocks: self.target in counts(first, blocks))
            yield run
            threshold = math.nextafter(run.rejected, -math.inf)

    def ends(self) -> frozenset[int]:
        """Every number of layers that some run may remove, whatever the similarities."""
        return self.counts()(self.start, self.num_layers)


class LaCo(Method[LaCoParams]):
    """Of the plans that remove exactly N layers, the one of highest output similarity to the dense model."""

    name: ClassVar[str] = "laco"
    title: ClassVar[str] = "LaCo (Yang et al., 2024)"
    params: ClassVar[type[Params]] = LaCoParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"probe"})
    rule: ClassVar[str] = "the working ranges of C and I, at the highest T"

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """C from 2 to 8 and I from 1 to 4; of T each of them walks every value and takes the highest."""
        return {
            "merge_layers": Ints(2, max(2, min(LARGEST_WINDOW, shape.num_layers))),
            "interval": Ints(1, LARGEST_INTERVAL),
        }

    def plan(self, seen: Measurements, budget: Budget, params: LaCoParams) -> Planned:
        """Collapse with every setting, each at its largest T that removes exactly N layers.

        Raises:
            UnreachableError: no setting removes exactly N; names the nearest counts.
        """
        self.check(seen.shape, budget, params)
        similarity = cache(seen.need_probe().output_similarity)
        found: list[list[tuple[Collapse, Run]]] = []  # by setting that reaches N, from its highest T down
        counts: set[int] = set()
        for size, interval in params.settings(budget):
            collapse = Collapse(
                num_layers=seen.shape.num_layers,
                target=budget.layers,
                size=size,
                interval=interval,
                rule=params.merge_rule,
                protected=params.protected(seen.shape.num_layers),
                similarity=similarity,
            )
            runs, ends = _runs(collapse, params)
            counts |= ends
            hits = ((collapse, run) for run in runs if run.removed == budget.layers)
            if wanted := list(islice(hits, 1 if params.hits == "highest" else None)):
                found.append(wanted)
        if not found:
            raise UnreachableError(_unreachable(seen.shape.num_layers, budget.layers, params, counts))
        best = sorted((hits[0] for hits in found), key=lambda hit: -similarity(hit[1].plan))
        collapse, run = best[0]
        chosen = _told(collapse, run, similarity)
        if other := next((hit for hit in best if hit[1].plan != run.plan), None):
            chosen["runner_up"] = _told(*other, similarity)
        if params.hits == "highest":
            return Planned(plan=run.plan, chosen=chosen)
        every = [hit for hits in found for hit in hits]
        told = [{**_told(one, hit, similarity), "plan_id": hit.plan.plan_id} for one, hit in every]
        others = {hit.plan.plan_id: hit.plan for _, hit in every if hit.plan != run.plan}
        return Planned(plan=run.plan, chosen={**chosen, "hits": told}, others=tuple(others.values()))


def _runs(collapse: Collapse, params: LaCoParams) -> tuple[Iterable[Run], frozenset[int]]:
    """The runs to look at, from the highest T down, and every number of layers that some T may remove."""
    if params.threshold is None:
        return collapse.runs(), collapse.ends()
    run = collapse.run(params.threshold)
    return [run], frozenset({run.removed})


def _told(collapse: Collapse, run: Run, similarity: Callable[[PruningPlan], float]) -> dict[str, Any]:
    """A run that removes exactly N layers, in numbers: the same for every T from `threshold` to the next."""
    return {
        "merge_layers": collapse.size,
        "interval": collapse.interval,
        "threshold": run.threshold,
        "threshold_below": run.accepted,
        "output_similarity": similarity(run.plan),
    }


def _unreachable(num_layers: int, target: int, params: LaCoParams, counts: set[int]) -> str:
    if params.threshold is None:
        given = "no threshold removes"
    else:
        given = f"threshold {params.threshold} does not remove"
    below = max((n for n in counts if n < target), default=None)
    above = min((n for n in counts if n > target), default=None)
    nearest = " and ".join(str(n) for n in (below, above) if n is not None)
    return (
        f"LaCo: {given} exactly {target} of {num_layers} layers (nearest: {nearest}): "
        "choose such a budget, or leave merge_layers, interval and threshold unset"
    )
