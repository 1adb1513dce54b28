"""What a method is: a pure function from measurements, a budget and parameters to a plan."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.errors import InputError
from prunebench.methods.space import Distribution, Piece, Scalar

Requirement: TypeAlias = Literal["calibration", "weights", "cka", "probe"]
"""`weights` are the streamed norms; `cka` adds the similarities between all pairs of layers."""


class Probe(Protocol):
    """Answers the questions that need forward passes, on one fixed corpus."""

    def loss(self, plan: PruningPlan) -> float:
        """Mean negative log-likelihood of the probe corpus, nats per token, under the pruned model."""

    def output_similarity(self, plan: PruningPlan) -> float:
        """Mean over samples of the cosine between the flattened final (normed) states of dense and pruned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of one model. A method is given at least what it `requires`."""

    shape: ModelShape
    calibration: CalibrationStats | None = None
    weights: WeightStats | None = None
    probe: Probe | None = None

    def need_calibration(self) -> CalibrationStats:
        """The calibration statistics, or InputError."""
        return _present(self.calibration, "calibration statistics")

    def need_weights(self) -> WeightStats:
        """The weight statistics, or InputError."""
        return _present(self.weights, "weight statistics")

    def need_probe(self) -> Probe:
        """The probe, or InputError."""
        return _present(self.probe, "a probe")


Measured = TypeVar("Measured")


def _present(value: Measured | None, what: str) -> Measured:
    if value is None:
        raise InputError(f"this method needs {what}, which were not measured")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Parameters that every method has; a method's own dataclass adds its own."""

    protect: tuple[int, ...] = ()
    """Layers that are never changed; negative numbers count from the end."""

    def protected(self, num_layers: int) -> frozenset[int]:
        """The protected layers as indices in 0..L-1.

        Raises:
            InputError: a layer that the model does not have.
        """
        if outside := [i for i in self.protect if not -num_layers <= i < num_layers]:
            raise InputError(
                f"protect names layer {outside[0]}, but the model has layers 0 to {num_layers - 1}"
            )
        return frozenset(i % num_layers for i in self.protect)

    def prunable(self, num_layers: int) -> list[int]:
        """The layers that are not protected, ascending."""
        return [i for i in range(num_layers) if i not in self.protected(num_layers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A method's answer: the plan, what it chose where its parameters left room, and warnings."""

    plan: PruningPlan
    chosen: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    others: tuple[PruningPlan, ...] = ()
    """Plans that meet the budget as well, where the parameters ask for all; without the chosen one."""


ParamsT = TypeVar("ParamsT", bound=Params)


class Method(ABC, Generic[ParamsT]):
    """One pruning method. Subclasses are stateless: equal inputs give equal plans."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The name as papers print it, with the source."""
    params: ClassVar[type[Params]]
    """A frozen dataclass; its defaults are the readings of DESIGN section 5."""
    requires: ClassVar[frozenset[Requirement]]
    rule: ClassVar[str] = "as published"
    """How the paper chooses what a search would try, in a few words."""
    width: ClassVar[bool] = False
    """Whether the method reaches inside blocks (and so needs one plain MLP per block)."""

    def check(self, shape: ModelShape, budget: Budget, params: ParamsT) -> None:
        """Refuse what cannot be planned, before anything is measured.

        Raises:
            BudgetError: the budget exceeds what this method may remove.
        """
        prunable = min(len(params.prunable(shape.num_layers)), shape.num_layers - 1)
        protected = sorted(params.protected(shape.num_layers))
        why = f"layers {protected} are protected" if protected else "one block has to stay"
        budget.check(prunable, shape.num_layers, why)

    def needs(self, params: ParamsT) -> frozenset[Requirement]:
        """What `plan` will ask for under these parameters: a subset of `requires`."""
        return self.requires

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """What a search tries of each parameter at this budget: the paper's ranges; empty for none.

        Args:
            shape: of the model.
            budget: of every plan.
            fixed: parameters that are given; what they leave without effect is not declared.
        """
        return {}

    def start(self, shape: ModelShape, budget: Budget) -> Mapping[str, Scalar]:
        """Where in its space the paper's rule lies, as far as `plan` does not say so in `chosen`."""
        return {}

    def distinct(
        self, seen: Measurements, budget: Budget, params: ParamsT, space: Mapping[str, Distribution]
    ) -> Mapping[str, tuple[Piece, ...]]:
        """The pieces of continuous parameters of `space`, ascending, where they can be listed: together they
        come to every plan that the range comes to. Parameters outside `space` are as in `params`.
        """
        return {}

    @abstractmethod
    def plan(self, seen: Measurements, budget: Budget, params: ParamsT) -> Planned:
        """Choose the pruned model.

        Raises:
            BudgetError: the budget exceeds what this method may remove.
            UnreachableError: no setting removes exactly the budget.
        """


AnyMethod: TypeAlias = Method[Any]
