"""The papers' tables of a model as Markdown and LaTeX."""

from collections.abc import Callable, Iterator, Sequence

from prunebench.report.board import Board, Cell, Row
from prunebench.report.metrics import HOLE, counted
from prunebench.report.papers import Block, PaperTable

Escape = Callable[[str], str]


def markdown_papers(board: Board, papers: Sequence[PaperTable], escape: Escape) -> list[str]:
    """For each table a heading, a table for each budget with its notes, and how it is read."""
    blocks: list[str] = []
    for paper in papers:
        blocks.append(f"## {escape(heading(paper))}")
        for block in paper.blocks:
            blocks.append(f"### {escape(_budget(board, block))}")
            blocks.append("\n".join(_markdown_lines(paper, block, escape)))
            blocks += [f"{number}. {escape(note)}" for number, note in enumerate(block.notes, start=1)]
        blocks.append(f"- {escape(reading(paper))}")
    return blocks


def heading(paper: PaperTable) -> str:
    """What a table is, and under which setting."""
    setting = ", ".join(f"{name} {value}" for name, value in paper.setting.items() if value)
    return f"{paper.recipe.title} ({setting})"


def reading(paper: PaperTable) -> str:
    """How a table is read, what is missing in it and what was left out."""
    told = (
        []
        if paper.recipe.borrowed
        else [f"Metric of each task: {paper.recipe.rule}; no other average is taken."]
    )
    if paper.absent:
        told.append(
            f"Not measured{'' if paper.complete else ', and so no average'}: {', '.join(paper.absent)}."
        )
    told += [f"Left out: {one}." for one in paper.left_out]
    if paper.seeds:
        told.append(f"sd: sample standard deviation over {counted(paper.seeds, 'seed')}.")
    return " ".join(told)


def _budget(board: Board, block: Block) -> str:
    layers = counted(board.num_layers, "layer")
    return f"{block.budget_layers} of {layers} removed" if block.budget_layers else f"Dense model, {layers}"


def _heads(paper: PaperTable) -> list[str]:
    titles = [f"{one.title} {one.metric.arrow}".strip() for one in paper.asked]
    ranks = [] if paper.recipe.borrowed else ["rank", "tasks"]
    return [*titles, f"{paper.recipe.average} {paper.recipe.average_metric.arrow}", "ret. %", *ranks]


def _standing(paper: PaperTable, block: Block, row: Row) -> list[str]:
    if paper.recipe.borrowed:
        return []
    rank = block.standing.rank(row)
    return ["" if rank is None else f"{rank:.2f}", block.standing.covered(row)]


def _markdown_lines(paper: PaperTable, block: Block, escape: Escape) -> Iterator[str]:
    heads = _heads(paper)
    yield "| " + " | ".join(escape(head) for head in ("Method", *heads)) + " |"
    yield "|---|" + "---:|" * len(heads)
    for row in block.rows:
        cells = [_markdown(cell, paper.bracket(i, cell)) for i, cell in enumerate(row.cells)]
        average = row.means[0]
        line = [
            escape(row.label.name),
            *cells,
            _markdown(average, ""),
            average.retained_text,
            *_standing(paper, block, row),
        ]
        yield "| " + " | ".join(line) + " |"


def _markdown(cell: Cell, bracket: str) -> str:
    if cell.value is None:
        return f"{HOLE} [{cell.note}]" if cell.note else HOLE
    value = f"**{cell.text}**" if cell.best else cell.text
    return value + ("†" if cell.tie else "") + _errors(cell, "±") + (f" ({bracket})" if bracket else "")


def _errors(cell: Cell, sign: str) -> str:
    error = f" {sign} {cell.error}" if cell.error else ""
    return error + (f" (sd {cell.spread})" if cell.spread else "")


def latex_papers(board: Board, papers: Sequence[PaperTable], escape: Escape) -> list[str]:
    """A booktabs table for each, budgets below one another."""
    return ["\n".join(_latex_lines(board, paper, escape)) for paper in papers]


def _latex_lines(board: Board, paper: PaperTable, escape: Escape) -> Iterator[str]:
    heads = _heads(paper)
    width = len(heads) + 1
    yield r"\begin{table}[t]"
    yield r"\centering\small"
    yield f"\\caption{{{escape(f'{board.model}: {heading(paper)}. {reading(paper)}')}}}"
    yield f"\\begin{{tabular}}{{l{'r' * len(heads)}}}"
    yield r"\toprule"
    yield " & ".join(escape(head) for head in ("Method", *heads)) + r" \\"
    for block in paper.blocks:
        yield r"\midrule"
        if block.budget_layers:
            yield f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{escape(_budget(board, block))}}}}} \\\\"
        for row in paper.shown(block):
            yield _latex_row(paper, block, row, escape)
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield r"\par\medskip\footnotesize\raggedright"
    for block in paper.blocks:
        for number, note in enumerate(block.notes, start=1):
            yield f"{block.budget_layers}$^{{{number}}}$ {escape(note)}\\par"
    yield r"\end{table}"


def _latex_row(paper: PaperTable, block: Block, row: Row, escape: Escape) -> str:
    average = row.means[0]
    cells = [_latex(cell, paper.bracket(i, cell), escape) for i, cell in enumerate(row.cells)]
    line = [
        escape(row.label.name),
        *cells,
        _latex(average, "", escape),
        average.retained_text,
        *_standing(paper, block, row),
    ]
    return " & ".join(line) + r" \\"


def _latex(cell: Cell, bracket: str, escape: Escape) -> str:
    if cell.value is None:
        return f"--$^{{{cell.note}}}$" if cell.note else "--"
    value = escape(cell.text)
    value = f"\\textbf{{{value}}}" if cell.best else value
    tie = r"$^{\dagger}$" if cell.tie else ""
    errors = f" {{\\scriptsize{escape(_errors(cell, '±'))}}}" if cell.error or cell.spread else ""
    return value + tie + errors + (f" ({escape(bracket)})" if bracket else "")
