"""Pareto fronts: quality against parameters, latency and memory; what is dominated is faint."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from prunebench.report.board import Board, Cell, Row
from prunebench.report.metrics import Metric, millions
from prunebench.report.papers import PaperTable
from prunebench.report.plot import GAP, LOG_RATIO, Axis, Frame
from prunebench.report.standing import quality_places
from prunebench.report.svg import INK, Style, cut, figure, joined, marker, style_of, tag, text

COSTS = {
    "prefill_ms": "prefill latency, ms",
    "decode_ms_per_token": "decode latency, ms a token",
    "tokens_per_s": "tokens per second",
    "peak_memory_gib": "peak memory, GiB",
}
MORE_IS_BETTER = frozenset({"tokens_per_s"})
WIDTH, RIGHT = 620.0, 215.0
LETTERS = 24
FAR = 30
"""Perplexities this many times the best are not drawn: they would hide the rest."""
ALIKE = 0.005
MOST = 40
"""Contenders that are named; beyond it only those of the front."""
DENSE_STYLE = Style(INK, "", "diamond")


class Point(NamedTuple):
    """One row at one budget."""

    x: float
    y: float
    row: Row
    told: str


class Quality(NamedTuple):
    """What goes up."""

    title: str
    metric: Metric
    cells: Sequence[tuple[Row, Cell]]


class Cost(NamedTuple):
    """What goes right; `lower` says whether less of it is better."""

    title: str
    of: Mapping[str, float]
    """By variant key."""
    lower: bool = True


def pareto(board: Board, papers: Sequence[PaperTable]) -> list[Markup]:
    """A picture for each quality and cost that at least two distinct rows have."""
    pictures = []
    for quality in _qualities(board, papers):
        for cost in _costs(board):
            points = _points(quality, cost)
            if len({point.row.label for point in points}) > 1 and len({point.x for point in points}) > 1:
                pictures.append(_picture(quality, cost, points, board))
    return pictures


def _qualities(board: Board, papers: Sequence[PaperTable]) -> list[Quality]:
    """The first perplexity, and the first average or accuracy that there is."""
    found = []
    places = quality_places(board)
    perplexities = [place for place in places if board.columns[place].metric.better == "lower"]
    if perplexities:
        column = board.columns[perplexities[0]]
        found.append(
            Quality(f"{column.name}: {column.metric.title}", column.metric, _cells(board, perplexities[0]))
        )
    averaged = [one for one in papers if one.complete and not one.recipe.borrowed]
    whole = [one for one in averaged if one.recipe.average_metric.percent]
    accuracies = [place for place in places if board.columns[place].metric.percent]
    if whole:
        rows = [row for block in whole[0].blocks for row in block.rows]
        metric = whole[0].recipe.average_metric
        title = f"average over {len(whole[0].columns)} tasks ({whole[0].recipe.name}), % ↑"
        found.append(Quality(title, metric, [(row, row.means[0]) for row in rows]))
    elif board.means:
        mean, place = board.means[0], len(board.columns)
        found.append(Quality(f"{mean.name}: {mean.metric.title}", mean.metric, _cells(board, place)))
    elif accuracies:
        column = board.columns[accuracies[0]]
        found.append(
            Quality(f"{column.name}: {column.metric.title}", column.metric, _cells(board, accuracies[0]))
        )
    return found


def _cells(board: Board, place: int) -> list[tuple[Row, Cell]]:
    return [(row, row.all_cells[place]) for table in board.tables for row in table.rows]


def _costs(board: Board) -> list[Cost]:
    rows = [row for table in board.tables for row in table.rows]
    totals = {row.variant["variant_key"]: row.variant["total_params"] for row in rows}
    params = {key: total / 1e6 for key, total in totals.items() if total is not None}
    found = [Cost("parameters, millions", params)]
    told: set[str] = set()
    for place, column in enumerate(board.columns):
        name = column.metric.name
        if name in COSTS and name not in told:
            told.add(name)
            values = {row.variant["variant_key"]: row.cells[place].value for row in rows}
            known = {key: value for key, value in values.items() if value is not None}
            found.append(Cost(COSTS[name], known, name not in MORE_IS_BETTER))
    return found


def _points(quality: Quality, cost: Cost) -> list[Point]:
    found: dict[str, Point] = {}
    for row, cell in quality.cells:
        x = cost.of.get(row.variant["variant_key"])
        if x is None or cell.value is None or not math.isfinite(cell.value) or not math.isfinite(x):
            continue
        layers = "" if row.label.dense else f", {row.variant['budget_layers']} layers"
        params = "" if row.variant["total_params"] is None else f", {millions(row.variant['total_params'])}"
        told = f"{row.label.name}{layers}: {cell.text}{params}; {cost.title} {x:.4g}"
        found.setdefault(row.variant["variant_key"], Point(x, cell.value, row, told))
    points = list(found.values())
    if quality.metric.better == "lower" and points:
        best = min(point.y for point in points)
        points = [point for point in points if best <= 0 or point.y <= FAR * best]
    return points


def front(places: Sequence[tuple[float, float]], metric: Metric, *, lower: bool) -> list[int]:
    """Which (cost, value) no other beats on one side without losing on the other, by ascending cost.

    Costs within `ALIKE` of one another are one: budgets are met up to rounding.
    """
    sign = 1.0 if lower else -1.0
    ordered = sorted(range(len(places)), key=lambda i: (sign * places[i][0], metric.rank(places[i][1])))
    found: list[int] = []
    for i in ordered:
        cost, value = places[i]
        if found and metric.rank(value) >= metric.rank(places[found[-1]][1]):
            continue
        while found and abs(cost - places[found[-1]][0]) <= ALIKE * abs(cost):
            found.pop()
        found.append(i)
    return sorted(found, key=lambda i: places[i][0])


def _picture(quality: Quality, cost: Cost, points: Sequence[Point], board: Board) -> Markup:
    places = [(point.x, point.y) for point in points]
    best = [points[i] for i in front(places, quality.metric, lower=cost.lower)]
    labels = list(dict.fromkeys(point.row.label for point in points))
    if len(labels) > MOST:
        kept = {point.row.label for point in best}
        labels = [label for label in labels if label in kept][:MOST]
        points = [point for point in points if point.row.label in labels]
    pruned = [label for label in board.labels.values() if not label.dense]
    styles = {label: style_of(i, sanity=label.sanity) for i, label in enumerate(pruned)}
    styles |= {label: DENSE_STYLE for label in labels if label.dense}
    frame = _frame(quality, cost, points, max(380.0, 80 + GAP * (len(labels) + 2)))
    title = f"{quality.title} against {cost.title}" + (" (logarithmic)" if frame.y.log else "")
    path = "L".join(f"{frame.across(p.x):.1f} {frame.up(p.y):.1f}" for p in best)
    return figure(
        WIDTH,
        frame.height,
        title,
        frame.drawn(title, percent=quality.metric.percent),
        tag("path", d=f"M{path}", fill="none", stroke=INK, stroke_width=1.2, stroke_dasharray="4 3"),
        joined(
            _marked(point, frame, styles[point.row.label], faint=True)
            for point in points
            if point not in best
        ),
        joined(_marked(point, frame, styles[point.row.label], faint=False) for point in best),
        joined(_removed(point, frame) for point in best),
        _legend([(label.brief, styles[label]) for label in labels], frame),
    )


def _frame(quality: Quality, cost: Cost, points: Sequence[Point], height: float) -> Frame:
    low, high = min(p.y for p in points), max(p.y for p in points)
    log = low > 0 and high / low > LOG_RATIO / 4 and quality.metric.better == "lower"
    y = Axis("", low / 1.1, high * 1.1, log=True) if log else Axis("", low, high)
    x = Axis(cost.title, min(p.x for p in points), max(p.x for p in points))
    return Frame(width=WIDTH, height=height, right=RIGHT, x=x, y=y)


def _marked(point: Point, frame: Frame, style: Style, *, faint: bool) -> Markup:
    at = frame.across(point.x), frame.up(point.y)
    drawn = marker(style.marker, *at, style.colour, tag("title", point.told))
    return tag("g", drawn, opacity=0.35) if faint else drawn


def _removed(point: Point, frame: Frame) -> Markup:
    """How many layers a point of the front lost, beside it."""
    layers = str(point.row.variant["budget_layers"] or "dense")
    return text(frame.across(point.x) + 7, frame.up(point.y) - 6, layers, class_="faint")


def _legend(entries: Sequence[tuple[str, Style]], frame: Frame) -> Markup:
    left, y = frame.edge + 22, frame.top + 6
    line = tag("line", x1=left - 8, x2=left + 10, y1=y, y2=y, stroke=INK, stroke_dasharray="4 3")
    parts = [line, text(left + 16, y + 4, "front; layers removed")]
    for name, style in entries:
        y += GAP
        shown = cut(name, LETTERS)
        parts += [
            marker(style.marker, left, y, style.colour),
            tag("text", tag("title", name), shown, x=left + 16, y=y + 4),
        ]
    return joined(parts)
