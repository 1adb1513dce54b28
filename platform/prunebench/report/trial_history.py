"""Pictures of a whole search: its history, the importance of parameters, and the Pareto front."""

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from prunebench.report.plot import LEFT, TOP, Frame, value_axis, whole_axis
from prunebench.report.studies import Goal, Study, Trial
from prunebench.report.svg import FAINT, PALETTE, cut, figure, joined, marker, spread, tag, text

WIDTH, HEIGHT, RIGHT = 560.0, 300.0, 190.0
LETTERS = 26
BAR, LABEL = 17.0, 190.0
NAME = 14.0
"""Pixels from one name to the next."""
BLUE, ORANGE, GREEN = PALETTE[0], PALETTE[1], PALETTE[2]
GREY = "#b4b4b4"


def history(study: Study, goal: Goal) -> Markup:
    """Each trial's value in the order of asking, the best so far, and the best of the papers' rules."""
    values = [trial.values.get(goal.name) for trial in study.trials]
    known = [value for value in values if value is not None]
    if not known:
        return Markup("")
    rules = [rule for rule in study.rules if goal.name in rule.values]
    axis = value_axis([*known, *(rule.values[goal.name] for rule in rules)])
    x = whole_axis(1, len(values), "trials in the order of asking")
    frame = Frame(width=WIDTH, height=HEIGHT, right=RIGHT, x=x, y=axis)
    title = f"History: {goal.title}" + (", logarithmic axis" if axis.log else "")
    whole = [tick for tick in x.ticks if tick == int(tick)]
    parts = [frame.drawn(title, percent=goal.in_percent, marks=whole)]
    parts += [_trial(frame, goal, place, trial) for place, trial in enumerate(study.trials, start=1)]
    line, best = _best_so_far(frame, goal, study)
    parts += [line, _rule_line(frame, goal, rules, best)]
    return figure(WIDTH, HEIGHT, title, *parts)


def _trial(frame: Frame, goal: Goal, place: int, trial: Trial) -> Markup:
    told = tag("title", f"trial {trial.number}, {trial.name}: {outcome(goal, trial)}")
    value = trial.values.get(goal.name)
    x = frame.across(place)
    if value is None:
        return marker("cross", x, frame.base - 5, ORANGE, told)
    return marker("ring" if trial.state != "complete" else "circle", x, frame.up(value), BLUE, told)


def outcome(goal: Goal, trial: Trial) -> str:
    """What a trial came to, in words."""
    value = trial.values.get(goal.name)
    told = trial.state if value is None else goal.shown(value)
    return f"{told} ({trial.error})" if trial.error else told


def _best_so_far(frame: Frame, goal: Goal, study: Study) -> tuple[Markup, float]:
    """The line with its name, and the name's height; below the picture where there is none."""
    best, path = None, ""
    for place, trial in enumerate(study.trials, start=1):
        value = trial.values.get(goal.name)
        if trial.state == "complete" and value is not None and (best is None or goal.better(value, best)):
            path += f"{'M' if best is None else 'H'}{frame.across(place):.1f} "
            path += f"{frame.up(value):.1f}" if best is None else f"V{frame.up(value):.1f}"
            best = value
    if best is None:
        return Markup(""), HEIGHT
    edge, y = WIDTH - RIGHT, frame.up(best)
    line = tag("path", d=f"{path}H{edge:.1f}", fill="none", stroke=BLUE, stroke_width=1.8)
    return line + text(edge + 5, y + 4, f"best {goal.shown(best)}"), y


def _rule_line(frame: Frame, goal: Goal, rules: Sequence[Trial], taken: float) -> Markup:
    """The best rule's value as a line with its name, clear of the name at the height `taken`."""
    if not rules:
        return Markup("")
    sign = 1 if goal.direction == "minimize" else -1
    best = min(rules, key=lambda rule: sign * rule.values[goal.name])
    value = best.values[goal.name]
    y, edge = frame.up(value), WIDTH - RIGHT
    line = tag("line", x1=LEFT, x2=edge, y1=y, y2=y, stroke=GREEN, stroke_width=1.4, stroke_dasharray="7 3")
    told = tag("title", f"{best.branch}, {best.rule}")
    height = y if abs(y - taken) >= NAME else taken - NAME if y < taken else taken + NAME
    shown = cut(f"rule {best.branch}", LETTERS - 1 - len(goal.shown(value)))
    name = tag("text", told, f"{shown} {goal.shown(value)}", x=edge + 5, y=height + 4)
    return line + name


def importance(study: Study, goal: Goal) -> Markup:
    """The share of each parameter, the largest first; empty where nothing can be said."""
    shares = study.record["importances"].get(goal.name, {})
    if not shares:
        return Markup("")
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    width = WIDTH - LABEL - 60
    title = f"Importance of parameters for {goal.name}"
    parts = [text(4, 14, title, class_="head")]
    for place, (name, share) in enumerate(ordered):
        y = TOP + place * BAR
        parts.append(text(LABEL - 8, y + 12, name, anchor="end"))
        parts.append(tag("rect", x=LABEL, y=y + 2, width=max(share * width, 0.5), height=BAR - 5, fill=BLUE))
        parts.append(text(LABEL + share * width + 6, y + 12, f"{share:.2f}"))
    return figure(WIDTH, TOP + len(ordered) * BAR + 8, title, *parts)


def fronts(study: Study) -> list[Markup]:
    """The first objective against each other one; none where there is but one."""
    first, *others = study.goals
    return [_front(study, first, other) for other in others]


def _front(study: Study, first: Goal, second: Goal) -> Markup:
    done = [trial for trial in study.trials if {first.name, second.name} <= trial.values.keys()]
    rules = [rule for rule in study.rules if {first.name, second.name} <= rule.values.keys()]
    xs = [trial.values[second.name] for trial in (*done, *rules)]
    title = f"{first.title} against {second.title}"
    if not xs:
        return Markup("")
    margin = (max(xs) - min(xs)) * 0.04 or 1.0
    frame = Frame(
        width=WIDTH,
        height=HEIGHT + 40,
        right=RIGHT,
        x=whole_axis(min(xs) - margin, max(xs) + margin, second.title),
        y=value_axis([trial.values[first.name] for trial in (*done, *rules)]),
    )
    chosen = {trial.number for trial in study.chosen}
    parts = [frame.drawn(title, percent=first.in_percent)]
    for trial in (*done, *rules):
        told = tag("title", f"{trial.name}: {_pair(trial, first, second)}")
        at = frame.across(trial.values[second.name]), frame.up(trial.values[first.name])
        if trial.rule:
            parts.append(marker("triangle", *at, GREEN, told))
        elif trial.number not in chosen:
            parts.append(marker("circle", *at, GREY, told))
    parts.append(_chosen(frame, study.chosen, first, second))
    return figure(WIDTH, HEIGHT + 40, title, *parts)


def _chosen(frame: Frame, chosen: Sequence[Trial], first: Goal, second: Goal) -> Markup:
    """The front as a line of steps, with the names of its trials."""
    ordered = sorted(chosen, key=lambda trial: trial.values[second.name])
    at = [(frame.across(t.values[second.name]), frame.up(t.values[first.name])) for t in ordered]
    parts = [
        tag("path", d=f"M{x:.1f} {y:.1f}H{x2:.1f}V{y2:.1f}", fill="none", stroke=BLUE, stroke_width=1.2)
        for (x, y), (x2, y2) in pairwise(at)
    ]
    heights = spread(sorted(y for _, y in at), 14.0, frame.top, frame.base)
    order = sorted(range(len(at)), key=lambda place: at[place][1])
    edge = frame.width - frame.right
    for height, place in zip(heights, order, strict=True):
        trial, (x, y) = ordered[place], at[place]
        told = tag("title", f"trial {trial.number}, {trial.name}: {_pair(trial, first, second)}")
        parts.append(marker("diamond", x, y, BLUE, told))
        lead = f"M{x + 6:.1f} {y:.1f}L{edge + 2:.1f} {height:.1f}"
        parts.append(tag("path", d=lead, stroke=FAINT, stroke_width=0.4, fill="none"))
        parts.append(text(edge + 5, height + 4, f"{trial.number}: {trial.branch}"))
    return joined(parts)


def _pair(trial: Trial, first: Goal, second: Goal) -> str:
    values = (goal.shown(trial.values[goal.name]) for goal in (first, second))
    return " and ".join(values)


def finite(values: Sequence[float]) -> list[float]:
    """The values that a picture can show."""
    return [value for value in values if math.isfinite(value)]
