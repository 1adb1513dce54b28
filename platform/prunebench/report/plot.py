"""Lines over two axes, each named at its right end: told apart by dashes and names, colours only help."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from prunebench.report.svg import (
    FAINT,
    GRID,
    INK,
    Style,
    figure,
    joined,
    linear_ticks,
    marker,
    scale,
    spread,
    tag,
    text,
)

WIDTH, HEIGHT = 560.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 190.0, 48.0, 46.0
GAP = 15.0


class Line(NamedTuple):
    """One line through `points`, ascending in x."""

    name: str
    style: Style
    points: Sequence[tuple[float, float]]
    marked: bool = False
    """Whether its points have markers."""


class Axis(NamedTuple):
    """One axis, linear, over at least the range given."""

    title: str
    low: float
    high: float


def plot(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> Markup:
    """The picture of at least one line, each of at least one point."""
    x_ticks, y_ticks = (linear_ticks(axis.low, axis.high) for axis in (x, y))
    height = max(HEIGHT, TOP + BOTTOM + GAP * len(lines))
    right, base = WIDTH - RIGHT, height - BOTTOM
    across = scale(x_ticks[0], x_ticks[-1], LEFT, right)
    up = scale(y_ticks[0], y_ticks[-1], base, TOP)
    return figure(
        WIDTH,
        height,
        title,
        text(4, 16, title, class_="head"),
        joined(_across(across(tick), tick, base) for tick in x_ticks),
        joined(_up(up(tick), tick, right) for tick in y_ticks),
        tag("line", x1=LEFT, x2=right, y1=base, y2=base, stroke=INK),
        text((LEFT + right) / 2, height - 8, x.title, anchor="middle", class_="faint"),
        text(LEFT, TOP - 9, y.title, class_="faint"),
        joined(_drawn(line, across, up) for line in lines),
        _names(lines, across, up, base),
    )


def _across(x: float, tick: float, base: float) -> Markup:
    mark = tag("line", x1=x, x2=x, y1=base, y2=base + 4, stroke=INK)
    return mark + text(x, base + 17, f"{tick:g}", anchor="middle")


def _up(y: float, tick: float, right: float) -> Markup:
    line = tag("line", x1=LEFT, x2=right, y1=y, y2=y, stroke=GRID)
    return line + text(LEFT - 6, y + 4, f"{tick:g}", anchor="end")


def _drawn(line: Line, across: Callable[[float], float], up: Callable[[float], float]) -> Markup:
    style = line.style
    path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in line.points)
    drawn = tag(
        "path",
        d=f"M{path}",
        fill="none",
        stroke=style.colour,
        stroke_width=1.8,
        stroke_dasharray=style.dash,
    )
    if not line.marked:
        return drawn
    return drawn + joined(marker(style.marker, across(x), up(y), style.colour) for x, y in line.points)


def _names(
    lines: Sequence[Line], across: Callable[[float], float], up: Callable[[float], float], base: float
) -> Markup:
    """The name of each line with a piece of it, at the height of its last point."""
    ordered = sorted(lines, key=lambda line: (up(line.points[-1][1]), line.name))
    heights = spread([up(line.points[-1][1]) for line in ordered], GAP, TOP, base + 6)
    left = WIDTH - RIGHT + 20
    parts = []
    for line, y in zip(ordered, heights, strict=True):
        x, end = line.points[-1]
        style = line.style
        lead = f"M{across(x) + 4:.1f} {up(end):.1f}L{left - 3:.1f} {y:.1f}"
        parts += [
            tag("path", d=lead, fill="none", stroke=FAINT, stroke_width=0.5),
            tag(
                "line",
                x1=left,
                x2=left + 28,
                y1=y,
                y2=y,
                stroke=style.colour,
                stroke_width=1.8,
                stroke_dasharray=style.dash,
            ),
            text(left + 33, y + 4, line.name),
        ]
        if line.marked:
            parts.append(marker(style.marker, left + 14, y, style.colour))
    return joined(parts)
