"""The leaderboard of a store: every number that a report prints, computed here and in `scores`."""

import string
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prunebench.report.board import Board, BudgetTable, Leaderboard, Record, Row
from prunebench.report.columns import columns_of, mean_columns
from prunebench.report.labels import Contender, labels_of
from prunebench.report.metrics import Metric
from prunebench.report.scores import cell_of, mean_cell, with_notes, with_ranks, with_retained, with_twins
from prunebench.report.source import Source, read_source
from prunebench.report.standing import QUALITY

FEW_DOCUMENTS = 100
"""Below this, one standard error of an accuracy is up to 5 points and more."""


def leaderboard_table(store: Path) -> Leaderboard:
    """The leaderboard of a store.

    Raises:
        InputError: no store, a newer or damaged one, or one without results.
    """
    return leaderboard(read_source(store))


def leaderboard(source: Source) -> Leaderboard:
    """The leaderboard of what was read of a store."""
    boards = tuple(_board(source, model, weights_id) for model, weights_id in source.models())
    return Leaderboard(boards=boards, demonstration=_demonstration(boards))


def _board(source: Source, model: str, weights_id: str) -> Board:
    own = {"model": model, "weights_id": weights_id}
    variants = [
        row
        for row in source.variants
        if own.items() <= row.items() and row["variant_key"] not in source.hidden
    ]
    results = [
        row
        for row in source.results
        if own.items() <= row.items() and row["variant_key"] not in source.hidden
    ]
    labels, columns = labels_of(variants), columns_of(results, source.groups)
    means = mean_columns(columns)
    scores = {(row["variant_key"], row["exam_id"] or "", row["metric"] or ""): row for row in results}
    marks = _marks(variants)
    order = {contender: place for place, contender in enumerate(labels)}
    rows = []
    for variant in sorted(variants, key=lambda row: order[Contender.of(row)]):
        cells = tuple(cell_of(scores, variant, column) for column in columns)
        removed, dense = variant["removed_params"], variant["projection_params"]
        share = None if removed is None else removed / dense
        rows.append(
            Row(
                contender=Contender.of(variant),
                label=labels[Contender.of(variant)],
                variant=variant,
                cells=cells,
                means=tuple(mean_cell(cells, mean) for mean in means),
                removed_share=None if share is None else 100 * share,
                removed_layers=None if share is None else share * variant["num_layers"],
                mark=marks.get(_corpus(variant), ""),
            )
        )
    return Board(
        model=model,
        weights_id=weights_id,
        num_layers=max(row["num_layers"] for row in variants),
        columns=columns,
        means=means,
        labels=labels,
        tables=tuple(_tables(rows, [column.metric for column in (*columns, *means)])),
        calibrations={mark: f"{name} (token ids {ids[:8]})" for (name, ids), mark in marks.items()},
    )


def _tables(rows: Sequence[Row], metrics: Sequence[Metric]) -> Iterator[BudgetTable]:
    dense = [row for row in rows if row.label.dense]
    budgets = sorted({row.variant["budget_layers"] for row in rows if not row.label.dense})
    for budget in budgets or [0]:
        pruned = [row for row in rows if not row.label.dense and row.variant["budget_layers"] == budget]
        ranked = with_ranks(with_retained([*dense, *pruned], metrics), metrics)
        told, notes = with_notes(with_twins(ranked))
        asked = sorted({row.variant["budget"] for row in pruned} - {str(budget)})
        yield BudgetTable(budget_layers=budget, asked=", ".join(asked), rows=tuple(told), notes=notes)


def _corpus(variant: Record) -> tuple[str, str]:
    return variant["calibration"] or "", variant["calibration_id"] or ""


def _marks(variants: Iterable[Record]) -> dict[tuple[str, str], str]:
    """A letter for each calibration; none where all rows that have one share it."""
    used = sorted({_corpus(variant) for variant in variants if variant["calibration_id"] is not None})
    if len({ids for _, ids in used}) < 2:
        return {}
    letters = string.ascii_lowercase
    return {corpus: letters[i % 26] * (1 + i // 26) for i, corpus in enumerate(used)}


def _demonstration(boards: Iterable[Board]) -> str:
    counts = {
        column.task: column.num_examples
        for board in boards
        for column in board.columns
        if column.metric.name in QUALITY
        and column.num_examples is not None
        and column.num_examples < FEW_DOCUMENTS
    }
    if not counts:
        return ""
    tasks = ", ".join(f"{task} has {count}" for task, count in sorted(counts.items()))
    return (
        "Differences between rows are a demonstration only: with fewer than "
        f"{FEW_DOCUMENTS} documents a task cannot tell methods apart ({tasks})."
    )
