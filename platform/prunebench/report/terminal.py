"""The leaderboard in a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prunebench.report.board import Board, BudgetTable, Cell, Leaderboard
from prunebench.report.text import heading


def print_leaderboard(table: Leaderboard, console: Console) -> None:
    """Print a table for each model and budget: values, errors, and what is retained of the dense model."""
    if table.demonstration:
        console.print(Text(table.demonstration, style="italic"))
    for board in table.boards:
        for budget in board.tables:
            console.print(_fitting_table(board, budget, console))
            for number, note in enumerate(budget.notes, start=1):
                console.print(Text(f"  [{number}] {note}", style="dim"))


def _fitting_table(board: Board, budget: BudgetTable, console: Console) -> Table:
    """The table with retained percents where the terminal is wide enough for them, else without."""
    whole = _table(board, budget, retained=True)
    unbounded = console.options.update(max_width=10_000)
    fits = console.measure(whole, options=unbounded).maximum <= console.width
    return whole if fits else _table(board, budget, retained=False)


def _table(board: Board, budget: BudgetTable, *, retained: bool) -> Table:
    drawn = Table(
        title=Text(f"{board.model}: {heading(board, budget)}", style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    drawn.add_column("Method", no_wrap=True)
    for column in board.all_columns:
        drawn.add_column(Text(f"{column.name}\n{column.metric.title}"), justify="right", no_wrap=True)
        if retained and column.metric.better:
            drawn.add_column(Text("\nret. %"), justify="right", no_wrap=True)
    for row in budget.rows:
        name = Text(row.label.name)
        if row.same_as:
            name.append(f"\n  same plan as {row.same_as}", style="dim")
        cells: list[Text] = []
        for column, cell in zip(board.all_columns, row.all_cells, strict=True):
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
