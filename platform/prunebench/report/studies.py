"""Searches as a report shows them: goals, trials, the papers' rules, and what was chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prunebench.report.board import Record
from prunebench.report.metrics import HOLE, counted, metric_named, millions, percent
from prunebench.report.source import Source, parsed
from prunebench.store.trials import StudyRecord, read_studies


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One objective, as it is printed."""

    name: str
    direction: str
    tasks: tuple[str, ...]
    metric: str | None

    @property
    def title(self) -> str:
        """The name with its unit and the direction of better."""
        unit = " %" if self.in_percent or self.name.endswith(" retained") else ""
        return f"{self.name}{unit} {'↓' if self.direction == 'minimize' else '↑'}"

    @property
    def in_percent(self) -> bool:
        """Whether a fraction is printed in percent."""
        return self.metric is not None and not self.retained and metric_named(self.metric).percent

    @property
    def retained(self) -> bool:
        """Whether it is relative to the dense model already."""
        return self.name.endswith(" retained")

    def shown(self, value: float | None) -> str:
        """A value as printed."""
        if value is None:
            return HOLE
        if self.retained:
            return percent(value)
        if self.metric is not None:
            return metric_named(self.metric).shown(value)
        return millions(int(value)) if self.name.endswith("_params") else f"{value:.4g}"

    def better(self, value: float, than: float) -> bool:
        """Whether `value` beats `than`."""
        return value < than if self.direction == "minimize" else value > than


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting of a search, or with a `rule` a paper's own."""

    number: int | None
    state: str
    branch: str
    params: Mapping[str, Any]
    values: Mapping[str, float]
    plan_id: str | None
    variant_key: str | None
    error: str | None
    rule: str = ""
    chosen: Mapping[str, Any]
    """What the method chose by itself."""

    @property
    def name(self) -> str:
        """The branch with its parameters."""
        return " ".join([self.branch, *(f"{name}={shown_value(v)}" for name, v in self.params.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One search."""

    name: str
    model: str
    goals: tuple[Goal, ...]
    trials: tuple[Trial, ...]
    """In the order in which they were asked."""
    rules: tuple[Trial, ...]
    front: tuple[int, ...]
    """Numbers of the chosen trials."""
    record: Mapping[str, Any]

    @property
    def chosen(self) -> tuple[Trial, ...]:
        """The trials of the front, in its order."""
        by_number = {trial.number: trial for trial in self.trials}
        return tuple(by_number[number] for number in self.front)

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches that have trials."""
        return tuple(dict.fromkeys(trial.branch for trial in self.trials if trial.branch))

    def by_piece(self, branch: str, parameter: str) -> list[tuple[Mapping[str, Any], Trial | None]]:
        """The pieces of a continuous parameter, each with a trial in it: all in one piece have one plan."""
        own = [trial for trial in self.trials if trial.branch == branch and parameter in trial.params]
        own.sort(key=lambda trial: (trial.number not in self.front, not trial.values))
        pieces = self.record["pieces"][branch][parameter]
        found = []
        for piece in pieces:
            within = (t for t in own if _inside(piece, t.params[parameter], last=piece is pieces[-1]))
            found.append((piece, next(within, None)))
        return found

    @property
    def facts(self) -> str:
        """Asked, distinct and evaluated, in a sentence."""
        told = self.record
        size = "a space without end" if told["settings"] is None else counted(told["settings"], "setting")
        end = ", all of them asked" if told["exhausted"] else ""
        odd = [f"{told[name]} {name}" for name in ("infeasible", "stopped", "failed") if told[name]]
        return (
            f"{counted(told['asked'], 'trial')} asked of {size}{end} (sampler {told['sampler']}, seed "
            f"{told['seed']}); {counted(told['distinct'], 'distinct plan')}, of which {told['evaluated']} "
            f"had to be evaluated for it{''.join(f'; {one}' for one in odd)}."
        )


def studies_of(store: Path, source: Source) -> list[Study]:
    """Every search of a store.

    Raises:
        InputError: a damaged table or record, named.
    """
    variants = {row["variant_key"]: row for row in source.variants}
    return [_study(one, variants) for one in read_studies(store)]


def _study(one: StudyRecord, variants: Mapping[str, Record]) -> Study:
    told = one.record
    return Study(
        name=told["study"],
        model=told["model"],
        goals=tuple(
            Goal(name=g["name"], direction=g["direction"], tasks=tuple(g["tasks"]), metric=g["metric"])
            for g in told["objectives"]
        ),
        trials=tuple(_trial({**row, "params": parsed(row["params_json"])}, variants) for row in one.trials),
        rules=tuple(_trial(row, variants) for row in told["rules"]),
        front=tuple(row["trial"] for row in told["chosen"]),
        record=told,
    )


def _trial(row: Mapping[str, Any], variants: Mapping[str, Record]) -> Trial:
    variant = variants.get(row["variant_key"] or "")
    return Trial(
        number=row["trial"],
        state=row["state"],
        branch=row["method"],
        params=row["params"],
        values=row["values"],
        plan_id=row["plan_id"],
        variant_key=row["variant_key"],
        error=row["error"],
        rule=row.get("rule", ""),
        chosen={} if variant is None else parsed(variant["chosen_json"]) or {},
    )


def _inside(piece: Mapping[str, Any], number: float, *, last: bool) -> bool:
    """Whether a piece holds a number: its low end is part of it, its high end only where it is the last."""
    if piece["value"] is None:
        return False
    ends = (piece["value"], piece["high"]) if last else (piece["value"],)
    return piece["low"] <= number < piece["high"] or number in ends


def shown_value(value: Any) -> str:  # noqa: ANN401 (one parameter)
    """A parameter's value, with the digits that tell it from its neighbours."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
