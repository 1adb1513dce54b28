"""How long answers are, row by row: a histogram of tokens, and what share was cut or went wrong otherwise.

LayerTrim's figure 5 asks the same of reasoning traces: whether a pruned model ends its answers at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from prunebench.report.board import Board, Row
from prunebench.report.columns import Column
from prunebench.report.documents import Documents, Key
from prunebench.report.metrics import HOLE, counted, percent
from prunebench.report.statistics import Floats
from prunebench.report.svg import GRID, INK, figure, joined, linear_ticks, tag, text

BINS = 24
STRIP, ROW, HEIGHT = 264.0, 26.0, 20.0
COLUMN = 110.0
LETTER = 7.2
TOP = 64.0
ENDED, CUT = "#56B4E9", "#2f2f2f"
CUT_METRIC = "token_limit_hit"
RATES: Mapping[str, str] = {
    CUT_METRIC: "cut %",
    "repetition": "repeats %",
    "unclosed_think": "open thought %",
    "compilable": "compiles %",
}
"""Metric -> heading: what hit the limit of tokens, repeats itself, never leaves its thoughts, or compiles."""


class Answers(NamedTuple):
    """The answers of one plan to one task, under all seeds."""

    tokens: Floats
    """Length of each, shape (answers,)."""
    cut: Floats
    """1 where the limit was hit, shape (answers,)."""
    rates: Mapping[str, float]
    """Share of the answers, by metric; without those that were not measured."""


def length_pictures(board: Board, documents: Documents) -> list[Markup]:
    """One picture for each task that is answered in writing."""
    columns = [column for column in board.columns if column.metric.name == "tokens"]
    return [picture for column in columns if (picture := _picture(board, column, documents))]


def _answers(plan_id: str, group: str, documents: Documents) -> Answers | None:
    found = {name: documents.of(Key(plan_id, group, name)) for name in ("tokens", *RATES)}
    tokens, cut = found["tokens"], found[CUT_METRIC]
    if tokens is None or cut is None or not np.array_equal(tokens.item, cut.item):
        return None
    rates = {
        name: float(one.value.mean()) for name, one in found.items() if one is not None and name in RATES
    }
    return Answers(tokens.value, cut.value, rates)


def _rows(board: Board) -> Iterator[tuple[str, list[Row]]]:
    """Heading and rows of each budget, every plan once; the dense model alone first."""
    rows = [row for table in board.tables for row in table.rows]
    yield "", [row for row in rows if row.label.dense][:1]
    for table in board.tables:
        own = [row for row in table.rows if not row.label.dense and not row.same_as]
        if own:
            yield f"{counted(table.budget_layers, 'layer')} removed", own


def _picture(board: Board, column: Column, documents: Documents) -> Markup:
    known = {
        row.variant["plan_id"]: answers
        for _, rows in _rows(board)
        for row in rows
        if row.variant["plan_id"] is not None
        if (answers := _answers(row.variant["plan_id"], column.group, documents))
    }
    if not known:
        return Markup("")
    longest = max(float(one.tokens.max()) for one in known.values()) or 1.0
    shown = [name for name in RATES if any(name in one.rates for one in known.values())]
    left = LETTER * max(18, *(len(label.name) for label in board.labels.values())) + 14
    parts, y = [_head(left, longest, shown)], TOP
    for heading, rows in _rows(board):
        if heading:
            parts.append(text(left - 10, y + 15, heading, anchor="end", class_="head"))
            y += ROW
        for row in rows:
            parts.append(_row(row, known.get(row.variant["plan_id"]), (left, y), longest, shown))
            y += ROW
    title = f"{column.name}: length of answers in tokens"
    width = left + STRIP + 16 + COLUMN * (len(shown) + 1)
    return figure(width, y + 8, title, text(4, 14, title, class_="head"), *parts)


def _head(left: float, longest: float, shown: Sequence[str]) -> Markup:
    parts = [_box(left, 26, ENDED), text(left + 14, 35, "ended"), _box(left + 66, 26, CUT)]
    parts.append(text(left + 80, 35, "cut at the limit"))
    for tick in linear_ticks(0.0, longest, 4):
        if tick > longest:
            continue
        at = left + STRIP * tick / longest
        parts.append(text(at, TOP - 8, f"{tick:g}", anchor="middle", class_="faint"))
    for place, name in enumerate(("answers", *(RATES[name] for name in shown))):
        parts.append(text(left + STRIP + COLUMN * (place + 1), TOP - 8, name, anchor="end", class_="faint"))
    return joined(parts)


def _box(x: float, y: float, colour: str) -> Markup:
    return tag("rect", x=x, y=y, width=10, height=10, fill=colour)


def _row(
    row: Row, answers: Answers | None, at: tuple[float, float], longest: float, shown: Sequence[str]
) -> Markup:
    left, y = at
    base = y + HEIGHT
    parts = [text(left - 10, base - 5, row.label.name, anchor="end")]
    if answers is None:
        return joined([*parts, text(left + 4, base - 5, f"{HOLE} no answers", class_="faint")])
    parts.append(
        tag("line", x1=left, x2=left + STRIP, y1=base, y2=base, stroke=INK if row.label.dense else GRID)
    )
    parts += _bars(answers, left, base, longest)
    values = [str(len(answers.tokens))]
    values += [percent(100 * answers.rates[name]) if name in answers.rates else HOLE for name in shown]
    for place, value in enumerate(values):
        parts.append(text(left + STRIP + COLUMN * (place + 1), base - 5, value, anchor="end"))
    return joined(parts)


def _bars(answers: Answers, left: float, base: float, longest: float) -> Iterator[Markup]:
    """The histogram: what was cut stands on what ended; the fullest bin is as high as the row."""
    edges = np.linspace(0.0, longest, BINS + 1)
    cut = np.histogram(answers.tokens[answers.cut > 0], edges)[0]
    ended = np.histogram(answers.tokens[answers.cut == 0], edges)[0]
    most = int((cut + ended).max())
    width = STRIP / BINS
    for colour, own, below in ((ENDED, ended, np.zeros_like(ended)), (CUT, cut, ended)):
        bars = "".join(
            f"M{left + place * width:.1f} {base - HEIGHT * under / most:.1f}"
            f"h{width - 1:.1f}v-{HEIGHT * count / most:.1f}h-{width - 1:.1f}z"
            for place, (count, under) in enumerate(zip(own.tolist(), below.tolist(), strict=True))
            if count
        )
        if bars:
            yield tag("path", tag("title", _told(answers, colour == CUT)), d=bars, fill=colour)


def _told(answers: Answers, cut: bool) -> str:
    own = answers.tokens[(answers.cut > 0) == cut]
    what = "cut at the limit" if cut else "ended"
    size = f"{own.min():g} to {own.max():g} tokens, median {np.median(own):g}"
    return f"{counted(len(own), 'answer')} {what}: {size}"
