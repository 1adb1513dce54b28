"""What a search chose, on the tasks that it was chosen by and on the others: both sides, and the gap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prunebench.report.metrics import HOLE, metric_named, percent
from prunebench.report.source import Source
from prunebench.report.studies import Goal, Study, Trial
from prunebench.store.record import DENSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A value beside what is left of the dense model there."""

    text: str = HOLE
    retained: float | None = None

    @property
    def retained_text(self) -> str:
        """The retained percentage; empty where there is none."""
        return "" if self.retained is None else percent(self.retained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row: the dense model, a paper's rule or a chosen setting."""

    name: str
    told: str
    plan_id: str | None
    chosen: bool
    selection: tuple[Side, ...]
    """One an objective."""
    tests: tuple[Side, ...]
    """One a column of `Comparison.columns`."""
    gaps: tuple[str, ...]
    """For each of them the points of retained quality by which selection is better; empty where the metrics
    are unlike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The table of a study."""

    goals: tuple[Goal, ...]
    columns: tuple[tuple[str, str], ...]
    """(task, metric) of what was measured of the chosen settings, and not chosen by."""
    rows: tuple[Compared, ...]

    @property
    def gapped(self) -> tuple[bool, ...]:
        """For each column whether any row has a gap."""
        return tuple(any(row.gaps[place] for row in self.rows) for place in range(len(self.columns)))


def comparison(study: Study, source: Source) -> Comparison:
    """The dense model, the papers' rules and the chosen settings on both sides."""
    by = {task for goal in study.goals for task in goal.tasks}
    keys = {trial.variant_key for trial in study.chosen}
    measured = {
        (row["task"], row["metric"])
        for row in source.results
        if row["variant_key"] in keys and row["metric"] and row["task"] not in by
    }
    table = _Table(study, source, tuple(sorted(measured)))
    rows = [table.row(one.branch, one.rule, one) for one in study.rules]
    rows += [table.row(one.name, f"trial {one.number}", one) for one in study.chosen]
    return Comparison(goals=study.goals, columns=table.columns, rows=(table.dense_row(), *rows))


class _Table:
    """The values of a study's rows."""

    def __init__(self, study: Study, source: Source, columns: tuple[tuple[str, str], ...]) -> None:
        self.goals, self.columns = study.goals, columns
        self._values = {
            (row["variant_key"], row["task"], row["metric"]): row["value"]
            for row in source.results
            if row["status"] == "ok"
        }
        own = (row for row in source.variants if row["model"] == study.model)
        self._dense = next(row["variant_key"] for row in own if row["method"] == DENSE)

    def dense_row(self) -> Compared:
        """What everything is relative to."""
        sides = [self._goal(goal, self._dense, None) for goal in self.goals]
        return Compared(
            name="dense model",
            told="",
            plan_id=None,
            chosen=False,
            selection=tuple(sides),
            tests=tuple(self._side(self._dense, *column) for column in self.columns),
            gaps=("",) * len(self.columns),
        )

    def row(self, name: str, told: str, trial: Trial) -> Compared:
        """One setting."""
        key = trial.variant_key or ""
        selection = [self._goal(goal, key, trial) for goal in self.goals]
        tests = [self._side(key, *column) for column in self.columns]
        gaps = [
            _gap(self.goals, selection, metric, test)
            for (_, metric), test in zip(self.columns, tests, strict=True)
        ]
        return Compared(
            name=name,
            told=told,
            plan_id=trial.plan_id,
            chosen=not trial.rule,
            selection=tuple(selection),
            tests=tuple(tests),
            gaps=tuple(gaps),
        )

    def _goal(self, goal: Goal, key: str, trial: Trial | None) -> Side:
        parts = [self._side(key, task, str(goal.metric)) for task in goal.tasks]
        kept = [part.retained for part in parts if part.retained is not None]
        mean = math.fsum(kept) / len(kept) if kept and len(kept) == len(parts) else None
        if trial is not None:
            return Side(text=goal.shown(trial.values.get(goal.name)), retained=mean)
        single = len(parts) == 1 and not goal.retained
        return Side(text=parts[0].text if single else HOLE, retained=mean)

    def _side(self, key: str, task: str, metric: str) -> Side:
        value, whole = self._values.get((key, task, metric)), self._values.get((self._dense, task, metric))
        if value is None:
            return Side()
        told = metric_named(metric)
        return Side(text=told.shown(value), retained=None if whole is None else told.retained(value, whole))


def _gap(goals: Sequence[Goal], selection: Sequence[Side], metric: str, test: Side) -> str:
    """Selection minus test in points of what is retained, under the first objective of the same metric."""
    for goal, side in zip(goals, selection, strict=True):
        if goal.metric == metric and side.retained is not None and test.retained is not None:
            return f"{side.retained - test.retained:+.1f}"
    return ""
