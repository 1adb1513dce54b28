"""The measures that a verdict rests on: tasks, and averages where there are many tasks."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from prunebench.report.board import Board, Cell, Row
from prunebench.report.columns import Column, MeanColumn
from prunebench.report.metrics import Metric, counted
from prunebench.report.papers import PaperTable
from prunebench.report.standing import quality_places

MOST_LINES = 6
"""Tasks that get a line of their own; where there are more, averages speak for those that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One column of one table of one budget."""

    what: str
    plain: str
    """The same without marks, for sentences."""
    metric: Metric
    place: int
    dense: Row | None
    rows: Sequence[Row]
    detectable: float | None
    mute: bool
    documents: int | None

    @property
    def pruned(self) -> list[Row]:
        """All rows but the dense one."""
        return [row for row in self.rows if not row.label.dense]

    @property
    def known(self) -> bool:
        """Whether any pruned row has a value."""
        return any(row.all_cells[self.place].value is not None for row in self.pruned)

    @property
    def worse(self) -> list[Cell]:
        """Cells that were shown to be worse than the best; none where documents are too few to show it."""
        cells = [row.all_cells[self.place] for row in self.pruned if not self.mute]
        return [cell for cell in cells if cell.holm is not None and not cell.tie and not cell.best]


def measures(board: Board, papers: Sequence[PaperTable], number: int) -> Iterator[Measure]:
    """Those of one table of a board, the papers' averages first.

    Args:
        board: of one model.
        papers: its tables in the shapes of the papers.
        number: of the table, from 0.
    """
    table = board.tables[number]
    whole = [paper for paper in papers if paper.complete and not paper.recipe.borrowed]
    for paper in whole:
        block, place, columns = paper.blocks[number], len(paper.columns), _averaged(paper)
        what = f"average of {counted(len(columns), 'task')} ({paper.recipe.name})"
        yield Measure(
            what=what,
            plain=what,
            dense=_dense(row for one in paper.blocks for row in one.rows),
            metric=paper.recipe.average_metric,
            place=place,
            rows=block.rows,
            detectable=block.tests.detectable[place],
            mute=place in block.tests.mute,
            documents=_documents(columns),
        )
    for place in _places(board, {column.exam_id for paper in whole for column in _averaged(paper)}):
        column = board.all_columns[place]
        members = [board.columns[i] for i in column.members] if isinstance(column, MeanColumn) else [column]
        yield Measure(
            what=f"{column.name}: {column.metric.title}",
            plain=f"{column.name} {column.metric.name}",
            dense=_dense(row for one in board.tables for row in one.rows),
            metric=column.metric,
            place=place,
            rows=table.rows,
            detectable=table.detectable[place] if table.detectable else None,
            mute=place in table.mute,
            documents=_documents(members),
        )


def _averaged(paper: PaperTable) -> list[Column]:
    return [column for asked, column in zip(paper.asked, paper.columns, strict=True) if asked.averaged]


def _documents(columns: Sequence[Column]) -> int | None:
    known = [column.num_examples for column in columns if column.num_examples is not None]
    return sum(known) if len(known) == len(columns) else None


def _places(board: Board, averaged: Collection[str]) -> list[int]:
    """One place of each task. Where there are many, averages of the papers and means stand for their tasks.

    Args:
        board: of one model.
        averaged: exams of the tasks in the papers' averages.
    """
    places = quality_places(board)
    if len(places) <= MOST_LINES:
        return places
    places = [place for place in places if board.columns[place].exam_id not in averaged]
    means = {len(board.columns) + i: set(mean.members) for i, mean in enumerate(board.means)}
    for mean, members in sorted(means.items(), key=lambda item: -len(item[1] & set(places))):
        if len(places) > MOST_LINES and len(members & set(places)) > 1:
            places = [*(place for place in places if place not in members), mean]
    return places


def _dense(rows: Iterator[Row]) -> Row | None:
    return next((row for row in rows if row.label.dense), None)
