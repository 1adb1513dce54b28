"""Curves: a metric against the budget, one line a contender, told apart by dashes, markers and names."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from prunebench.report.board import Board
from prunebench.report.columns import Column, MeanColumn
from prunebench.report.labels import Label
from prunebench.report.plot import GAP, LOG_RATIO, Axis, Frame
from prunebench.report.svg import (
    FAINT,
    NOTHING,
    Style,
    cut,
    figure,
    joined,
    marker,
    scale,
    spread,
    style_of,
    tag,
)

WIDTH, HEIGHT, RIGHT = 620.0, 400.0, 245.0
NAME_LETTERS = 26
OFF_SCALE = 3
"""A sanity row leaves the picture where it is this many times worse than the worst other row."""
BROKEN = 1000
"""Any row leaves it where it is this many times worse than the best: a broken model hides the others."""


class Point(NamedTuple):
    """One value."""

    budget: int
    value: float
    text: str
    told: str
    """What is shown when it is pointed at."""


class Line(NamedTuple):
    """One contender. A budget without a value interrupts it."""

    label: Label
    style: Style
    points: tuple[Point | None, ...]

    @property
    def end(self) -> Point:
        """The last value."""
        return [point for point in self.points if point][-1]


def curves(board: Board) -> list[Markup]:
    """One picture for each column and mean that pruned models have values of; the dense model is budget 0."""
    budgets = [0, *(table.budget_layers for table in board.tables if table.budget_layers)]
    pictures = []
    for place, column in enumerate(board.all_columns):
        if not column.metric.beside and (lines := _lines(board, place, budgets)):
            pictures.append(_picture(column, budgets, lines))
    return pictures


def _lines(board: Board, place: int, budgets: Sequence[int]) -> list[Line]:
    rows = [(table.budget_layers, row) for table in board.tables for row in table.rows]
    cells = {(budget, row.label): row.all_cells[place] for budget, row in rows}
    dense = next((row.all_cells[place] for _, row in rows if row.label.dense), None)
    pruned = [label for label in board.labels.values() if not label.dense]
    found = []
    for number, label in enumerate(pruned):
        points: list[Point | None] = []
        for budget in budgets:
            cell = cells.get((budget, label)) if budget else dense
            if cell is None or cell.value is None or not math.isfinite(cell.value):
                points.append(None)
                continue
            name = f"{label.name}, {budget} layers" if budget else "Dense"
            error = f" ± {cell.error}" if cell.error else ""
            points.append(Point(budget, cell.value, cell.text, f"{name}: {cell.text}{error}"))
        if any(points[1:]):
            found.append(Line(label, style_of(number, sanity=label.sanity), tuple(points)))
    return found


def _picture(column: Column | MeanColumn, budgets: Sequence[int], lines: Sequence[Line]) -> Markup:
    low, high = _limits(column, lines)
    log = low > 0 and high / low > LOG_RATIO
    frame = Frame(
        width=WIDTH,
        height=max(HEIGHT, 80 + GAP * len(lines)),
        right=RIGHT,
        x=Axis("layers removed", 0, budgets[-1], exact=True),
        y=Axis("", low / 1.15, high * 1.15, log=True) if log else Axis("", low, high),
    )
    title = f"{column.name}: {column.metric.title}" + (", logarithmic axis" if log else "")
    return figure(
        WIDTH,
        frame.height,
        title,
        frame.drawn(title, percent=column.metric.percent, marks=budgets, named=_budget),
        joined(_drawn(line, frame) for line in lines),
        _names(lines, frame),
    )


def _budget(layers: float) -> str:
    return f"{layers:g}" if layers else "dense"


def _limits(column: Column | MeanColumn, lines: Sequence[Line]) -> tuple[float, float]:
    """The range of all values, without rows so much worse that the others could not be told apart."""
    values = [point.value for line in lines for point in line.points if point]
    others = [point.value for line in lines for point in line.points if point and not line.label.sanity]
    low, high = min(values), max(values)
    if column.metric.better == "lower":
        if others and high > OFF_SCALE * max(others):
            high = max(others)
        if low > 0:
            high = min(high, BROKEN * low)
    return low, high


def _drawn(line: Line, frame: Frame) -> Markup:
    """The line's pieces within the frame, and a marker on every value of a pruned model."""
    # What lies above the frame is not moved to its edge: the line would end at a value that is not there.
    up = scale(*frame.y.ends, frame.base, frame.top, log=frame.y.log)
    places = [None if p is None else (frame.across(p.budget), up(p.value)) for p in line.points]
    pieces = "".join(_piece(a, b, frame.top) for a, b in pairwise(places) if a and b)
    style = line.style
    stroke = tag(
        "path", d=pieces, fill="none", stroke=style.colour, stroke_width=1.8, stroke_dasharray=style.dash
    )
    marks = [
        marker(style.marker, frame.across(p.budget), up(p.value), style.colour, tag("title", p.told))
        for p in line.points
        if p and p.budget and p.value <= frame.y.ends[1]
    ]
    return tag("g", stroke if pieces else NOTHING, *marks)


def _piece(a: tuple[float, float], b: tuple[float, float], top: float) -> str:
    """The part of the straight line from a to b that lies below the upper edge."""
    (x, y), (other_x, other_y) = sorted((a, b), key=lambda place: -place[1])
    if y < top:
        return ""
    if other_y < top:
        other_x, other_y = x + (other_x - x) * (y - top) / (y - other_y), top
    return f"M{x:.1f} {y:.1f}L{other_x:.1f} {other_y:.1f}"


def _names(lines: Sequence[Line], frame: Frame) -> Markup:
    """At the right the name of each line with a piece of it, at the height of its last value."""
    ordered = sorted(lines, key=lambda line: (frame.up(line.end.value), line.label.name))
    ends = [frame.up(line.end.value) for line in ordered]
    heights = spread(ends, GAP, frame.top - 6, frame.base + 6)
    left = frame.edge + 22
    parts = []
    for line, end, y in zip(ordered, ends, heights, strict=True):
        colour, dash, shape = line.style
        outside = line.end.value > frame.y.ends[1]
        x = frame.across(line.end.budget) + 7
        lead = f"M{x:.1f} {end:.1f}L{max(x, left - 12):.1f} {end:.1f}L{left - 3:.1f} {y:.1f}"
        leaving = f" ↑ {line.end.text}" if outside else ""
        brief, room = line.label.brief, NAME_LETTERS - len(leaving)
        name = cut(brief, room) + leaving
        if not outside:
            parts.append(tag("path", d=lead, fill="none", stroke=FAINT, stroke_width=0.5))
        sample = {"stroke": colour, "stroke_width": 1.8, "stroke_dasharray": dash}
        parts += [
            tag("line", x1=left, x2=left + 30, y1=y, y2=y, **sample),
            marker(shape, left + 15, y, colour),
            tag("text", tag("title", line.label.name), name, x=left + 36, y=y + 4),
        ]
    return joined(parts)
