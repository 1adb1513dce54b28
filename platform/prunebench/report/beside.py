"""Published beside measured: the same model, method, budget, recipe and documents."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prunebench.report.benchmarks import TEXTS, benchmark_of, settings_of, whole
from prunebench.report.board import Board, Cell, Row
from prunebench.report.columns import Column
from prunebench.report.metrics import Metric
from prunebench.report.papers import PaperTable
from prunebench.report.published import Printed, PublishedRow, PublishedTable, published_table
from prunebench.report.source import Source, parsed
from prunebench.store.record import DENSE

FLAG = 3.0
"""Standard errors of the difference beyond which it is flagged."""
_BOTH = ("simdiff_mssd", "simdiff_masd")
"""Methods that SimDiff prints as one row where they choose the same layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One published number and ours."""

    source: str
    """Paper and table."""
    budget_layers: int
    name: str
    """Of our row."""
    column: str
    published: str
    measured: str
    difference: str
    """Measured minus published, in the unit of the table."""
    errors: float | None
    """The difference in standard errors of the two; None where there is no error."""
    flagged: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What came of a model."""

    numbers: tuple[Beside, ...]
    reasons: tuple[str, ...]
    """Why numbers of this model that were published and measured are not compared."""

    @property
    def flagged(self) -> int:
        """How many differ by more than `FLAG` standard errors."""
        return sum(one.flagged for one in self.numbers)

    @property
    def notes(self) -> list[str]:
        """Every note once."""
        return list(dict.fromkeys(note for one in self.numbers for note in one.notes))


def beside_measured(board: Board, papers: Sequence[PaperTable], source: Source) -> Matched:
    """Compare what can be compared of a model."""
    names, cut = model_names(board.model, source.runs), _cut_tasks(source.runs)
    numbers: list[Beside] = []
    reasons: dict[str, None] = {}
    for paper in papers:
        parts = [_part(column, cut) for column in paper.columns]
        for published in (published_table(*one) for one in paper.recipe.sources):
            found = list(_rows(board, paper, published, names))
            if found:
                reasons.update(dict.fromkeys(part for part in parts if part))
            for row, printed in found:
                numbers += _numbers(paper, published, row, printed, parts)
    return Matched(numbers=tuple(numbers), reasons=tuple(reasons))


def model_names(model: str, runs: Iterable[Mapping[str, object]]) -> set[str]:
    """What a model may be called in the published tables, in small letters.

    Its title and its path in an experiment, each by its last part and by its last two, ORG/NAME.
    """
    told = {model}
    for run in runs:
        record = parsed(str(run["record_json"])) or {}
        entries = (record.get("experiment") or {}).get("models") or ()
        for entry in entries:
            path = str(entry.get("path", ""))
            if model in (entry.get("name"), path.rstrip("/").rsplit("/", 1)[-1].removeprefix("builtin:")):
                told.add(path)
    found = set()
    for name in told:
        # A folder of the hub's cache is named models--ORG--NAME.
        parts = re.sub(r"(^|/)models--", r"\1", name).replace("--", "/").strip("/").lower().split("/")
        found |= {parts[-1], "/".join(parts[-2:])}
    return found


def _is(published: PublishedRow, names: set[str], board: Board) -> bool:
    full = published.model.lower()
    known = full in names or full.rsplit("/", 1)[-1] in names
    return known and published.layers == board.num_layers


def _rows(
    board: Board, paper: PaperTable, published: PublishedTable, names: set[str]
) -> Iterator[tuple[Row, PublishedRow]]:
    """Our rows with the published row of the same model, method and budget; the dense model once."""
    told: set[str] = set()
    for block in paper.blocks:
        for row in block.rows:
            key = row.variant["variant_key"]
            if key in told or row.variant["plan_id"] is None:
                continue
            told.add(key)
            method, budget = row.contender.method, row.variant["budget_layers"]
            methods = {method, *(("simdiff_both",) if method in _BOTH else ())}
            budget = 0 if method == DENSE else budget
            for printed in published.rows:
                if _is(printed, names, board) and printed.method in methods and printed.budget == budget:
                    yield row, printed


def _cut_tasks(runs: Iterable[Mapping[str, object]]) -> set[str]:
    """Tasks that some run took fewer documents of than there are."""
    found = set()
    for run in runs:
        experiment = (parsed(str(run["record_json"])) or {}).get("experiment") or {}
        for name, task in (experiment.get("tasks") or {}).items():
            if isinstance(task, dict) and (task.get("windows") or task.get("limit")):
                found.add(name)
    return found


def _part(column: Column, cut: set[str]) -> str:
    """Why a column is not of the whole benchmark, or not known to be; empty where it is."""
    benchmark = benchmark_of(column)
    known = whole(column)
    if known is None:
        reason = (
            "depends on the machine" if "protocol" in settings_of(column) else "the size is not known here"
        )
        return f"{column.name}: {reason}"
    if not known or (benchmark in TEXTS and column.task in cut):
        return f"{column.name}: {column.num_examples} documents are not the whole of {benchmark}"
    return ""


def _numbers(
    paper: PaperTable,
    published: PublishedTable,
    row: Row,
    printed: PublishedRow,
    parts: Sequence[str],
) -> Iterator[Beside]:
    notes = tuple(published.footnotes[number - 1] for number in printed.footnotes)
    name = published.title.partition(":")[0]
    columns = [
        (one.title, one.published, one.metric, cell, part)
        for one, cell, part in zip(paper.asked, row.cells, parts, strict=True)
    ]
    whole_average = "" if not any(parts) else "a column is no whole benchmark"
    recipe = paper.recipe
    columns.append(
        (recipe.average, recipe.published_average, recipe.average_metric, row.means[0], whole_average)
    )
    for title, key, metric, cell, part in columns:
        number = printed.values.get(key)
        if part or number is None or cell.value is None or not math.isfinite(cell.value):
            continue
        difference, errors, flagged = _compared(metric, cell, number)
        yield Beside(
            source=name,
            budget_layers=row.variant["budget_layers"],
            name=row.label.name,
            column=title,
            published=number.text,
            measured=cell.text + (f" ± {cell.error}" if cell.error else ""),
            difference=difference,
            errors=errors,
            flagged=flagged,
            notes=notes,
        )


def _compared(metric: Metric, cell: Cell, number: Printed) -> tuple[str, float | None, bool]:
    """The difference in words, in standard errors, and whether it is flagged.

    The error is that of ours over documents, and of the published mean over three seeds where an sd was
    printed. On the same documents the first is too large rather than too small.
    """
    assert cell.value is not None
    scale = 100 if metric.percent else 1
    value, stderr = cell.value * scale, None if cell.stderr is None else cell.stderr * scale
    difference = value - number.value
    if number.bound:
        below = stderr is not None and difference < -FLAG * stderr
        return ("above the bound" if difference >= 0 else f"{difference:+.2f} below the bound"), None, below
    total = None if stderr is None else math.hypot(stderr, (number.sd or 0.0) / math.sqrt(3))
    errors = difference / total if total else None
    return f"{difference:+.2f}", errors, errors is not None and abs(errors) > FLAG
