"""The leaderboard as CSV, Markdown and LaTeX."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from prunebench.report.board import Board, BudgetTable, Cell, Leaderboard, Row
from prunebench.report.columns import KEY, Column
from prunebench.report.metrics import HOLE, counted
from prunebench.report.papers import PaperTable
from prunebench.report.standing import Standing, quality_places, standing_of
from prunebench.report.text_papers import latex_papers, markdown_papers

LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "∞": r"$\infty$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "α": r"$\alpha$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "Σ": r"$\Sigma$",
}
ACCENTED = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ")
"""What every LaTeX prints without another package, besides ASCII."""
CSV_COLUMNS = (
    *("model", "weights_id", "method", "title", "params", "calibration", "calibration_id"),
    *("budget_layers", "budget", "num_layers", "plan_id", "removed_layers", "removed_params"),
    *("removed_percent", "total_params", "task", "metric", *KEY, "exam_id", "num_examples"),
    *("value", "stderr", "retained_percent", "status", "seeds", "sd", "mark", "p_holm"),
    *("average_rank", "win_rate", "coverage"),
)
FROM_VARIANT = (
    *("method", "calibration", "calibration_id", "budget_layers", "budget", "num_layers"),
    *("plan_id", "removed_params", "total_params"),
)


def to_csv(leaderboard: Leaderboard) -> str:
    """One line for each row and column, unrounded; a hole has an empty value, and its reason as status."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for board in leaderboard.boards:
        writer.writerows(_csv_lines(board))
    return text.getvalue()


def _csv_lines(board: Board) -> Iterator[dict[str, object]]:
    told: set[str] = set()
    places = quality_places(board)
    for table in board.tables:
        standing = standing_of(table.rows, board.columns, places)
        for row in table.rows:
            if row.variant["variant_key"] in told:
                continue
            told.add(row.variant["variant_key"])
            shared = {**_csv_row(board, row), **_csv_standing(standing, row)}
            for column, cell in zip(board.columns, row.cells, strict=True):
                yield {**shared, **_csv_cell(column, cell)}


def _csv_standing(standing: Standing, row: Row) -> dict[str, object]:
    """Over one metric of each task; a dense row has no rank."""
    return {
        "average_rank": standing.rank(row),
        "win_rate": standing.wins(row),
        "coverage": standing.covered(row),
    }


def _csv_row(board: Board, row: Row) -> dict[str, object]:
    variant = row.variant
    gone = variant["removed_layers"]
    return {
        "model": board.model,
        "weights_id": board.weights_id,
        "title": row.label.title,
        "params": variant["params_json"],
        "removed_layers": "" if variant["plan_id"] is None else json.dumps([int(layer) for layer in gone]),
        "removed_percent": row.removed_share,
        **{name: variant[name] for name in FROM_VARIANT},
    }


def _csv_cell(column: Column, cell: Cell) -> dict[str, object]:
    return {
        "task": column.task,
        "metric": column.metric.name,
        **column.key,
        "exam_id": column.exam_id,
        "num_examples": column.num_examples if cell.value is not None else None,
        "value": cell.value,
        "stderr": cell.stderr,
        "retained_percent": cell.retained,
        "status": cell.reason or "ok",
        "seeds": len(column.seeds),
        "sd": cell.sd,
        "mark": "best" if cell.best else "tie" if cell.tie else "",
        "p_holm": cell.holm,
    }


def to_markdown(leaderboard: Leaderboard, papers: Mapping[str, Sequence[PaperTable]]) -> str:
    """A table for each model and budget, and the papers' tables of each model (by weights_id)."""
    blocks = [f"_{_md(leaderboard.demonstration)}_"] if leaderboard.demonstration else []
    for board in leaderboard.boards:
        blocks.append(f"# {_md(board.model)}")
        for table in board.tables:
            blocks.append(f"## {_md(heading(board, table))}")
            blocks.append("\n".join(_md_lines(board, table)))
            blocks += [f"{number}. {_md(note)}" for number, note in enumerate(table.notes, start=1)]
        blocks += [f"- {_md(line)}" for line in legend(board)]
        blocks += markdown_papers(board, papers.get(board.weights_id, ()), _md)
    return "\n\n".join(blocks) + "\n"


def heading(board: Board, table: BudgetTable) -> str:
    """What a table is of."""
    if not table.budget_layers:
        return f"Dense model, {counted(board.num_layers, 'layer')}"
    asked = f" ({table.asked})" if table.asked else ""
    return f"{table.budget_layers} of {counted(board.num_layers, 'layer')} removed{asked}"


def legend(board: Board) -> list[str]:
    """How the tables of a model are read: errors, retained, the key of each column, calibrations."""
    reading = (
        "± is the standard error over documents. Retained (ret.) is in percent of the dense model: "
        "pruned/dense, and dense/pruned where lower is better. Best in bold, second underlined, "
        "equal figures alike; † was not shown to be worse than the best of its column (paired on documents, "
        "Holm over the table, 5 %). Removed is in percent of the dense model's projection parameters."
    )
    lines = [reading, *_keys(board)]
    if any(len(column.seeds) > 1 for column in board.columns):
        lines.append("sd is the sample standard deviation over seeds; a value is the mean over them.")
    lines += [
        f"{mean.name}: {', '.join(board.columns[i].name for i in mean.members)}" for mean in board.means
    ]
    if board.means:
        lines.append("The error of a mean takes documents of different tasks as independent.")
    if few := sorted(
        {board.columns[i].name for table in board.tables for i in table.mute if i < len(board.columns)}
    ):
        lines.append(
            f"No † is given where the documents are too few to tell any two rows apart: {', '.join(few)}."
        )
    return lines + [f"{mark}: calibrated on {name}" for mark, name in board.calibrations.items()]


def _keys(board: Board) -> Iterator[str]:
    """Number of documents and whole key of each exam."""
    for _, same in groupby(board.columns, key=lambda column: (column.exam_id, column.name)):
        columns = list(same)
        first = columns[0]
        metrics = ", ".join(column.metric.name for column in columns if column.metric.name)
        number = max((c.num_examples for c in columns if c.num_examples is not None), default=None)
        count = "no document yet" if number is None else counted(number, "document")
        yield f"{first.name} ({metrics}): {count}; {first.recipe}"


def row_name(row: Row) -> str:
    """The method, what sets it apart, and whose plan it shares."""
    same = f"same plan as {row.same_as}" if row.same_as else ""
    notes = "; ".join(part for part in (row.label.detail, same) if part)
    return row.label.title + (f" [{notes}]" if notes else "")


def _md_lines(board: Board, table: BudgetTable) -> Iterator[str]:
    heads = [f"{column.name}: {column.metric.title}" for column in board.all_columns]
    yield "| " + " | ".join(_md(head) for head in ("Method", "Removed %", *heads)) + " |"
    yield "|---|---:|" + "---:|" * len(heads)
    for row in table.rows:
        mark = f"<sup>{row.mark}</sup>" if row.mark else ""
        cells = [_md_cell(cell) for cell in row.all_cells]
        yield "| " + " | ".join([_md(row_name(row)) + mark, _md(row.removed_text), *cells]) + " |"


def _md_cell(cell: Cell) -> str:
    if cell.value is None:
        return f"{HOLE} [{cell.note}]" if cell.note else HOLE
    value = f"**{cell.text}**" if cell.best else f"<u>{cell.text}</u>" if cell.second else cell.text
    error = f" ± {cell.error}" if cell.error else ""
    spread = f" (sd {cell.spread})" if cell.spread else ""
    tie = "†" if cell.tie else ""
    return value + tie + error + spread + (f" ({cell.retained_text} %)" if cell.retained_text else "")


def _md(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|<>#])", r"\\\1", " ".join(text.split()))


def to_latex(leaderboard: Leaderboard, papers: Mapping[str, Sequence[PaperTable]]) -> str:
    """A booktabs table for each model and budget, and the papers' tables of each model (by weights_id)."""
    blocks = [f"% {' '.join(leaderboard.demonstration.split())}"] if leaderboard.demonstration else []
    blocks.append("% Needs \\usepackage{booktabs}.")
    for board in leaderboard.boards:
        for table in board.tables:
            blocks.append("\n".join(_latex_lines(leaderboard, board, table)))
        blocks += latex_papers(board, papers.get(board.weights_id, ()), latex)
    return "\n\n".join(blocks) + "\n"


def _latex_lines(leaderboard: Leaderboard, board: Board, table: BudgetTable) -> Iterator[str]:
    caption = f"{board.model}: {heading(board, table)}. {leaderboard.demonstration} {legend(board)[0]}"
    columns = board.all_columns
    yield r"\begin{table}[t]"
    yield r"\centering\small"
    yield f"\\caption{{{latex(caption)}}}"
    yield f"\\begin{{tabular}}{{lr{'rr' * len(columns)}}}"
    yield r"\toprule"
    heads = [f"\\multicolumn{{{2 * count}}}{{c}}{{{latex(name)}}}" for name, count in board.groups]
    yield " & ".join(["", "Removed", *heads]) + r" \\"
    start = 3
    for _, count in board.groups:
        yield f"\\cmidrule(lr){{{start}-{start + 2 * count - 1}}}"
        start += 2 * count
    units = [part for column in columns for part in (latex(column.metric.title), r"ret.\ \%")]
    yield " & ".join(["Method", r"\%", *units]) + r" \\"
    yield r"\midrule"
    for row in table.rows:
        yield _latex_row(row)
        if row.label.dense and len(table.rows) > 1:
            yield r"\midrule"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    notes = [f"$^{{{number}}}$ {latex(note)}" for number, note in enumerate(table.notes, start=1)]
    notes += [latex(line) for line in legend(board)[1:]]
    yield r"\par\medskip\footnotesize\raggedright"
    yield from (f"{note}\\par" for note in notes)
    yield r"\end{table}"


def _latex_row(row: Row) -> str:
    mark = f"$^{{{row.mark}}}$" if row.mark else ""
    cells = [part for cell in row.all_cells for part in _latex_cell(cell)]
    return " & ".join([latex(row_name(row)) + mark, latex(row.removed_text), *cells]) + r" \\"


def _latex_cell(cell: Cell) -> tuple[str, str]:
    if cell.value is None:
        return (f"--$^{{{cell.note}}}$" if cell.note else "--"), ""
    value = latex(cell.text)
    value = f"\\textbf{{{value}}}" if cell.best else f"\\underline{{{value}}}" if cell.second else value
    tie = r"$^{\dagger}$" if cell.tie else ""
    error = f" {{\\scriptsize$\\pm${latex(cell.error)}}}" if cell.error else ""
    spread = f" {{\\scriptsize sd {latex(cell.spread)}}}" if cell.spread else ""
    return value + tie + error + spread, cell.retained_text


def latex(text: str) -> str:
    """Text on one line that compiles whatever is in it: specials are escaped, unknown letters named."""
    return "".join(LATEX.get(letter) or _letter(letter) for letter in " ".join(text.split()))


def _letter(letter: str) -> str:
    known = (letter.isascii() and letter.isprintable()) or letter in ACCENTED
    return letter if known else f"[U+{ord(letter):04X}]"
