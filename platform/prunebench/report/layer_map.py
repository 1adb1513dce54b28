"""The map: which layers each row removes, merges and trims. Every state has its own glyph, colour or none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from prunebench.core.plan import PruningPlan
from prunebench.report.board import Board, Row
from prunebench.report.layers import Layer, layers_of
from prunebench.report.metrics import counted
from prunebench.report.svg import figure, joined, tag, text

HEIGHT = 17.0
NOTE = 20
"""Letters of a note right of the map for which there is always room."""
LETTER = 6.6
"""Pixels that a letter takes, in fonts that are wide."""
WIDE_LETTER = 7.2
"""The same where digits and signs are many."""
WIDEST = 20.0
MAP = 640.0
"""Pixels that the layers share where there are many."""
KEPT, REMOVED, MERGED, TRIMMED, DROPPED = "#f1f1ee", "#2f2f2f", "#56B4E9", "#009E73", "#D55E00"
LEGEND: tuple[tuple[str, Layer], ...] = (
    ("kept", Layer(number=0, state="kept", told="kept")),
    ("removed", Layer(number=0, state="removed", told="removed")),
    ("merged block", Layer(number=0, state="merged", told="holds a blend of layers")),
    ("merged into another", Layer(number=0, state="absorbed", told="its weights live on in another block")),
    ("MLP trimmed (height: kept)", Layer(number=0, state="kept", told="trimmed", kept_share=0.6)),
    ("attention removed", Layer(number=0, state="kept", told="no attention", dropped=("attention",))),
    ("MLP removed", Layer(number=0, state="kept", told="no MLP", dropped=("mlp",))),
)


class Place(NamedTuple):
    """Where the row's first cell is, and how wide cells are."""

    x: float
    y: float
    width: float


def layer_map(board: Board, plans: Mapping[str, PruningPlan], num_features: int | None) -> Markup:
    """Rows are contenders by budget, columns dense layers from 0. Empty where nothing was pruned."""
    if not any(table.budget_layers for table in board.tables):
        return Markup("")
    width = min(WIDEST, MAP / board.num_layers)
    left = WIDE_LETTER * max(20, *(len(label.name) for label in board.labels.values())) + 14
    notes = [_note(row) for table in board.tables for row in table.rows]
    parts, y = [], 40.0
    seen: set[str] = set()
    for table in board.tables:
        title = f"{counted(table.budget_layers, 'layer')} removed"
        parts.append(text(left - 10, y + 13, title, anchor="end", class_="head"))
        parts.append(_numbers(board.num_layers, left, width, y + 13))
        y += 20
        for row in table.rows:
            if row.label.dense:
                continue
            plan_id = row.variant["plan_id"]
            layers = [] if plan_id is None else layers_of(plans[plan_id], num_features)
            seen.update(state for layer in layers for state in _states(layer))
            parts.append(_row(row, layers, Place(left, y, width)))
            y += HEIGHT
        y += 12
    total = left + width * board.num_layers + WIDE_LETTER * max(NOTE, *map(len, notes)) + 16
    return figure(total, y, "Layers removed, merged and trimmed", _legend(seen), *parts)


def _row(row: Row, layers: Sequence[Layer], place: Place) -> Markup:
    base = place.y + 12.5
    name = text(place.x - 10, base, row.label.name, anchor="end")
    if not layers:
        return name + text(place.x + 4, base, f"– {row.variant['status']}", class_="faint")
    cells = joined(
        _cell(layer, place.x + layer.number * place.width, place.y, place.width)
        for layer in layers
        if _states(layer) != ("kept",)
    )
    untouched = [layer.number for layer in layers if _states(layer) == ("kept",)]
    return (
        name
        + _boxes(untouched, place)
        + cells
        + text(place.x + len(layers) * place.width + 8, base, _note(row), class_="faint")
    )


def _boxes(numbers: Sequence[int], place: Place) -> Markup:
    """Untouched layers: one shape for all of a row, because a page has thousands of them."""
    w, h = place.width - 1, HEIGHT - 2
    boxes = "".join(f"M{place.x + n * place.width:.5g} {place.y:g}h{w:.4g}v{h:g}h-{w:.4g}z" for n in numbers)
    return tag("path", tag("title", "kept"), d=boxes, fill=KEPT)


def _note(row: Row) -> str:
    return f"same plan as {row.same_as}" if row.same_as else ""


def _cell(layer: Layer, x: float, y: float, width: float) -> Markup:
    """One layer: a box with the glyphs of its state, 1 pixel from its neighbours."""
    w, h = width - 1, HEIGHT - 2
    fill = {"kept": KEPT, "removed": REMOVED, "absorbed": KEPT, "merged": MERGED}[layer.state]
    parts = [tag("title", layer.told), tag("rect", x=x, y=y, width=w, height=h, fill=fill)]
    parts += _glyphs(layer, x, y, w, h)
    return tag("g", *parts)


def _glyphs(layer: Layer, x: float, y: float, w: float, h: float) -> Iterator[Markup]:
    middle, centre = x + w / 2, y + h / 2
    if layer.state == "removed":
        r = min(w, h) * 0.22
        arm = f"{2 * r:.1f}"
        cross = f"M{middle - r:.1f} {centre - r:.1f}l{arm} {arm}m0 -{arm}l-{arm} {arm}"
        yield tag("path", d=cross, stroke="#fff", stroke_width=1.1)
    if layer.state == "absorbed":
        lines = "".join(
            f"M{x + max(0, k - h):.1f} {y + min(k, h):.1f}L{x + min(k, w):.1f} {y + max(0, k - w):.1f}"
            for k in (w * 0.5, w, w + h * 0.5)
        )
        yield tag("path", d=lines, stroke=REMOVED, stroke_width=1.3, fill="none")
        yield tag("rect", x=x + 0.5, y=y + 0.5, width=w - 1, height=h - 1, fill="none", stroke=REMOVED)
    if layer.kept_share is not None:
        kept = h * layer.kept_share
        yield tag("rect", x=x, y=y + h - kept, width=w, height=kept, fill=TRIMMED)
        yield tag("rect", x=x + 0.5, y=y + 0.5, width=w - 1, height=h - 1, fill="none", stroke=TRIMMED)
    if layer.state == "merged":
        yield tag("circle", cx=middle, cy=centre, r=min(w, h) * 0.2, fill="#fff", stroke=REMOVED)
    for sublayer in layer.dropped:
        above = sublayer == "attention"
        corner = f"{x:.1f},{y:.1f} {x + w:.1f},{y:.1f} {x:.1f},{y + h:.1f}"
        other = f"{x + w:.1f},{y:.1f} {x + w:.1f},{y + h:.1f} {x:.1f},{y + h:.1f}"
        yield tag("polygon", points=corner if above else other, fill=DROPPED)
        yield text(
            x + w * (0.26 if above else 0.76),
            y + h * (0.46 if above else 0.93),
            "a" if above else "m",
            anchor="middle",
            class_="tiny",
        )


def _numbers(num_layers: int, left: float, width: float, y: float) -> Markup:
    every = 1 if width >= 18 else 5
    return joined(
        text(left + (number + 0.5) * width, y, str(number), anchor="middle", class_="faint")
        for number in range(0, num_layers, every)
    )


def _states(layer: Layer) -> tuple[str, ...]:
    """All that the legend has to explain of a layer."""
    return (layer.state, *layer.dropped, *(() if layer.kept_share is None else ("trimmed",)))


def _legend(seen: set[str]) -> Markup:
    parts, x = [], 8.0
    for name, layer in LEGEND:
        if _states(layer)[-1] in seen:
            parts += [_cell(layer, x, 8, WIDEST), text(x + WIDEST + 4, 20, name)]
            x += WIDEST + 24 + LETTER * len(name)
    return joined(parts)
