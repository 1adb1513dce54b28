"""The leaderboard as values: cells, rows, one table a budget, one board a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from prunebench.report.columns import Column, MeanColumn
from prunebench.report.labels import Contender, Label
from prunebench.report.metrics import HOLE, millions, percent

Record: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number, or a hole with its reason."""

    value: float | None = None
    stderr: float | None = None
    """Document-level standard error; None where one document or none tells nothing of it."""
    count: int | None = None
    """Documents; None for a mean over tasks."""
    retained: float | None = None
    """Percent of the dense row of the same column."""
    sd: float | None = None
    """Sample standard deviation (ddof 1) over seeds; None under one seed."""
    spread: str = ""
    """The printed standard deviation; empty where there is none."""
    holm: float | None = None
    """p-value of the difference from the best of the column, corrected over the table; None if untested."""
    tie: bool = False
    """Whether it is not the best and was not shown to be worse than it."""
    reason: str = ""
    """Why there is no value: the status, and the error where there is one."""
    text: str = HOLE
    error: str = ""
    """The printed standard error; empty where there is none."""
    best: bool = False
    second: bool = False
    note: int = 0
    """Number of the footnote with the reason; 0 for none."""

    @property
    def retained_text(self) -> str:
        """The retained percentage as printed; empty where there is none."""
        return "" if self.retained is None else percent(self.retained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender at one budget."""

    contender: Contender
    label: Label
    variant: Record
    cells: tuple[Cell, ...]
    means: tuple[Cell, ...]
    removed_share: float | None
    """Percent of the dense projection parameters that is gone; None where it cannot be told."""
    removed_layers: float | None
    """The same in layer-equivalents."""
    same_as: str = ""
    """Name of the first row of the table that has the same plan."""
    mark: str = ""
    """Letter of the calibration, where rows of the model are calibrated differently."""

    @property
    def removed_text(self) -> str:
        """Percent that is gone, and the layer-equivalents where they are not what was asked for."""
        if self.removed_share is None or self.removed_layers is None:
            return HOLE
        share, asked = percent(self.removed_share), self.variant["budget_layers"]
        if abs(self.removed_layers - asked) < 0.005:
            return share
        return f"{share} ({self.removed_layers:.2f} of {asked})"

    @property
    def params_text(self) -> str:
        """All parameters that are left."""
        total = self.variant["total_params"]
        return HOLE if total is None else millions(total)

    @property
    def all_cells(self) -> tuple[Cell, ...]:
        """The cells of columns and of means."""
        return (*self.cells, *self.means)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTable:
    """All contenders at one budget, the dense model first."""

    budget_layers: int
    asked: str
    """The budget as it was written where that is not the number of layers; else empty."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """Reasons of the holes; footnote 1 is the first."""
    detectable: tuple[float | None, ...] = ()
    """Of each column and mean, once tested: the smallest difference from the best row that is found with 80 %
    power at the 5 % level, the median over rows (of ln for perplexities); None where nothing tells."""
    tests: int = 0
    """Pairs that were tested: the family of Holm's correction."""
    mute: tuple[int, ...] = ()
    """Places of columns whose documents are too few to tell any two rows apart: no ties are marked there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One model's tables."""

    model: str
    weights_id: str
    num_layers: int
    columns: tuple[Column, ...]
    means: tuple[MeanColumn, ...]
    labels: Mapping[Contender, Label]
    tables: tuple[BudgetTable, ...]
    """By budget, ascending; one of budget 0 with the dense row alone where nothing was pruned."""
    calibrations: Mapping[str, str]
    """Letter -> calibration, where rows are calibrated differently; else empty."""

    @property
    def all_columns(self) -> tuple[Column | MeanColumn, ...]:
        """Columns and means, as `Row.all_cells`."""
        return (*self.columns, *self.means)

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """(name, number of columns) of each run of columns of one exam; a mean stands alone."""
        exams = [(c.exam_id, c.name) for c in self.columns]
        runs = [(name, len(list(same))) for (_, name), same in groupby(exams)]
        return (*runs, *((mean.name, 1) for mean in self.means))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Every model's tables."""

    boards: tuple[Board, ...]
    demonstration: str
    """The sentence that goes first where tasks have few documents; else empty."""
