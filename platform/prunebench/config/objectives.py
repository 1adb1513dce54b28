"""What a search file optimises and what it demands: stored metrics and quantities of plans."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from pydantic import Field, model_validator

from prunebench.config.base import Strict, nearest
from prunebench.config.tasks import Task
from prunebench.evaluation.versions import METRICS

Direction: TypeAlias = Literal["minimize", "maximize"]
Quantity: TypeAlias = Literal["total_params", "removed_params", "weights_gib"]
QUANTITIES: Final[Mapping[Quantity, Direction]] = {
    "total_params": "minimize",
    "removed_params": "maximize",
    "weights_gib": "minimize",
}
"""What every plan has without being scored: parameters that are left, projection parameters that are gone,
and the size of what is left in the model's dtype."""


class Measure(Strict):
    """One number of a plan: a metric of a task, its mean over tasks of one kind, or a quantity."""

    task: str | None = None
    tasks: tuple[str, ...] | None = Field(None, min_length=2)
    """In place of a task: the plain mean over these."""
    metric: str | None = None
    """What the tasks measure."""
    retained: bool = False
    """In percent of the dense model: pruned/dense, or dense/pruned where lower is better, task by task."""
    quantity: Quantity | None = None
    """In place of tasks and metric."""

    @model_validator(mode="after")
    def is_one_number(self) -> "Measure":
        """Refuse what names no number, or two."""
        if self.quantity is not None:
            if self.named or self.metric or self.retained:
                raise ValueError(f"{self.quantity} is a quantity of plans: it goes without task and metric")
            return self
        if (self.task is None) == (self.tasks is None):
            raise ValueError("give either task, tasks (their mean) or quantity, exactly one")
        if self.metric is None:
            raise ValueError(f"which metric of {', '.join(self.named)}? give metric")
        if len(set(self.named)) < len(self.named):
            raise ValueError(f"a task stands twice in {list(self.named)}")
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """The tasks that have to be scored."""
        return self.tasks or ((self.task,) if self.task else ())

    @property
    def name(self) -> str:
        """Such as `chosen_by.perplexity`, `mean(a, b).acc retained` or `weights_gib`."""
        if self.quantity is not None:
            return self.quantity
        over = self.task or f"mean({', '.join(self.named)})"
        return f"{over}.{self.metric}" + (" retained" if self.retained else "")

    def natural(self, tasks: Mapping[str, Task]) -> Direction:
        """Which way is better by the meaning of the number."""
        if self.quantity is not None:
            return QUANTITIES[self.quantity]
        return "maximize" if self.retained else METRICS[tasks[self.named[0]].kind][str(self.metric)]

    def check(self, tasks: Mapping[str, Task]) -> None:
        """Refuse what is not measured, or may not be looked at.

        Raises:
            ValueError: an unknown task, one of the role test, a metric that it does not measure, or a mean of
                unlike numbers.
        """
        for name in self.named:
            if name not in tasks:
                raise ValueError(f"the objective's task '{name}': {nearest(name, tasks)}")
            task = tasks[name]
            if task.role != "selection":
                raise ValueError(
                    f"the objective's task '{name}' has the role test, which nothing may be chosen by: "
                    "name a task with role: selection"
                )
            if self.metric not in METRICS[task.kind]:
                measured = nearest(str(self.metric), METRICS[task.kind])
                raise ValueError(f"no task measures {name}.{self.metric}: {measured}")
        kinds = sorted({tasks[name].kind for name in self.named})
        if len(kinds) > 1:
            raise ValueError(f"{self.name} is a mean over tasks of unlike kinds ({', '.join(kinds)})")


class Objective(Measure):
    """A measure that is made as good as possible."""

    direction: Direction | None = None
    """The measure's own by default."""

    def aim(self, tasks: Mapping[str, Task]) -> Direction:
        """Which way it is optimised."""
        return self.direction or self.natural(tasks)


class Constraint(Measure):
    """A measure that has to keep a bound; the budget is one without being named."""

    most: float | None = None
    least: float | None = None

    @model_validator(mode="after")
    def has_one_bound(self) -> "Constraint":
        """Refuse none and two."""
        if (self.most is None) == (self.least is None):
            raise ValueError(f"the constraint on {self.name} takes either most or least, exactly one")
        return self

    @property
    def text(self) -> str:
        """Such as `weights_gib <= 0.2`."""
        return f"{self.name} <= {self.most:g}" if self.most is not None else f"{self.name} >= {self.least:g}"

    def violation(self, value: float) -> float:
        """How far `value` misses the bound; at most 0 where it is kept."""
        return value - self.most if self.most is not None else (self.least or 0.0) - value
