"""Maps of two numbers: the value of each pair (LaCo's C and I), and the thresholds that reach the budget."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from prunebench.report.heatmap import colour
from prunebench.report.plot import short, value_axis
from prunebench.report.studies import Goal, Study, Trial, shown_value
from prunebench.report.svg import FAINT, GRID, figure, linear_ticks, scale, tag, text
from prunebench.report.trial_history import BLUE, GREY, finite, outcome

WIDTH, CELL, ROW, LEFT, TOP = 560.0, 66.0, 34.0, 104.0, 52.0
DARK = 0.55
"""Cells darker than this part of the scale have white letters."""


def grid_map(study: Study, branch: str, across: str, down: str, goal: Goal) -> Markup:
    """One cell for each pair of two parameters, the best trial of it; crossed where no setting reaches."""
    trials = [trial for trial in study.trials if trial.branch == branch]
    xs = sorted({trial.params[across] for trial in trials})
    ys = sorted({trial.params[down] for trial in trials})
    best: dict[tuple[Any, Any], Trial] = {}
    for trial in trials:
        at = trial.params[across], trial.params[down]
        if at not in best or _rank(goal, trial) < _rank(goal, best[at]):
            best[at] = trial
    values = finite([t.values[goal.name] for t in best.values() if goal.name in t.values])
    title = f"{branch}: {goal.title} by {across} and {down}"
    parts = [text(4, 14, title, class_="head")]
    parts.append(text(LEFT, TOP - 22, f"{across} →", class_="faint"))
    parts.append(text(LEFT - 8, TOP - 6, f"{down} ↓", anchor="end", class_="faint"))
    for i, x in enumerate(xs):
        parts.append(text(LEFT + (i + 0.5) * CELL, TOP - 6, shown_value(x), anchor="middle"))
    for j, y in enumerate(ys):
        parts.append(text(LEFT - 8, TOP + (j + 0.5) * ROW + 4, shown_value(y), anchor="end"))
        for i, x in enumerate(xs):
            if (x, y) in best:
                parts.append(_cell(goal, best[x, y], LEFT + i * CELL, TOP + j * ROW, values))
    return figure(max(WIDTH, LEFT + CELL * len(xs) + 12), TOP + ROW * len(ys) + 10, title, *parts)


def _rank(goal: Goal, trial: Trial) -> tuple[bool, float]:
    value = trial.values.get(goal.name)
    return value is None, 0.0 if value is None else value if goal.direction == "minimize" else -value


def _cell(goal: Goal, trial: Trial, x: float, y: float, values: Sequence[float]) -> Markup:
    told = tag("title", f"{trial.name}: {outcome(goal, trial)}")
    value = trial.values.get(goal.name)
    box = {"x": x + 1, "y": y + 1, "width": CELL - 2, "height": ROW - 2}
    middle = x + CELL / 2
    if value is None:
        arms = f"M{middle - 5:.1f} {y + ROW / 2 - 5:.1f}l10 10m0 -10l-10 10"
        return tag(
            "g",
            told,
            tag("rect", **box, fill="#f4f4f2", stroke=GRID),
            tag("path", d=arms, stroke=FAINT, stroke_width=1.2, fill="none"),
        )
    part = value_axis(values).scale(0, 1)(value)
    part = 1 - part if goal.direction == "minimize" else part
    ink = "light" if part < DARK else ""
    threshold = trial.chosen.get("threshold")
    lines = [goal.shown(value)] + ([f"T {threshold:.3f}"] if isinstance(threshold, float) else [])
    words = [
        tag(
            "text",
            line,
            x=middle,
            y=y + ROW / 2 + 4 + 13 * (k - (len(lines) - 1) / 2),
            text_anchor="middle",
            class_=ink,
        )
        for k, line in enumerate(lines)
    ]
    return tag("g", told, tag("rect", **box, fill=colour(part)), *words)


def threshold_map(study: Study, branch: str) -> Markup:
    """For each C and I the thresholds T at which LaCo removes exactly the budget; empty where unknown."""
    rows: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for trial in study.trials:
        if trial.branch == branch:
            for hit in trial.chosen.get("hits", ()):
                own = rows.setdefault((hit["merge_layers"], hit["interval"]), [])
                if hit not in own:
                    own.append(hit)
    if not rows:
        return Markup("")
    hits = [hit for own in rows.values() for hit in own]
    ticks = linear_ticks(min(h["threshold"] for h in hits), max(h["threshold_below"] for h in hits))
    width, left, height = WIDTH, LEFT, 40 + 17.0 * len(rows) + 40
    across = scale(ticks[0], ticks[-1], left, width - 120)
    title = f"{branch}: thresholds that remove exactly the budget"
    parts = [text(4, 14, title, class_="head")]
    for tick in ticks:
        parts.append(tag("line", x1=across(tick), x2=across(tick), y1=30, y2=height - 38, stroke=GRID))
        parts.append(text(across(tick), height - 22, short(tick), anchor="middle"))
    for place, ((size, interval), own) in enumerate(sorted(rows.items())):
        y = 34 + 17.0 * place
        parts.append(text(left - 8, y + 11, f"C {size}, I {interval}", anchor="end"))
        parts += [_hit(hit, across, y, first=hit is own[0]) for hit in own]
        plans = len({hit["plan_id"] for hit in own})
        parts.append(text(width - 114, y + 11, f"{plans} plan{'s' if plans != 1 else ''}", class_="faint"))
    parts.append(
        text(
            left,
            height - 6,
            "threshold T; the highest interval of each row is the one that is taken",
            class_="faint",
        )
    )
    return figure(width, height, title, *parts)


def _hit(hit: Mapping[str, Any], across: Any, y: float, *, first: bool) -> Markup:  # noqa: ANN401
    low, high = across(hit["threshold"]), across(hit["threshold_below"])
    told = f"T {hit['threshold']:.4f} to {hit['threshold_below']:.4f}: plan {hit['plan_id']}"
    return tag(
        "rect",
        tag("title", f"{told}, output similarity {hit['output_similarity']:.4f}"),
        x=low,
        y=y + 3,
        width=max(high - low - 1, 1.5),
        height=9,
        fill=BLUE if first else GREY,
    )
