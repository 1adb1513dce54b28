"""Heat maps of similarities between layers, with a scale bar."""

import math
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from prunebench.core.stats import Array
from prunebench.report.svg import FAINT, cut, figure, joined, linear_ticks, scale, tag, text

# Anchors of cividis (Nuñez, Anderton and Renslow 2018): even lightness, equal for colour-blind readers.
CIVIDIS = (
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
)
SIDE, LEFT, TOP, BAR = 400.0, 42.0, 34.0, 70.0
LETTERS = 68
"""Of a title, as many as the picture is wide."""
TOLD = 64
"""Up to so many layers each cell says its value when it is pointed at."""


class Borders(NamedTuple):
    """Which rows belong together."""

    runs: tuple[tuple[int, int, str], ...]
    """First row, the one after the last, and the letter of the group, ascending; a group may have several."""


def heatmap(values: Array, title: str, axis: str, borders: Borders | None = None) -> Markup:
    """The square matrix `values` with one cell a pair; `axis` says what its rows and columns are.

    The scale reaches from below the least value to 1. Values that are not finite are left white. With
    `borders`, squares of one group are framed and lettered.
    """
    size = len(values)
    known = values[np.isfinite(values)]
    low = math.floor(20 * float(known.min(initial=0.95))) / 20
    high = math.ceil(20 * float(known.max(initial=1))) / 20
    step = max(1, round(SIDE / size))
    side = step * size
    parts = [tag("text", tag("title", title), cut(title, LETTERS), x=4, y=16, class_="head")]
    for i, j in np.ndindex(values.shape):
        value = float(values[i, j])
        cell = {"x": LEFT + j * step, "y": TOP + i * step, "width": step, "height": step}
        told = (tag("title", f"{i}, {j}: {value:.4f}"),) if size <= TOLD else ()
        parts.append(
            tag(
                "rect",
                *told,
                **cell,
                fill=colour((value - low) / (high - low)) if np.isfinite(value) else "#ffffff",
            )
        )
    every = 1 if size <= 8 else 5 if size <= 40 else 10
    for number in range(0, size, every):
        middle = (number + 0.5) * step
        parts.append(text(LEFT - 6, TOP + middle + 4, str(number), anchor="end"))
        parts.append(text(LEFT + middle, TOP + side + 15, str(number), anchor="middle"))
    parts.append(text(LEFT + side / 2, TOP + side + 32, axis, anchor="middle", class_="faint"))
    parts.append(_bar(low, high, side))
    if borders is not None:
        parts.append(_frames(borders, step))
    return figure(LEFT + side + BAR, TOP + side + 40, title, joined(parts))


def _frames(borders: Borders, step: int) -> Markup:
    """A frame around each run of one group, a dashed one where two runs of it meet, and letters above."""
    parts = []
    for start, stop, letter in borders.runs:
        middle = LEFT + (start + stop) / 2 * step
        parts.append(text(middle, TOP - 4, letter, anchor="middle", class_="letter"))
        for other, end, same in borders.runs:
            if same == letter:
                box = {
                    "x": LEFT + start * step,
                    "y": TOP + other * step,
                    "width": (stop - start) * step,
                    "height": (end - other) * step,
                    "fill": "none",
                }
                dash = "" if start == other else "4 3"
                parts.append(tag("rect", **box, stroke="#fff", stroke_width=3.5))
                parts.append(tag("rect", **box, stroke="#000", stroke_width=1.5, stroke_dasharray=dash))
    return joined(parts)


def colour(part: float) -> str:
    """The colour at `part` of the scale, 0 to 1."""
    place = min(max(part, 0.0), 1.0) * (len(CIVIDIS) - 1)
    below = min(int(place), len(CIVIDIS) - 2)
    channels = [
        round(
            _channel(CIVIDIS[below], k) * (below + 1 - place)
            + _channel(CIVIDIS[below + 1], k) * (place - below)
        )
        for k in range(3)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in channels)


def _channel(code: str, k: int) -> int:
    return int(code[1 + 2 * k : 3 + 2 * k], 16)


def _bar(low: float, high: float, side: float) -> Markup:
    x, pieces = LEFT + side + 16, 50
    up = scale(low, high, TOP + side, TOP)
    height = side / pieces
    parts = [
        tag(
            "rect",
            x=x,
            y=TOP + side - (k + 1) * height,
            width=13,
            height=height + 0.3,
            fill=colour((k + 0.5) / pieces),
        )
        for k in range(pieces)
    ]
    for tick in linear_ticks(low, high, 4):
        if not low - 1e-9 <= tick <= high + 1e-9:
            continue
        parts.append(tag("line", x1=x + 13, x2=x + 17, y1=up(tick), y2=up(tick), stroke=FAINT))
        parts.append(text(x + 20, up(tick) + 4, f"{tick:.3g}"))
    return joined(parts)
