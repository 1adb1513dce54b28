"""The leaderboard in a terminal."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prunebench.core.text import harmless
from prunebench.report.board import Board, BudgetTable, Cell, Leaderboard
from prunebench.report.text import heading


def print_leaderboard(table: Leaderboard, console: Console) -> None:
    """Print a table for each model and budget: values, errors, and what is retained of the dense model."""
    if table.demonstration:
        console.print(Text(table.demonstration, style="italic"))
    for board in table.boards:
        for budget in board.tables:
            for drawn in _fitting_tables(board, budget, console):
                console.print(drawn)
            told = {row.all_cells[place].note for row in budget.rows for place in _shown(board)}
            for number, note in enumerate(budget.notes, start=1):
                if number in told:
                    console.print(Text(harmless(f"  [{number}] {note}"), style="dim"))


def _shown(board: Board) -> list[int]:
    """Places of the columns and means that a terminal has room for."""
    return [place for place, column in enumerate(board.all_columns) if not column.metric.beside]


def _fitting_tables(board: Board, budget: BudgetTable, console: Console) -> Iterator[Table]:
    """One table with retained percents where the terminal is wide enough, else several without."""
    unbounded = console.options.update(max_width=10_000)

    def fits(drawn: Table) -> bool:
        return console.measure(drawn, options=unbounded).maximum <= console.width

    places = _shown(board)
    whole = _table(board, budget, places, retained=True)
    if fits(whole):
        yield whole
        return
    group: list[int] = []
    for place in places:
        if group and not fits(_table(board, budget, [*group, place], retained=False)):
            yield _table(board, budget, group, retained=False)
            group = []
        group.append(place)
    yield _table(board, budget, group, retained=False)


def _table(board: Board, budget: BudgetTable, places: Sequence[int], *, retained: bool) -> Table:
    drawn = Table(
        title=Text(harmless(f"{board.model}: {heading(board, budget)}"), style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    drawn.add_column("Method", no_wrap=True)
    columns = [board.all_columns[place] for place in places]
    for column in columns:
        drawn.add_column(
            Text(harmless(f"{column.name}\n{column.metric.title}")), justify="right", no_wrap=True
        )
        if retained and column.metric.better:
            drawn.add_column(Text("\nret. %"), justify="right", no_wrap=True)
    for row in budget.rows:
        name = Text(harmless(row.label.name))
        if row.same_as:
            name.append(harmless(f"\n  same plan as {row.same_as}"), style="dim")
        cells: list[Text] = []
        for column, cell in zip(columns, [row.all_cells[place] for place in places], strict=True):
            cells.append(_cell(cell))
            if retained and column.metric.better:
                cells.append(Text(cell.retained_text, style="dim"))
        drawn.add_row(name, *cells, end_section=row.label.dense)
    return drawn


def _cell(cell: Cell) -> Text:
    if cell.value is None:
        return Text(f"{cell.text} [{cell.note}]" if cell.note else cell.text, style="dim")
    text = Text(cell.text, style="bold" if cell.best else "")
    if cell.error:
        text.append(f" ±{cell.error}", style="not bold dim")
    return text
