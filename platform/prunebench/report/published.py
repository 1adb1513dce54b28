"""The papers' tables, as they were printed, with what does not reconcile in them."""

import csv
import functools
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import yaml

_CELL = re.compile(r"(>=)?(-?[\d.]+)(?:±([\d.]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One number as it was printed."""

    value: float
    sd: float | None
    """Sample standard deviation over seeds or runs, where it was printed."""
    bound: bool
    """Whether only a lower bound was printed."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One row of one table."""

    model: str
    """Hub id; inferred where the paper prints a name alone."""
    method: str
    budget: int | None
    """Layers or layer-equivalents removed; None where the paper gives a ratio alone, or nothing."""
    layers: int
    ratio: float | None
    note: str
    """What sets the row apart."""
    values: Mapping[str, Printed]
    """By `dataset:metric`."""
    footnotes: tuple[int, ...]
    """Numbers of notes of the table, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """One table of one paper."""

    paper: str
    table: str
    title: str
    columns: tuple[str, ...]
    """`dataset:metric`."""
    rows: tuple[PublishedRow, ...]
    footnotes: tuple[str, ...]
    """Of single rows."""
    remarks: tuple[str, ...]
    """Of the whole table."""


@functools.cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Every table that the package carries."""
    about = yaml.safe_load((files("prunebench.report") / "published" / "tables.yaml").read_text("utf-8"))
    return tuple(_table(name, title, about["notes"]) for name, title in about["titles"].items())


def published_table(paper: str, table: str) -> PublishedTable:
    """One of them, such as `lorp`, `t3`."""
    return next(one for one in published_tables() if (one.paper, one.table) == (paper, table))


def _table(name: str, title: str, notes: list[dict]) -> PublishedTable:
    text = (files("prunebench.report") / "published" / f"{name}.csv").read_text("utf-8")
    reader = csv.DictReader(io.StringIO(text))
    columns = tuple(column for column in reader.fieldnames or () if ":" in column)
    own = [note for note in notes if name in note["tables"]]
    single = [note for note in own if note.keys() & {"models", "methods", "budgets"}]
    paper, table = name.split("_")
    return PublishedTable(
        paper=paper,
        table=table,
        title=title,
        columns=columns,
        rows=tuple(_row(line, columns, single) for line in reader),
        footnotes=tuple(note["text"] for note in single),
        remarks=tuple(note["text"] for note in own if note not in single),
    )


def _row(line: Mapping[str, str], columns: tuple[str, ...], notes: list[dict]) -> PublishedRow:
    budget = int(line["budget"]) if line["budget"] else None
    facts = {"models": line["model"].split("/")[-1], "methods": line["method"], "budgets": budget}
    asked = [
        number
        for number, note in enumerate(notes, start=1)
        if all(fact in note[name] for name, fact in facts.items() if name in note)
    ]
    return PublishedRow(
        model=line["model"],
        method=line["method"],
        budget=budget,
        layers=int(line["layers"]),
        ratio=float(line["ratio"]) if line["ratio"] else None,
        note=line["note"],
        values={column: _printed(line[column]) for column in columns if line[column]},
        footnotes=tuple(asked),
    )


def _printed(text: str) -> Printed:
    match = _CELL.fullmatch(text)
    if match is None:
        raise ValueError(f"not a printed number: {text!r}")
    bound, value, sd = match.groups()
    shown = text.replace(">=", "≥ ").replace("±", " ± ")
    return Printed(value=float(value), sd=float(sd) if sd else None, bound=bound is not None, text=shown)
