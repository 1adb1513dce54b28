"""The evaluated variants of a leaderboard, each once, for exports that have one file a model."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prunebench.report.board import Board, Cell, Leaderboard, Row
from prunebench.report.columns import Column
from prunebench.report.source import Source, parsed

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """One variant with at least one finite result."""

    board: Board
    row: Row
    at: datetime | None
    """When its last result came in; None where no run tells."""
    version: str
    """Of the program that made its last result; `unknown` where no run tells."""

    @property
    def name(self) -> str:
        """The model, the method and the budget, in words."""
        if self.row.label.dense:
            return self.board.model
        variant = self.row.variant
        layers = f"{variant['budget_layers']} of {variant['num_layers']} layers"
        return f"{self.board.model}, {self.row.label.name}, {layers}"

    @property
    def file_name(self) -> str:
        """The method, the budget and the variant's key: letters that every file system takes."""
        variant = self.row.variant
        name = f"{variant['method']}_{variant['budget_layers']}_{variant['variant_key']}"
        return re.sub(r"[^A-Za-z0-9_-]", "_", name)

    @property
    def timestamp(self) -> float:
        """`at` in seconds since 1970; 0 where no run tells."""
        return 0.0 if self.at is None else self.at.timestamp()

    def results(self) -> Iterator[tuple[Column, Cell, float]]:
        """Every column that the variant has a finite value of, and the value."""
        for column, cell in zip(self.board.columns, self.row.cells, strict=True):
            if cell.value is not None and abs(cell.value) < float("inf"):
                yield column, cell, cell.value


def evaluated_of(leaderboard: Leaderboard, source: Source) -> Iterator[Evaluated]:
    """Every variant with a finite result, in the order of the tables."""
    last: dict[str, tuple[datetime, str]] = {}
    for result in source.results:
        if result["created_at"] is not None:
            key, found = result["variant_key"], (result["created_at"], result["run_id"] or "")
            last[key] = max(last.get(key, found), found)
    versions = {run["run_id"]: _version(run["record_json"]) for run in source.runs}
    rows: Mapping[str, tuple[Board, Row]] = {
        row.variant["variant_key"]: (board, row)
        for board in leaderboard.boards
        for table in board.tables
        for row in table.rows
    }
    for key, (board, row) in rows.items():
        at, run_id = last.get(key, (None, ""))
        one = Evaluated(board=board, row=row, at=at, version=versions.get(run_id, UNKNOWN))
        if any(True for _ in one.results()):
            yield one


def _version(record: str) -> str:
    return str((parsed(record).get("packages") or {}).get("prunebench", UNKNOWN))
