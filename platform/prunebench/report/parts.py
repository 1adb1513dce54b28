"""What a page says of one model beyond its leaderboard: verdict, papers' tables, standing, pictures."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from prunebench.core.stats import Array, WeightStats
from prunebench.report.beside import Matched, beside_measured
from prunebench.report.board import Board
from prunebench.report.cd_diagram import cd_diagram
from prunebench.report.concentration import concentration_plots
from prunebench.report.distance import distance_plot
from prunebench.report.lengths import length_pictures
from prunebench.report.metric_test import detectable_text
from prunebench.report.metrics import HOLE, counted
from prunebench.report.papers import PaperTable, paper_tables
from prunebench.report.pareto import pareto
from prunebench.report.source import Calibration, Source
from prunebench.report.standing import Standing, quality_places, standing_of, told
from prunebench.report.tested import Pairer
from prunebench.report.verdict import Verdict, verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """The rows of one budget by their average rank."""

    budget_layers: int
    standing: Standing
    told: str
    rows: tuple[tuple[str, str, str, str], ...]
    """Name, average rank, win rate and coverage, the best first."""
    picture: Markup
    detectable: tuple[tuple[str, str, str], ...]
    """Column, documents and smallest detectable difference."""
    tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything of one model."""

    verdicts: tuple[Verdict, ...]
    papers: tuple[PaperTable, ...]
    matched: Matched
    ranked: tuple[Ranked, ...]
    pareto: tuple[Markup, ...]
    lengths: tuple[Markup, ...]
    distance: Markup
    concentration: tuple[Markup, ...]


def parts_of(
    board: Board,
    pairer: Pairer,
    source: Source,
    calibrations: Sequence[Calibration],
    weights: WeightStats | None,
    column_square_LI: Array | None,
) -> Parts:
    """Compute the parts of one model.

    Args:
        board: the model's tables, tested.
        pairer: of every score.
        source: the store.
        calibrations: of this model.
        weights: with similarities, where a method read them.
        column_square_LI: of down_proj, where a method read it.
    """
    papers = paper_tables(board, pairer)
    return Parts(
        verdicts=tuple(verdicts(board, papers)),
        papers=papers,
        matched=beside_measured(board, papers, source),
        ranked=tuple(
            _ranked(board, number) for number, table in enumerate(board.tables) if table.budget_layers
        ),
        pareto=tuple(pareto(board, papers)),
        lengths=tuple(length_pictures(board, pairer.documents)),
        distance=distance_plot(calibrations, weights),
        concentration=tuple(
            picture
            for one in calibrations[:1]
            for picture in concentration_plots(one.stats, column_square_LI, one.name)
        ),
    )


def _ranked(board: Board, number: int) -> Ranked:
    table = board.tables[number]
    standing = standing_of(table.rows, board.columns, quality_places(board))
    rows = [row for row in table.rows if not row.label.dense]
    rows.sort(key=lambda row: (standing.rank(row) is None, standing.rank(row) or 0.0))
    title = f"{counted(table.budget_layers, 'layer')} removed"
    found = standing.ranking
    return Ranked(
        budget_layers=table.budget_layers,
        standing=standing,
        told=told(standing),
        rows=tuple(
            (
                row.label.name,
                _shown(standing.rank(row), ".2f"),
                _shown(standing.wins(row), ".0%"),
                standing.covered(row),
            )
            for row in rows
        ),
        picture=Markup("") if found is None or len(found.tasks) < 2 else cd_diagram(found, title),
        detectable=tuple(
            (
                f"{column.name}: {column.metric.title}",
                HOLE if column.num_examples is None else str(column.num_examples),
                detectable_text(column.metric, value),
            )
            for column, value in zip(board.columns, table.detectable, strict=False)
            if column.metric.better
        ),
        tests=table.tests,
    )


def _shown(value: float | None, form: str) -> str:
    return HOLE if value is None else format(value, form).replace("%", " %")
