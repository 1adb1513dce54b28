"""The frame of a picture with two axes, and lines in it, told apart by dashes and names as by colour."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
    log_ticks,
    marker,
    scale,
    spread,
    tag,
    text,
)

WIDTH, HEIGHT, RIGHT = 560.0, 340.0, 190.0
LEFT, TOP, BOTTOM = 58.0, 32.0, 44.0
INSET = 8.0
"""Pixels between the ends of the horizontal axis and the first and last number on it."""
GAP = 15.0
"""Pixels from one printed name to the next."""
LOG_RATIO = 20
"""A logarithmic axis from this ratio of the largest to the smallest value on."""
BROKEN = 1000
"""A value that is this many times the least leaves the picture at the top: it would hide the others."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis over at least the range given, which is above 0 where it is logarithmic."""

    title: str
    low: float
    high: float
    log: bool = False
    exact: bool = False
    """Whether it ends at `low` and `high` rather than at the round numbers around them."""

    @property
    def ticks(self) -> list[float]:
        """Round numbers on it, ascending."""
        if self.log:
            return log_ticks(self.low, self.high)
        found = linear_ticks(self.low, self.high)
        return found if not self.exact else [t for t in found if self.low - 1e-9 <= t <= self.high + 1e-9]

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers at both ends."""
        return (self.low, self.high) if self.log or self.exact else (self.ticks[0], self.ticks[-1])

    def scale(self, start: float, end: float) -> Callable[[float], float]:
        """The map to pixels; what lies outside goes to the nearer end."""
        low, high = self.ends
        inside = scale(low, high, start, end, log=self.log)
        return lambda value: inside(min(max(value, low), high))


def value_axis(values: Iterable[float], title: str = "") -> Axis:
    """The axis of the finite ones of some values, logarithmic where they differ much."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if low > 0:
        high = min(high, BROKEN * low)
    if low > 0 and high / low > LOG_RATIO:
        return Axis(title, low / 1.15, high * 1.15, log=True)
    return Axis(title, low, high)


def whole_axis(low: float, high: float, title: str = "") -> Axis:
    """The axis of numbers from `low` to `high`, with its ends where they are."""
    return Axis(title, low, high if high > low else low + 1, exact=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A plot's area and its axes."""

    width: float
    height: float
    right: float
    """Pixels at the right of the plot."""
    x: Axis
    y: Axis

    @property
    def across(self) -> Callable[[float], float]:
        """From numbers of the horizontal axis to pixels."""
        return self.x.scale(LEFT + INSET, self.edge - INSET)

    @property
    def up(self) -> Callable[[float], float]:
        """From values to pixels."""
        return self.y.scale(self.base, self.top)

    @property
    def edge(self) -> float:
        """Right end of the horizontal axis."""
        return self.width - self.right

    @property
    def base(self) -> float:
        """Height of the horizontal axis."""
        return self.height - BOTTOM

    @property
    def top(self) -> float:
        """Upper end of the vertical axis, below its title if it has one."""
        return TOP + GAP if self.y.title else TOP

    def drawn(
        self,
        title: str,
        *,
        percent: bool = False,
        marks: Sequence[float] = (),
        named: Callable[[float], str] | None = None,
    ) -> Markup:
        """Title, axes and grid.

        Args:
            title: above the plot.
            percent: whether values are printed in percent.
            marks: numbers of the horizontal axis in place of its round ones.
            named: what stands at a number of the horizontal axis.
        """
        up, across, middle = self.up, self.across, (LEFT + self.edge) / 2
        parts = [text(4, 16, title, class_="head")]
        for tick in self.y.ticks:
            parts.append(tag("line", x1=LEFT, x2=self.edge, y1=up(tick), y2=up(tick), stroke=GRID))
            parts.append(text(LEFT - 7, up(tick) + 4, short(tick * 100 if percent else tick), anchor="end"))
        parts.append(tag("line", x1=LEFT, x2=self.edge, y1=self.base, y2=self.base, stroke=INK))
        for mark in marks or self.x.ticks:
            at = across(mark)
            parts.append(tag("line", x1=at, x2=at, y1=self.base, y2=self.base + 4, stroke=INK))
            parts.append(text(at, self.base + 17, (named or short)(mark), anchor="middle"))
        if self.x.title:
            parts.append(text(middle, self.height - 8, self.x.title, anchor="middle", class_="faint"))
        if self.y.title:
            parts.append(text(4, self.top - 11, self.y.title, class_="faint"))
        return joined(parts)


def short(value: float) -> str:
    """A short round number: 0.5, 40, 1k, 200k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


class Line(NamedTuple):
    """One line through `points`, ascending in x."""

    name: str
    style: Style
    points: Sequence[tuple[float, float]]
    marked: bool = False
    """Whether its points have markers."""


def plot(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> Markup:
    """The picture of at least one line, each of at least one point."""
    height = max(HEIGHT, TOP + BOTTOM + GAP * (len(lines) + 1))
    frame = Frame(width=WIDTH, height=height, right=RIGHT, x=x, y=y)
    drawn = joined(_drawn(line, frame) for line in lines)
    return figure(WIDTH, height, title, frame.drawn(title), drawn, _names(lines, frame))


def _drawn(line: Line, frame: Frame) -> Markup:
    places = [(frame.across(x), frame.up(y)) for x, y in line.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    drawn = tag("path", d=f"M{path}", fill="none", **_stroke(line.style))
    if not line.marked:
        return drawn
    return drawn + joined(marker(line.style.marker, x, y, line.style.colour) for x, y in places)


def _names(lines: Sequence[Line], frame: Frame) -> Markup:
    """The name of each line with a piece of it, at the height of its last point."""
    ordered = sorted(lines, key=lambda line: (frame.up(line.points[-1][1]), line.name))
    ends = [(frame.across(line.points[-1][0]), frame.up(line.points[-1][1])) for line in ordered]
    heights = spread([end for _, end in ends], GAP, frame.top, frame.base + 6)
    left = frame.edge + 20
    parts = []
    for line, (x, end), y in zip(ordered, ends, heights, strict=True):
        lead = f"M{x + 4:.1f} {end:.1f}L{left - 3:.1f} {y:.1f}"
        parts += [
            tag("path", d=lead, fill="none", stroke=FAINT, stroke_width=0.5),
            tag("line", x1=left, x2=left + 28, y1=y, y2=y, **_stroke(line.style)),
            text(left + 33, y + 4, line.name),
        ]
        if line.marked:
            parts.append(marker(line.style.marker, left + 14, y, line.style.colour))
    return joined(parts)


def _stroke(style: Style) -> dict[str, str | float]:
    return {"stroke": style.colour, "stroke_width": 1.8, "stroke_dasharray": style.dash}
