"""What a search came to: for a person, as JSON, and as the record that the report reads."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from prunebench.core.fingerprint import Json
from prunebench.methods.space import Piece, Scalar
from prunebench.search.trials import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting with what it came to on the selection tasks."""

    method: str
    """The branch of the space: the method, and the budget where there are several."""
    budget: int
    """In layer-equivalents."""
    params: Mapping[str, Scalar] = field(default_factory=dict)
    """What was searched of it; empty for a paper's own rule."""
    rule: str = ""
    """How the paper sets what is searched; empty for a setting of the search."""
    state: State
    values: Mapping[str, float] = field(default_factory=dict)
    """By measure: the objectives in their order, then the constraints. Empty where there are none."""
    plan_id: str | None = None
    variant_key: str | None = None
    trial: int | None = None
    error: str | None = None

    @property
    def value(self) -> float | None:
        """The first objective's."""
        return next(iter(self.values.values()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One objective."""

    name: str
    direction: Literal["minimize", "maximize"]
    tasks: tuple[str, ...]
    metric: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to, all its runs together."""

    run_id: str
    store: Path
    study: str
    model: str
    weights_id: str
    objectives: tuple[Goal, ...]
    constraints: tuple[str, ...]
    sampler: str
    seed: int
    settings: int | None
    """Size of the space, None where it has no end."""
    asked: int
    distinct: int
    """Plans that the trials came to."""
    evaluated: int
    """Plans that had to be scored for it: the store did not know them."""
    infeasible: int
    stopped: int
    """Trials that were hopeless before all documents were scored."""
    failed: int
    exhausted: bool
    chosen: tuple[Row, ...]
    """The best setting; for several objectives all that no other beats in every one. May be empty."""
    rules: tuple[Row, ...]
    """Each method as its paper sets it."""
    importances: Mapping[str, Mapping[str, float]]
    """Objective -> parameter -> share."""
    pieces: Mapping[str, Mapping[str, tuple[Piece, ...]]]
    """Branch -> continuous parameter -> its pieces, where they could be listed."""
    reasons: tuple[str, ...]
    """Why settings were infeasible, each once."""
    failures: int
    """What the same command would try again."""

    @property
    def best(self) -> Row | None:
        """The first of the chosen settings."""
        return self.chosen[0] if self.chosen else None

    def to_json(self) -> dict[str, Json]:
        """All of it as JSON-ready values."""
        pieces = {
            branch: {name: [piece._asdict() for piece in own] for name, own in parameters.items()}
            for branch, parameters in self.pieces.items()
        }
        return {**asdict(self), "store": str(self.store), "pieces": pieces}

    def lines(self) -> list[str]:
        """The outcome as a person reads it."""
        size = "without end" if self.settings is None else f"of {self.settings} settings"
        goals = "; ".join(f"{goal.name}, {goal.direction}" for goal in self.objectives)
        demands = "".join(f"; {constraint}" for constraint in self.constraints)
        rows = [(f"rule ({row.rule})", row) for row in self.rules]
        what = "best" if len(self.objectives) == 1 else "front"
        rows += [(f"{what} (trial {row.trial})", row) for row in self.chosen]
        width = max((len(name) for name, _ in rows), default=0)
        return [
            f"study '{self.study}': {goals}{demands}; space {size}, sampler {self.sampler}",
            f"asked {self.asked}, distinct plans {self.distinct}, evaluated {self.evaluated}, "
            f"infeasible {self.infeasible}, stopped {self.stopped}, failed {self.failed}",
            *(f"{name:<{width}}  {_told(row)}" for name, row in rows),
            f"store: {self.store}",
        ]


def _told(row: Row) -> str:
    params = ", ".join(f"{name}={value}" for name, value in row.params.items())
    values = ", ".join(f"{name} {value:.6g}" for name, value in row.values.items())
    outcome = f"{values} (plan {row.plan_id})" if row.values else str(row.error)
    return f"{row.method}{f' {params}' if params else ''}: {outcome}"
