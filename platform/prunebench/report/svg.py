"""Inline SVG: elements whose text is always escaped, the palette, and scales."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

NOTHING = Markup("")
INK, FAINT, GRID = "#1a1a1a", "#6b6b6b", "#e4e4e4"
# Okabe and Ito (2008), without black (the dense model) and yellow (too faint on white).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("", "7 3", "2 2.5", "9 3 2 3", "13 4")
MARKERS = ("circle", "square", "triangle", "diamond", "ring", "cross", "wedge", "box")
SANITY_COLOUR = "#8c8c8c"


class Style(NamedTuple):
    """How a line is told from others, with colours or without."""

    colour: str
    dash: str
    marker: str


def tag(name: str, *children: Markup | str, **attributes: str | float) -> Markup:
    """One element. Names of attributes: `class_` for class, `_` for `-`; text and values are escaped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value != ""
    )
    if not children:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{''.join(map(escape, children))}</{name}>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one after another."""
    return NOTHING.join(parts)


def figure(width: float, height: float, label: str, *children: Markup) -> Markup:
    """A picture with a name for readers who cannot see it."""
    box = f"0 0 {_attribute(width)} {_attribute(height)}"
    return tag(
        "svg", *children, viewBox=box, width=width, height=height, role="img", aria_label=label, class_="fig"
    )


def text(
    x: float, y: float, content: str, *, anchor: str = "", class_: str = "", **more: str | float
) -> Markup:
    """A line of text."""
    return tag("text", content, x=x, y=y, text_anchor=anchor, class_=class_, **more)


def cut(name: str, letters: int) -> str:
    """The name, with its end left out where it is longer than so many letters."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def style_of(place: int, *, sanity: bool = False) -> Style:
    """The style of the place-th line: colour, dashes and marker have periods 6, 5 and 8, together 120."""
    colour = SANITY_COLOUR if sanity else PALETTE[place % len(PALETTE)]
    return Style(colour, DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])


def marker(shape: str, x: float, y: float, colour: str, *children: Markup) -> Markup:
    """A marker of about 8 pixels centred on (x, y)."""
    white = {"fill": "#fff", "stroke": colour, "stroke_width": 1.6}
    match shape:
        case "ring":
            return tag("circle", *children, cx=x, cy=y, r=3.4, **white)
        case "box":
            return tag("rect", *children, x=x - 3.1, y=y - 3.1, width=6.2, height=6.2, **white)
        case "circle":
            return tag("circle", *children, cx=x, cy=y, r=3.8, fill=colour)
        case "square":
            return tag("rect", *children, x=x - 3.4, y=y - 3.4, width=6.8, height=6.8, fill=colour)
        case "cross":
            arms = f"M{x - 3.4:.1f} {y - 3.4:.1f}l6.8 6.8m0 -6.8l-6.8 6.8"
            return tag("path", *children, d=arms, stroke=colour, stroke_width=2, fill="none")
    corners = {"triangle": "0 -4.6 4.4 3.4 -4.4 3.4", "wedge": "0 4.6 4.4 -3.4 -4.4 -3.4"}
    numbers = [float(n) for n in corners.get(shape, "0 -4.8 4.8 0 0 4.8 -4.8 0").split()]
    points = " ".join(
        f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in zip(numbers[::2], numbers[1::2], strict=True)
    )
    return tag("polygon", *children, points=points, fill=colour)


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover [low, high], about `count` of them."""
    span = high - low or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if span / (size * k) <= count)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers within [low, high], both positive: 1, 2, 5 (over a long range 1) times powers of ten."""
    steps = (1, 2, 5) if high / low < 300 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high]


def scale(
    low: float, high: float, start: float, end: float, *, log: bool = False
) -> Callable[[float], float]:
    """The map from [low, high] to pixels [start, end]."""

    def place(value: float) -> float:
        part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        return start + part * (end - start)

    return place


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The ascending positions at least `gap` apart that lie nearest to ascending `places` (least squares).

    They stay within [low, high] where that has room for them.
    """
    blocks: list[list[float]] = []
    for i, place in enumerate(places):
        blocks.append([place - i * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    slack = max(low, high - (len(places) - 1) * gap)
    free = [min(max(_mean(block), low), slack) for block in blocks for _ in block]
    return [place + i * gap for i, place in enumerate(free)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".")
