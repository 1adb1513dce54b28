"""Pictures of one parameter: the value against K, or against alpha with its exact intervals."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from markupsafe import Markup

from prunebench.report.plot import Frame, value_axis, whole_axis
from prunebench.report.studies import Goal, Study, Trial, shown_value
from prunebench.report.svg import cut, figure, joined, marker, spread, style_of, tag, text
from prunebench.report.trial_history import BLUE, GREEN, GREY, ORANGE, outcome

WIDTH, HEIGHT, RIGHT = 560.0, 300.0, 170.0
THINNEST = 2.0
"""Pixels that an interval takes at least."""
LETTERS = 24
Parts: TypeAlias = Mapping[str, Any]


def numbers_of(trials: Sequence[Trial]) -> list[str]:
    """The parameters of a branch that hold numbers, in their order."""
    found = [
        name
        for name, value in trials[0].params.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return [name for name in found if len({trial.params[name] for trial in trials}) > 1]


def intervals(study: Study, branch: str, parameter: str, goal: Goal) -> Markup:
    """The value on every interval of a continuous parameter in which the plan is one and the same."""
    pieces = study.by_piece(branch, parameter)
    trials = [trial for _, trial in pieces if trial is not None]
    known = [trial.values[goal.name] for trial in trials if goal.name in trial.values]
    if not known:
        return Markup("")
    rule = next((rule for rule in study.rules if rule.branch == branch and goal.name in rule.values), None)
    axis = value_axis([*known, *([rule.values[goal.name]] if rule else [])])
    frame = Frame(
        width=WIDTH,
        height=HEIGHT,
        right=RIGHT,
        x=whole_axis(
            pieces[0][0]["low"], pieces[-1][0]["high"], f"{parameter}, {len(pieces)} exact intervals"
        ),
        y=axis,
    )
    title = f"{branch}: {goal.title} against {parameter}" + (", logarithmic axis" if axis.log else "")
    parts = [frame.drawn(title, percent=goal.in_percent)]
    chosen = {trial.number for trial in study.chosen}
    parts += [_interval(frame, goal, piece, trial, chosen) for piece, trial in pieces]
    if rule is not None:
        parts.append(_rule(frame, goal, rule, parameter))
    return figure(WIDTH, HEIGHT, title, *parts)


def _interval(frame: Frame, goal: Goal, piece: Parts, trial: Trial | None, chosen: set[int | None]) -> Markup:
    low, high = frame.across(piece["low"]), frame.across(piece["high"])
    width = max(high - low, THINNEST)
    told = f"{shown_value(piece['low'])} to {shown_value(piece['high'])}"
    value = None if trial is None else trial.values.get(goal.name)
    if trial is None or value is None:
        why = "not tried" if piece["value"] is not None else "narrower than the numbers it could hold"
        why = why if trial is None else outcome(goal, trial)
        mark = tag("title", f"{told}: {why}")
        return tag(
            "rect", mark, x=low, y=frame.base - 5, width=width, height=4, fill=ORANGE if trial else GREY
        )
    best = trial.number in chosen
    mark = tag("title", f"{told}: {outcome(goal, trial)}, trial {trial.number}")
    y, thick = frame.up(value), 5.0 if best else 3.0
    bar = tag("rect", mark, x=low, y=y - thick / 2, width=width, height=thick, fill=BLUE)
    if not best:
        return bar
    return bar + text(WIDTH - RIGHT + 5, y + 4, f"best {goal.shown(value)}")


def _rule(frame: Frame, goal: Goal, rule: Trial, parameter: str) -> Markup:
    """Where the paper's rule ends: at a value of the parameter if it says one, else at the right edge."""
    value, at = rule.values[goal.name], rule.chosen.get(parameter)
    y = frame.up(value)
    told = tag("title", f"{rule.rule}: {goal.shown(value)}")
    x = WIDTH - RIGHT - 4 if not isinstance(at, int | float) else frame.across(at)
    name = f"rule {goal.shown(value)}" + (f" at {shown_value(at)}" if isinstance(at, int | float) else "")
    label = tag("text", told, name, x=WIDTH - RIGHT + 5, y=y + 18)
    return marker("triangle", x, y, GREEN, told) + label


def profile(study: Study, branch: str, parameter: str, goal: Goal) -> Markup:
    """The value against one number, a line for each combination of the other parameters."""
    trials = [t for t in study.trials if t.branch == branch and goal.name in t.values]
    if not trials:
        return Markup("")
    lines: dict[str, list[Trial]] = {}
    for trial in trials:
        others = [shown_value(value) for name, value in trial.params.items() if name != parameter]
        lines.setdefault(", ".join(others), []).append(trial)
    rule = next((rule for rule in study.rules if rule.branch == branch and goal.name in rule.values), None)
    axis = value_axis([t.values[goal.name] for t in (*trials, *([rule] if rule else []))])
    places = sorted({trial.params[parameter] for trial in trials})
    height = max(HEIGHT, 90 + 15.0 * len(lines))
    x = whole_axis(places[0], places[-1], parameter)
    frame = Frame(width=WIDTH, height=height, right=RIGHT, x=x, y=axis)
    title = f"{branch}: {goal.title} against {parameter}" + (", logarithmic axis" if axis.log else "")
    marks = places if len(places) <= 12 else ()
    parts = [frame.drawn(title, percent=goal.in_percent, marks=marks)]
    parts += [_line(frame, goal, parameter, own, place) for place, own in enumerate(lines.values())]
    parts.append(_names(frame, goal, parameter, lines))
    if rule is not None:
        parts.append(_rule_of(frame, goal, rule, parameter))
    return figure(WIDTH, height, title, *parts)


def _line(frame: Frame, goal: Goal, parameter: str, trials: Sequence[Trial], place: int) -> Markup:
    style = style_of(place)
    ordered = sorted(trials, key=lambda trial: trial.params[parameter])
    at = [(frame.across(t.params[parameter]), frame.up(t.values[goal.name])) for t in ordered]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
    line = tag(
        "path", d=path, fill="none", stroke=style.colour, stroke_width=1.4, stroke_dasharray=style.dash
    )
    marks = [
        marker(style.marker, x, y, style.colour, tag("title", f"{trial.name}: {outcome(goal, trial)}"))
        for (x, y), trial in zip(at, ordered, strict=True)
    ]
    return tag("g", line, *marks)


def _names(frame: Frame, goal: Goal, parameter: str, lines: Mapping[str, Sequence[Trial]]) -> Markup:
    """The other parameters of each line, at the height of its last value."""
    named = [
        (name, place, max(own, key=lambda t: t.params[parameter]))
        for place, (name, own) in enumerate(lines.items())
    ]
    ordered = sorted(named, key=lambda item: frame.up(item[2].values[goal.name]))
    heights = spread(
        [frame.up(last.values[goal.name]) for _, _, last in ordered], 15.0, frame.top, frame.base
    )
    left, parts = frame.width - frame.right + 8, []
    for (name, place, _), y in zip(ordered, heights, strict=True):
        if name:
            style = style_of(place)
            short = cut(name, LETTERS)
            parts += [
                marker(style.marker, left + 4, y, style.colour),
                tag("text", tag("title", name), short, x=left + 13, y=y + 4),
            ]
    return joined(parts)


def _rule_of(frame: Frame, goal: Goal, rule: Trial, parameter: str) -> Markup:
    """The paper's rule, at the value that it chose; methods say K by its letter."""
    letters = {"k": "K", "clusters": "clusters", "merge_layers": "merge_layers", "interval": "interval"}
    at = rule.chosen.get(letters.get(parameter, parameter))
    if not isinstance(at, int | float):
        return Markup("")
    value = rule.values[goal.name]
    told = tag("title", f"{rule.rule}: {parameter} {at}, {goal.shown(value)}")
    return marker("triangle", frame.across(at), frame.up(value) - 9, GREEN, told) + text(
        4, frame.height - 8, f"▲ {rule.rule}", class_="faint"
    )
