"""The frame of a picture: a vertical axis of values, a horizontal one of numbers, and where they lie."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from prunebench.report.svg import GRID, INK, joined, linear_ticks, log_ticks, scale, tag, text

LOG_RATIO = 20
"""A logarithmic axis from this ratio of the largest to the smallest value on."""
BROKEN = 1000
"""A value that is this many times the least leaves the picture at the top: it would hide the others."""
LEFT, TOP, BOTTOM = 58.0, 30.0, 44.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range with round numbers on it."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def scale(self, start: float, end: float) -> Callable[[float], float]:
        """The map to pixels; what lies outside goes to the nearer end."""
        inside = scale(self.low, self.high, start, end, log=self.log)
        return lambda value: inside(min(max(value, self.low), self.high))


def value_axis(values: Iterable[float]) -> Axis:
    """The axis of finite values; at least one is needed."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if low > 0:
        high = min(high, BROKEN * low)
    if low > 0 and high / low > LOG_RATIO:
        low, high = low / 1.15, high * 1.15
        return Axis(low=low, high=high, log=True, ticks=tuple(log_ticks(low, high)))
    return round_axis(low, high)


def round_axis(low: float, high: float) -> Axis:
    """The axis that ends at round numbers around `low` and `high`."""
    ticks = linear_ticks(low, high)
    return Axis(low=ticks[0], high=ticks[-1], log=False, ticks=tuple(ticks))


def whole_axis(low: float, high: float) -> Axis:
    """The axis of numbers from `low` to `high`, with its ends where they are."""
    end = high if high > low else low + 1
    ticks = tuple(tick for tick in linear_ticks(low, end) if low - 1e-9 <= tick <= end + 1e-9)
    return Axis(low=low, high=end, log=False, ticks=ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A plot's area and its axes."""

    width: float
    height: float
    right: float
    """Pixels at the right of the plot."""
    x: Axis
    y: Axis
    values: str = ""
    """What the vertical axis shows, where the title does not say it."""

    @property
    def top(self) -> float:
        """Height of the largest value."""
        return TOP + 18 if self.values else TOP

    @property
    def across(self) -> Callable[[float], float]:
        """From numbers of the horizontal axis to pixels."""
        return self.x.scale(LEFT + 8, self.width - self.right - 8)

    @property
    def up(self) -> Callable[[float], float]:
        """From values to pixels."""
        return self.y.scale(self.base, self.top)

    @property
    def base(self) -> float:
        """Height of the horizontal axis."""
        return self.height - BOTTOM

    def drawn(self, title: str, label: str, *, percent: bool = False, marks: Sequence[float] = ()) -> Markup:
        """Title, axes and grid.

        Args:
            title: above the plot.
            label: of the horizontal axis.
            percent: whether values are printed in percent.
            marks: numbers of the horizontal axis in place of its round ones.
        """
        edge, up, across = self.width - self.right, self.up, self.across
        parts = [text(4, 14, title, class_="head")]
        if self.values:
            parts.append(text(LEFT, self.top - 9, self.values, class_="faint"))
        for tick in self.y.ticks:
            parts.append(tag("line", x1=LEFT, x2=edge, y1=up(tick), y2=up(tick), stroke=GRID))
            parts.append(text(LEFT - 7, up(tick) + 4, short(tick * 100 if percent else tick), anchor="end"))
        parts.append(tag("line", x1=LEFT, x2=edge, y1=self.base, y2=self.base, stroke=INK))
        for mark in marks or self.x.ticks:
            at = across(mark)
            parts.append(tag("line", x1=at, x2=at, y1=self.base, y2=self.base + 4, stroke=INK))
            parts.append(text(at, self.base + 17, short(mark), anchor="middle"))
        parts.append(text((LEFT + edge) / 2, self.height - 8, label, anchor="middle", class_="faint"))
        return joined(parts)


def short(value: float) -> str:
    """A short round number: 0.5, 40, 1k, 200k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
