"""Which row to choose at which budget, and how sure that is: what the page says first of a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prunebench.report.board import Board, Cell, Row
from prunebench.report.metric_test import detectable_text
from prunebench.report.metrics import HOLE, Metric, counted
from prunebench.report.papers import PaperTable
from prunebench.report.standing import quality_places

MOST_LINES = 6
"""Tasks that get a line of their own; beyond it their averages and the perplexities speak for them."""
MOST_NAMES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one task, or the average of one recipe, says at one budget."""

    what: str
    best: str
    value: str
    error: str
    retained: str
    alike: str
    """Rows that were not shown to be worse, in words."""
    worse: str
    """How many were."""
    detectable: str
    documents: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One budget."""

    budget_layers: int
    lines: tuple[Line, ...]
    safe: tuple[str, ...]
    """Rows that no line shows to be worse than its best; empty where no line can tell."""
    sentence: str
    price: str
    """What the row that the sentence names first costs; empty where it names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One column of one table of one budget."""

    what: str
    plain: str
    """The same without marks, for sentences."""
    metric: Metric
    place: int
    dense: Row | None
    rows: Sequence[Row]
    detectable: float | None
    mute: bool
    documents: int | None


def verdicts(board: Board, papers: Sequence[PaperTable]) -> list[Verdict]:
    """One for each budget at which something was pruned."""
    found = []
    for number, table in enumerate(board.tables):
        if not table.budget_layers:
            continue
        sources = [source for source in _sources(board, papers, number) if _known(source)]
        safe = _safe([source for source in sources if not source.mute])
        first, sentence = _sentence(sources, safe)
        found.append(
            Verdict(
                budget_layers=table.budget_layers,
                lines=tuple(map(_line, sources)),
                safe=tuple(safe),
                sentence=sentence,
                price=_price(sources, first) if first else "",
            )
        )
    return found


def _sources(board: Board, papers: Sequence[PaperTable], number: int) -> Iterator[_Source]:
    table = board.tables[number]
    for paper in papers:
        if paper.complete and not paper.recipe.borrowed:
            block = paper.blocks[number]
            place = len(paper.columns)
            what = f"average of {counted(len(paper.columns), 'task')} ({paper.recipe.name})"
            yield _Source(
                what=what,
                plain=what,
                dense=_dense(row for one in paper.blocks for row in one.rows),
                metric=paper.recipe.average_metric,
                place=place,
                rows=block.rows,
                detectable=block.tests.detectable[place],
                mute=place in block.tests.mute,
                documents=sum(column.num_examples or 0 for column in paper.columns),
            )
    places = quality_places(board)
    if len(places) > MOST_LINES:
        places = [place for place in places if not board.columns[place].metric.averages][:MOST_LINES]
    for place in places:
        column = board.columns[place]
        yield _Source(
            what=f"{column.name}: {column.metric.title}",
            plain=f"{column.name} {column.metric.name}",
            dense=_dense(row for one in board.tables for row in one.rows),
            metric=column.metric,
            place=place,
            rows=table.rows,
            detectable=table.detectable[place] if table.detectable else None,
            mute=place in table.mute,
            documents=column.num_examples,
        )


def _dense(rows: Iterator[Row]) -> Row | None:
    return next((row for row in rows if row.label.dense), None)


def _pruned(source: _Source) -> list[Row]:
    return [row for row in source.rows if not row.label.dense]


def _known(source: _Source) -> bool:
    return any(row.all_cells[source.place].value is not None for row in _pruned(source))


def _line(source: _Source) -> Line:
    rows = _pruned(source)
    cells = [row.all_cells[source.place] for row in rows]
    best = [row for row, cell in zip(rows, cells, strict=True) if cell.best]
    if not best and len([cell for cell in cells if cell.value is not None]) == 1:
        best = [row for row, cell in zip(rows, cells, strict=True) if cell.value is not None]
    told = best[0].all_cells[source.place] if best else None
    alike = [row.label.name for row, cell in zip(rows, cells, strict=True) if cell.tie]
    return Line(
        what=source.what,
        best=names([row.label.name for row in best]) or HOLE,
        value=told.text if told else HOLE,
        error=told.error if told else "",
        retained=told.retained_text if told else "",
        alike="too few documents to tell" if source.mute else names(alike) or "no other row",
        worse=HOLE if source.mute else str(len(_worse_cells(source))),
        detectable=detectable_text(source.metric, source.detectable),
        documents=HOLE if source.documents is None else str(source.documents),
    )


def _worse_cells(source: _Source) -> list[Cell]:
    """The cells that were shown to be worse than the best; none where documents are too few to show it."""
    if source.mute:
        return []
    cells = [row.all_cells[source.place] for row in _pruned(source)]
    return [cell for cell in cells if cell.holm is not None and not cell.tie and not cell.best]


def _safe(sources: Sequence[_Source]) -> list[str]:
    """Names of rows that are the best or not shown worse wherever documents can tell."""
    if not sources:
        return []
    by_line = [
        {row.label.name for row in _pruned(source) if (cell := row.all_cells[source.place]).best or cell.tie}
        for source in sources
    ]
    return [row.label.name for row in _pruned(sources[0]) if all(row.label.name in one for one in by_line)]


def _sentence(sources: Sequence[_Source], safe: Sequence[str]) -> tuple[str, str]:
    """The row to look at first, empty where there is nothing to choose, and the sentence."""
    if not sources:
        return "", "nothing has a value yet."
    wins = _wins(sources)
    if not wins:
        return "", "only one row has a value: there is nothing to choose."
    measures, most = counted(len(sources), "measure"), max(wins.values())
    leaders = [name for name, count in wins.items() if count == most]
    if not any(map(_worse_cells, sources)):
        few = " (the documents are too few)" if all(source.mute for source in sources) else ""
        return leaders[0], (
            f"no measure shows a row to be worse than its best{few}: "
            f"choose by what else counts. {names(leaders)} {_best(most, len(sources), len(leaders))}."
        )
    rows = _pruned(sources[0])
    failing = [name for name in _alike(rows, leaders) if name not in safe]
    but = "".join(
        f" {name} {_best(most, len(sources))}, but shown to be worse by {_worse(sources, name)}."
        for name in failing
    )
    if silent := [source.plain for source in sources if not _worse_cells(source)]:
        but += f" Undecided by {', '.join(silent)}: no row is shown to be worse than the best there."
    if not safe:
        return leaders[0], f"no row keeps up with the best on all of {measures}.{but}"
    told = _alike(rows, sorted(safe, key=lambda name: -wins.get(name, 0)))
    first = next(iter(told))
    best = _best(wins.get(first, 0), len(sources))
    if len(told) == 1:
        return first, (
            f"choose {told[first]}: no measure shows it to be worse than its best, as some do of every "
            f"other plan. It {best}.{but}"
        )
    return first, (
        f"choose one of {names(list(told.values()))}: "
        f"no measure shows them to be worse than its best. {first} {best}.{but}"
    )


def _wins(sources: Sequence[_Source]) -> dict[str, int]:
    """How many measures each row is the best on, of those that are on any."""
    found: dict[str, int] = {}
    for source in sources:
        for row in _pruned(source):
            if row.all_cells[source.place].best:
                found[row.label.name] = found.get(row.label.name, 0) + 1
    return found


def _best(wins: int, measures: int, rows: int = 1) -> str:
    if measures == 1:
        return "has the best value" if rows == 1 else "have the best value"
    return f"{'is' if rows == 1 else 'are each'} best on {wins or 'none'} of {measures} measures"


def _price(sources: Sequence[_Source], name: str) -> str:
    """What is left of the model and of each measure under one row."""
    row = next(row for row in _pruned(sources[0]) if row.label.name == name)
    dense = next((source.dense for source in sources if source.dense), None)
    left = f"{dense.params_text} → {row.params_text} parameters" if dense else f"{row.params_text} parameters"
    told = [f"{left} ({row.removed_text} % of those in projections removed)"]
    for source in sources:
        own = next(one for one in source.rows if one.label.name == name)
        cells = [one.all_cells[source.place] for one in (source.dense, own) if one]
        shown = [f"{cell.text} ±{cell.error}" if cell.error else cell.text for cell in cells]
        told.append(f"{source.plain} {' → '.join(shown)}{' %' if source.metric.percent else ''}")
    return f"{name}: {'; '.join(told)}."


def _alike(rows: Sequence[Row], wanted: Sequence[str]) -> dict[str, str]:
    """The first row of each plan among the wanted, in their order, and its name with those of its twins."""
    first = {row.label.name: row.same_as or row.label.name for row in rows}
    twins: dict[str, list[str]] = {}
    for name in wanted:
        twins.setdefault(first[name], []).append(name)
    return {
        own[0]: f"{own[0]} (the same plan as {names(own[1:])})" if own[1:] else own[0]
        for own in twins.values()
    }


def _worse(sources: Sequence[_Source], name: str) -> str:
    """The measures that show a row to be worse than their best."""
    shown = [
        source.plain
        for source in sources
        for row in _pruned(source)
        if row.label.name == name and not source.mute
        if not ((cell := row.all_cells[source.place]).best or cell.tie)
    ]
    return ", ".join(shown)


def names(of: Sequence[str]) -> str:
    """Names with commas, cut where there are many."""
    unique = list(dict.fromkeys(of))
    more = f" and {len(unique) - MOST_NAMES} more" if len(unique) > MOST_NAMES else ""
    return ", ".join(unique[:MOST_NAMES]) + more
