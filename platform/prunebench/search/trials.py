"""A trial as the program sees it, and what the study's storage keeps of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from optuna.trial import FrozenTrial, TrialState

from prunebench.methods.space import Scalar
from prunebench.search.spaces import METHOD, Point

RETRY_OF, PLAN, VARIANT, EVALUATED, ERROR = "retry_of", "plan_id", "variant_key", "evaluated", "error"
"""Attributes of a trial: the trial that it stands for, what it resolved to, whether the store lacked any of
its scores, and why it has no value."""
STOPPED = "stopped"
"""Attribute of a trial that was hopeless before all of its documents were scored."""
REACHED = "budget_reached"
"""The constraint that every study has: at most 0 where the budget was met."""

State: TypeAlias = Literal["complete", "infeasible", "stopped", "failed", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A setting to be tried."""

    number: int
    point: Point

    @property
    def label(self) -> str:
        """The branch of the space."""
        return str(self.point[METHOD])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that counts: it was asked once, however often it had to be run."""

    number: int
    point: Point
    state: State
    values: tuple[float, ...]
    """One an objective; empty where there is none."""
    plan_id: str | None
    variant_key: str | None
    error: str | None


def point_of(trial: FrozenTrial) -> Point:
    """The setting of a trial, also of one that waits or was killed before all of it was drawn."""
    fixed: Mapping[str, Scalar] = trial.system_attrs.get("fixed_params", {})
    return {**fixed, **trial.params}


def tried_of(trial: FrozenTrial) -> Tried:
    """A trial as the program sees it."""
    attributes = trial.user_attrs
    return Tried(
        number=trial.number,
        point=point_of(trial),
        state=_state(trial),
        values=told(trial) if trial.state == TrialState.COMPLETE else (),
        plan_id=attributes.get(PLAN),
        variant_key=attributes.get(VARIANT),
        error=attributes.get(ERROR),
    )


def told(trial: FrozenTrial) -> tuple[float, ...]:
    """The values of a trial that is complete."""
    assert trial.values is not None  # Optuna completes no trial without
    return tuple(trial.values)


def _state(trial: FrozenTrial) -> State:
    match trial.state:
        case TrialState.COMPLETE:
            return "infeasible" if any(excess > 0 for excess in trial.constraints.values()) else "complete"
        case TrialState.PRUNED:
            return "stopped" if trial.user_attrs.get(STOPPED) else "infeasible"
        case TrialState.FAIL:
            return "failed"
        case _:
            return "open"
