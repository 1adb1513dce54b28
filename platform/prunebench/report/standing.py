"""How the rows of a table stand: coverage, and ranks over tasks of the rows that have them all."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prunebench.report.board import Board, Cell, Row
from prunebench.report.columns import Column
from prunebench.report.metrics import counted
from prunebench.report.ranks import Ranking, ranking

QUALITY = (
    *("acc_norm", "acc", "exact_match", "exact_match_flexible_extract", "exact_match_strict_match"),
    *("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"),
)
"""Metrics of quality; of one task the first that it has counts in ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The pruned rows of one table over some of its columns."""

    tasks: tuple[str, ...]
    coverage: Mapping[str, int]
    """Variant key -> how many of the tasks have a value."""
    ranking: Ranking | None
    """Over the rows that have all, those of one plan as one; None where fewer than two do."""
    entries: Mapping[str, str]
    """Variant key -> name in the ranking."""
    left_out: tuple[str, ...]
    """Names of rows that lack a value."""

    def rank(self, row: Row) -> float | None:
        """The row's average rank, where it has one."""
        return self._of(row, None if self.ranking is None else self.ranking.average)

    def wins(self, row: Row) -> float | None:
        """The row's win rate, where it has one."""
        return self._of(row, None if self.ranking is None else self.ranking.wins)

    def covered(self, row: Row) -> str:
        """Such as `7 of 9`."""
        return f"{self.coverage.get(row.variant['variant_key'], 0)} of {len(self.tasks)}"

    def _of(self, row: Row, values: Sequence[float] | None) -> float | None:
        name = self.entries.get(row.variant["variant_key"])
        if values is None or self.ranking is None or name is None:
            return None
        return values[self.ranking.names.index(name)]


def quality_places(board: Board) -> list[int]:
    """Places of the columns that count in ranks: one of each task, the fullest where it has several keys."""
    full = [
        sum(row.cells[place].value is not None for table in board.tables for row in table.rows)
        for place in range(len(board.columns))
    ]
    by_task: dict[str, list[int]] = defaultdict(list)
    for place, column in enumerate(board.columns):
        if column.metric.name in QUALITY and column.metric.better:
            by_task[column.task].append(place)

    def preferred(place: int) -> tuple[int, int, int]:
        column = board.columns[place]
        return -full[place], -(column.num_examples or 0), QUALITY.index(column.metric.name)

    return sorted(min(places, key=preferred) for places in by_task.values())


def standing_of(rows: Sequence[Row], columns: Sequence[Column], places: Sequence[int]) -> Standing:
    """The standing of the pruned rows over the columns at `places`, each of which has a direction."""
    chosen = [(place, columns[place]) for place in places]
    pruned = [row for row in rows if not row.label.dense]
    coverage = {
        row.variant["variant_key"]: sum(row.cells[place].value is not None for place, _ in chosen)
        for row in rows
    }
    plans: dict[str, list[Row]] = defaultdict(list)
    left_out = []
    for row in pruned:
        if chosen and all(_comparable(row.cells[place]) for place, _ in chosen):
            plans[row.variant["plan_id"]].append(row)
        else:
            left_out.append(row.label.name)
    names = {plan_id: " = ".join(row.label.name for row in alike) for plan_id, alike in plans.items()}
    entries = {row.variant["variant_key"]: names[plan] for plan, alike in plans.items() for row in alike}
    found = None
    if len(plans) > 1:
        badness = [
            [column.metric.rank(alike[0].cells[place].value or 0.0) for place, column in chosen]
            for alike in plans.values()
        ]
        tasks = [column.name for _, column in chosen]
        found = ranking(list(names.values()), tasks, np.array(badness, dtype=np.float64))
    return Standing(
        tasks=tuple(column.name for _, column in chosen),
        coverage=coverage,
        ranking=found,
        entries=entries,
        left_out=tuple(left_out),
    )


def _comparable(cell: Cell) -> bool:
    return cell.value is not None and not math.isnan(cell.value)


def told(standing: Standing) -> str:
    """What the ranks say, in a sentence or two."""
    found = standing.ranking
    if not standing.tasks:
        return "No task with a direction has a value: nothing is ranked."
    if found is None:
        return "Fewer than two plans have a value on every task: nothing is ranked."
    tasks = counted(len(found.tasks), "task")
    if len(found.tasks) < 2:
        return f"Ranks over {tasks} are its order: they tell nothing of others."
    test = (
        ""
        if math.isnan(found.friedman)
        else f"Friedman's test that all are alike: p = {_p(found.friedman)}. "
    )
    return (
        f"{test}Over {tasks} average ranks that differ by less than {found.critical:.2f} are not told apart "
        "(Nemenyi, 5 %)."
    )


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
