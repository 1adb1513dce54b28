"""A model's results in the shapes of the papers' tables, as far as something was measured of each."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prunebench.report.benchmarks import benchmark_of, settings_of
from prunebench.report.board import Board, BudgetTable, Cell, Row
from prunebench.report.columns import Column
from prunebench.report.metric_test import detectable_text
from prunebench.report.metrics import Metric
from prunebench.report.recipes import TABLE_RECIPES, Asked, TableRecipe
from prunebench.report.scores import filled, with_notes, with_ranks, with_retained
from prunebench.report.standing import Standing, standing_of
from prunebench.report.tested import Family, Grid, Pairer, tested_rows

SETTING = ("backend", "execution", "dtype", "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The rows of one budget, the dense model first."""

    budget_layers: int
    rows: tuple[Row, ...]
    """The one mean of a row is the recipe's average."""
    notes: tuple[str, ...]
    tests: Family
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One recipe under one setting."""

    recipe: TableRecipe
    setting: Mapping[str, str]
    """Backend, execution, dtype, attention and harness, which all its columns share."""
    asked: tuple[Asked, ...]
    """The columns that something was measured of."""
    columns: tuple[Column, ...]
    absent: tuple[str, ...]
    """Titles of the others."""
    left_out: tuple[str, ...]
    """Columns of the store that would stand in the same place, with the reason that they do not."""
    blocks: tuple[Block, ...]

    @property
    def complete(self) -> bool:
        """Whether something was measured of every column that is averaged, or of all where none is."""
        wanted = [one for one in self.recipe.columns if one.averaged] or self.recipe.columns
        return not {one.title for one in wanted} & set(self.absent)

    @property
    def seeds(self) -> int:
        """Most seeds of a column; 0 where each has one."""
        most = max(len(column.seeds) for column in self.columns)
        return most if most > 1 else 0

    def shown(self, block: Block) -> tuple[Row, ...]:
        """The rows of a block as they are printed: the dense model once, in the first."""
        return tuple(row for row in block.rows if block is self.blocks[0] or not row.label.dense)

    def bracket(self, place: int, cell: Cell) -> str:
        """What stands in brackets after a value, against the dense row; empty where nothing does."""
        beside = self.asked[place].beside
        if not beside or cell.retained is None or cell.retained == 0:
            return ""
        return f"{cell.retained / 100:.2f}×" if beside == "speedup" else f"{1e4 / cell.retained:.0f} %"

    def detectable(self, block: Block) -> list[str]:
        """The smallest detectable difference of each column and of the average."""
        metrics = [*(one.metric for one in self.asked), self.recipe.average_metric]
        return [
            detectable_text(metric, value)
            for metric, value in zip(metrics, block.tests.detectable, strict=True)
        ]


def paper_tables(board: Board, pairer: Pairer) -> tuple[PaperTable, ...]:
    """The tables of a model, in the order of `TABLE_RECIPES`."""
    found: list[PaperTable] = []
    for recipe in TABLE_RECIPES:
        averages = _averages(found, recipe.borrowed)
        for setting, places in _settings(board, recipe).items():
            found.append(_table(board, pairer, recipe, dict(setting), places, averages))
    return tuple(found)


def _settings(board: Board, recipe: TableRecipe) -> dict[tuple[tuple[str, str], ...], dict[int, list[int]]]:
    """For each setting: the columns of the board that fit each column of the recipe, the fullest first."""
    found: dict[tuple[tuple[str, str], ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, column in enumerate(board.columns):
        for number, asked in enumerate(recipe.columns):
            if _fits(column, asked):
                found[_setting(column)][number].append(place)
    for places in found.values():
        for fitting in places.values():
            fitting.sort(key=lambda place: -(board.columns[place].num_examples or 0))
    return found


def _fits(column: Column, asked: Asked) -> bool:
    shots = settings_of(column).get("shots") or 0
    return (benchmark_of(column), column.metric.name, shots) == (asked.benchmark, asked.metric.name, 0)


def _setting(column: Column) -> tuple[tuple[str, str], ...]:
    """What columns of one table share."""
    harness = settings_of(column).get("harness")
    shared = {**{name: column.key[name] for name in SETTING}, "harness": str(harness) if harness else ""}
    return tuple(shared.items())


def _table(
    board: Board,
    pairer: Pairer,
    recipe: TableRecipe,
    setting: Mapping[str, str],
    places: Mapping[int, Sequence[int]],
    borrowed: Mapping[str, Cell],
) -> PaperTable:
    chosen = {number: places[number][0] for number in sorted(places)}
    asked = tuple(recipe.columns[number] for number in chosen)
    columns = tuple(board.columns[place] for place in chosen.values())
    absent = tuple(one.title for number, one in enumerate(recipe.columns) if number not in chosen)
    return PaperTable(
        recipe=recipe,
        setting=setting,
        asked=asked,
        columns=columns,
        absent=absent,
        left_out=tuple(_left_out(board, places)),
        blocks=tuple(
            _block(table, recipe, list(chosen.values()), asked, columns, borrowed, pairer)
            for table in board.tables
        ),
    )


def _left_out(board: Board, places: Mapping[int, Sequence[int]]) -> Iterator[str]:
    for fitting in places.values():
        for place in fitting[1:]:
            column = board.columns[place]
            number = column.num_examples or 0
            yield f"{column.name} ({number} documents): a column of its own in the leaderboard"


def _block(
    table: BudgetTable,
    recipe: TableRecipe,
    places: Sequence[int],
    asked: Sequence[Asked],
    columns: Sequence[Column],
    borrowed: Mapping[str, Cell],
    pairer: Pairer,
) -> Block:
    metrics: list[Metric] = [*(one.metric for one in asked), recipe.average_metric]
    rows = []
    for row in table.rows:
        cells = tuple(_fresh(row.cells[place]) for place in places)
        if recipe.borrowed:
            lacking = Cell(reason=f"no average: {recipe.borrowed} was not measured under this row")
            average = borrowed.get(row.variant["variant_key"], lacking)
        else:
            average = average_of(recipe, asked, cells)
        rows.append(replace(row, cells=cells, means=(_fresh(average),)))
    members = [place for place, one in enumerate(asked) if one.averaged]
    means = [] if recipe.borrowed else [(recipe.average_metric, members)]
    ranked = with_ranks(with_retained(rows, metrics), metrics)
    tested, tests = (
        tested_rows(ranked, Grid(columns=columns, means=means), pairer) if means else (ranked, Family())
    )
    noted, notes = with_notes(tested)
    return Block(
        budget_layers=table.budget_layers,
        rows=tuple(noted),
        notes=notes,
        tests=tests,
        standing=standing_of(noted, columns if means else (), range(len(columns) if means else 0)),
    )


def _fresh(cell: Cell) -> Cell:
    """The cell without what was said of it in another table."""
    return replace(cell, best=False, second=False, tie=False, holm=None, note=0, retained=None)


def average_of(recipe: TableRecipe, asked: Sequence[Asked], cells: Sequence[Cell]) -> Cell:
    """The recipe's average of a row: over all its columns, or a hole that says which are missing."""
    wanted = [one for one in recipe.columns if one.averaged]
    had = {
        one.title: cell.value
        for one, cell in zip(asked, cells, strict=True)
        if one.averaged and cell.value is not None
    }
    reasons = {cell.reason for cell in cells}
    if not had and len(reasons) == 1:
        return Cell(reason=reasons.pop())
    if len(had) < len(wanted):
        missing = ", ".join(one.title for one in wanted if one.title not in had)
        return Cell(reason=f"no average: {len(had)} of {len(wanted)} tasks have a value (missing: {missing})")
    return filled(recipe.average_metric, [sum(had.values()) / len(had)], math.nan)


def _averages(tables: Sequence[PaperTable], recipe_name: str) -> dict[str, Cell]:
    """The averages of the first table of a recipe, by variant key."""
    for table in tables:
        if table.recipe.name == recipe_name:
            rows = [row for block in table.blocks for row in block.rows]
            return {row.variant["variant_key"]: row.means[0] for row in rows}
    return {}
