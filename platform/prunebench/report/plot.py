"""Lines over two axes, each named at its right end: told apart by dashes and names, colours only help."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from prunebench.report.frame import BOTTOM, TOP, Frame, round_axis
from prunebench.report.svg import FAINT, Style, figure, joined, marker, spread, tag, text

WIDTH, HEIGHT, RIGHT = 560.0, 340.0, 190.0
GAP = 15.0


class Line(NamedTuple):
    """One line through `points`, ascending in x."""

    name: str
    style: Style
    points: Sequence[tuple[float, float]]
    marked: bool = False
    """Whether its points have markers."""


class Span(NamedTuple):
    """What an axis shows, and the range that it covers at least."""

    title: str
    low: float
    high: float


def plot(title: str, x: Span, y: Span, lines: Sequence[Line]) -> Markup:
    """The picture of at least one line, each of at least one point, on linear axes."""
    frame = Frame(
        width=WIDTH,
        height=max(HEIGHT, TOP + BOTTOM + GAP * (len(lines) + 2)),
        right=RIGHT,
        x=round_axis(x.low, x.high),
        y=round_axis(y.low, y.high),
        values=y.title,
    )
    drawn = joined(_drawn(line, frame) for line in lines)
    return figure(WIDTH, frame.height, title, frame.drawn(title, x.title), drawn, _names(lines, frame))


def _drawn(line: Line, frame: Frame) -> Markup:
    style, across, up = line.style, frame.across, frame.up
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


def _names(lines: Sequence[Line], frame: Frame) -> Markup:
    """The name of each line with a piece of it, at the height of its last point."""
    across, up = frame.across, frame.up
    ordered = sorted(lines, key=lambda line: (up(line.points[-1][1]), line.name))
    heights = spread([up(line.points[-1][1]) for line in ordered], GAP, frame.top, frame.base + 6)
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
