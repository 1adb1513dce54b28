"""The part of the page on one search: its table, its pictures, its trials and their plans."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from prunebench.core.plan import PruningPlan
from prunebench.report.gaps import Comparison, comparison
from prunebench.report.grids import grid_map, threshold_map
from prunebench.report.layers import told_of
from prunebench.report.metrics import HOLE
from prunebench.report.profiles import intervals, numbers_of, profile
from prunebench.report.source import Source
from prunebench.report.studies import Study, shown_value
from prunebench.report.trial_history import fronts, history, importance


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial as the table prints it."""

    number: int | None
    state: str
    branch: str
    params: str
    values: tuple[str, ...]
    plan_id: str | None
    error: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRow:
    """One interval of a continuous parameter."""

    low: str
    high: str
    value: str
    plan_id: str | None
    remark: str
    """Why it has no plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSection:
    """Everything that the page says of one search."""

    study: Study
    table: Comparison
    figures: tuple[Markup, ...]
    maps: tuple[Markup, ...]
    pieces: Mapping[str, tuple[PieceRow, ...]]
    """Branch and parameter -> intervals."""
    trials: tuple[TrialRow, ...]
    plans: Mapping[str, str]
    """Plan id -> what it does."""


def search_section(study: Study, source: Source, num_features: Mapping[str, int | None]) -> SearchSection:
    """The section of a study; `num_features` is the dense MLP width of each model, where it is known."""
    rows = (*study.rules, *study.trials)
    ids = dict.fromkeys(row.plan_id for row in rows if row.plan_id is not None)
    width = num_features.get(study.model)
    return SearchSection(
        study=study,
        table=comparison(study, source),
        figures=tuple(filter(None, _figures(study))),
        maps=tuple(filter(None, _maps(study))),
        pieces=dict(_pieces(study)),
        trials=tuple(_trials(study)),
        plans={plan_id: _told(source.plans, plan_id, width) for plan_id in ids},
    )


def _told(plans: Mapping[str, PruningPlan], plan_id: str, width: int | None) -> str:
    return told_of(plans[plan_id], width)


def _figures(study: Study) -> Iterator[Markup]:
    for goal in study.goals:
        yield history(study, goal)
        yield importance(study, goal)
    yield from fronts(study)


def _maps(study: Study) -> Iterator[Markup]:
    """A picture of each branch by what it searches: intervals, a profile, or a map of two numbers."""
    goal = study.goals[0]
    for branch in study.branches:
        own = [trial for trial in study.trials if trial.branch == branch]
        numbers = numbers_of(own)
        listed = study.record["pieces"][branch]
        if len(numbers) == 1 and numbers[0] in listed:
            yield intervals(study, branch, numbers[0], goal)
        elif len(numbers) == 1:
            yield profile(study, branch, numbers[0], goal)
        elif len(numbers) == 2:
            yield grid_map(study, branch, numbers[0], numbers[1], goal)
        yield threshold_map(study, branch)


def _pieces(study: Study) -> Iterator[tuple[str, tuple[PieceRow, ...]]]:
    goal = study.goals[0]
    for branch, parameters in study.record["pieces"].items():
        for parameter in parameters:
            rows = []
            for piece, trial in study.by_piece(branch, parameter):
                limit = "narrower than the numbers it could hold: listed, not scored"
                rows.append(
                    PieceRow(
                        low=shown_value(piece["low"]),
                        high=shown_value(piece["high"]),
                        value=HOLE if trial is None else goal.shown(trial.values.get(goal.name)),
                        plan_id=None if trial is None else trial.plan_id,
                        remark=limit if piece["value"] is None else "" if trial else "not tried",
                    )
                )
            yield f"{branch}: {parameter}", tuple(rows)


def _trials(study: Study) -> Iterator[TrialRow]:
    chosen = {trial.number for trial in study.chosen}
    for trial in study.trials:
        yield TrialRow(
            number=trial.number,
            state=trial.state,
            branch=trial.branch,
            params=", ".join(f"{name}={shown_value(value)}" for name, value in trial.params.items()),
            values=tuple(goal.shown(trial.values.get(goal.name)) for goal in study.goals),
            plan_id=trial.plan_id,
            error=trial.error or "",
            chosen=trial.number in chosen,
        )
