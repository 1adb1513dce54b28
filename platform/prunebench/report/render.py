"""The report: one HTML page that requests nothing, and what it shows as CSV, Markdown, LaTeX and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from prunebench.core.collector import uncollected
from prunebench.core.text import harmless
from prunebench.errors import ResourceError
from prunebench.report.board import Board, BudgetTable
from prunebench.report.curves import curves
from prunebench.report.details import Details, facets_of
from prunebench.report.documents import read_documents
from prunebench.report.evaluated import evaluated_of
from prunebench.report.exports import write_exports
from prunebench.report.external import imported_of
from prunebench.report.history import history_of
from prunebench.report.layer_map import layer_map
from prunebench.report.layers import near_twins, twins
from prunebench.report.margins import Margin, margins_of
from prunebench.report.metrics import counted
from prunebench.report.notes import (
    Planning,
    Warned,
    plannings_of,
    warnings_of,
)
from prunebench.report.parts import Parts, parts_of
from prunebench.report.published import published_tables
from prunebench.report.searching import search_section
from prunebench.report.security import policy
from prunebench.report.similarity_maps import calibration_map, similarity_maps
from prunebench.report.source import (
    Calibration,
    Source,
    read_calibrations,
    read_column_squares,
    read_source,
    read_weights,
)
from prunebench.report.studies import studies_of
from prunebench.report.tables import leaderboard
from prunebench.report.tested import Pairer, with_tests
from prunebench.report.text import heading, legend, to_csv, to_latex, to_markdown
from prunebench.store.append import write_atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPaths:
    """The files of a report."""

    html: Path
    published: Path
    csv: Path
    markdown: Path
    latex: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Headed:
    """A table with its heading and what its plans have in common."""

    heading: str
    table: BudgetTable
    same: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Everything that the page says of one model."""

    board: Board
    facts: str
    tables: tuple[Headed, ...]
    legend: tuple[str, ...]
    curves: tuple[Markup, ...]
    layer_map: Markup
    similarities: tuple[Markup, ...]
    num_features: int | None
    """The dense MLP width, where it is known."""
    warnings: tuple[Warned, ...]
    margins: tuple[Margin, ...]
    plannings: tuple[Planning, ...]
    parts: Parts


@uncollected()
def write_report(store: Path, out: Path) -> ReportPaths:
    """Write index.html, published.html and leaderboard.csv, .md and .tex into the folder `out`.

    Its folders every_eval_ever and lm_eval get one JSON file for each evaluated row. Equal stores give equal
    bytes. The store is only read.

    Raises:
        InputError: no store, a newer or damaged one, or one without results.
        ResourceError: `out` cannot be written.
    """
    source = read_source(store)
    pairer = Pairer(read_documents(store, source.groups))
    table = with_tests(leaderboard(source), pairer)
    calibrations = read_calibrations(store, source)
    sections = tuple(_section(store, source, board, calibrations, pairer) for board in table.boards)
    widths = {one.board.model: one.num_features for one in sections}
    searches = [search_section(study, source, widths) for study in studies_of(store, source)]
    others = [one for one in calibrations if not one.weights_id]
    page = _page(
        "page.html.j2",
        "page.js",
        facets=facets_of(table.boards),
        details=Details(store),
        title=_title(sections),
        demonstration=table.demonstration,
        sections=sections,
        searches=searches,
        others=[calibration_map(one) for one in others],
        imported=imported_of(store, table.boards),
        history=history_of(source, table.boards),
    )
    paths = ReportPaths(
        html=out / "index.html",
        published=out / "published.html",
        csv=out / "leaderboard.csv",
        markdown=out / "leaderboard.md",
        latex=out / "leaderboard.tex",
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"cannot make the folder {out}: {error.strerror}") from error
    papers = {section.board.weights_id: section.parts.papers for section in sections}
    _write(paths.csv, to_csv(table))
    _write(paths.markdown, to_markdown(table, papers))
    _write(paths.latex, to_latex(table, papers))
    compared = sum(len(section.parts.matched.numbers) for section in sections)
    published = _page("published.html.j2", tables=published_tables(), compared=compared)
    _write(paths.published, published)
    write_exports(evaluated_of(table, source), out)
    _write(paths.html, page)
    return paths


def _write(path: Path, text: str) -> None:
    """Write a file in which what models wrote steers no terminal, nor the direction of text."""
    write_atomic(path, harmless(text).encode())


def environment() -> Environment:
    """The templates of the installed package; whatever is no markup of ours is escaped."""
    return Environment(
        loader=PackageLoader("prunebench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _title(sections: Sequence[Section]) -> str:
    if len(sections) == 1:
        return f"Structured pruning of {sections[0].board.model}"
    return f"Structured pruning of {counted(len(sections), 'model')}"


def _page(template: str, script: str = "", **values: object) -> str:
    """A page with its style, the script of that name, and a policy that lets no more than these work."""
    templates = environment()
    style = Markup(templates.get_template("page.css").render())
    code = Markup(templates.get_template(script).render()) if script else Markup("")
    about = {"style": style, "script": code, "policy": policy(style, code)}
    return templates.get_template(template).render(**about, **values)


def _section(
    store: Path, source: Source, board: Board, calibrations: Sequence[Calibration], pairer: Pairer
) -> Section:
    own = [one for one in calibrations if one.weights_id == board.weights_id]
    weights = read_weights(store, board.weights_id)
    squares = read_column_squares(store, board.weights_id)
    num_features = own[0].stats.feature_sum_LI.shape[1] if own else None
    if squares is not None:
        num_features = squares.shape[1]
    return Section(
        board=board,
        facts=_facts(board),
        tables=tuple(_headed(board, table, source) for table in board.tables),
        legend=tuple(legend(board)),
        curves=tuple(curves(board)),
        layer_map=layer_map(board, source.plans, num_features),
        similarities=tuple(similarity_maps(board, own, weights)),
        num_features=num_features,
        warnings=tuple(warnings_of(board, source)),
        margins=tuple(margins_of(board, source, own, weights)),
        plannings=tuple(plannings_of(board)),
        parts=parts_of(board, pairer, source, own, weights, squares),
    )


def _headed(board: Board, table: BudgetTable, source: Source) -> Headed:
    return Headed(
        heading=heading(board, table),
        table=table,
        same=tuple(" = ".join(names) for names in twins(table)),
        near=tuple(near_twins(table, source.plans)),
    )


def _facts(board: Board) -> str:
    """One sentence on what was asked and what came of it."""
    rows = [row for table in board.tables for row in table.rows if not row.label.dense]
    if not rows:
        return f"{counted(board.num_layers, 'layer')}; only the dense model was evaluated."
    planned = [row for row in rows if row.variant["plan_id"] is not None]
    plans = {row.variant["plan_id"] for row in planned}
    contenders = {row.contender for row in rows}
    holes = [row for row in planned if any(cell.value is None for cell in row.cells)]
    text = (
        f"{counted(len(contenders), 'row')} at {counted(len(board.tables), 'budget')}: {len(planned)} of "
        f"{counted(len(rows), 'request')} gave a plan; {counted(len(plans), 'distinct plan')}."
    )
    lacking = f" {counted(len(holes), 'plan')} {'lacks' if len(holes) == 1 else 'lack'} a result."
    return text + (lacking if holes else "")
