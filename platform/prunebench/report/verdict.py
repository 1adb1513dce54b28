"""Which row to choose at which budget, and how sure that is: what the page says first of a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prunebench.report.board import Board, Row
from prunebench.report.measures import Measure, measures
from prunebench.report.metric_test import detectable_text
from prunebench.report.metrics import HOLE
from prunebench.report.papers import PaperTable

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


def verdicts(board: Board, papers: Sequence[PaperTable]) -> list[Verdict]:
    """One for each budget at which something was pruned."""
    found = []
    for number, table in enumerate(board.tables):
        if not table.budget_layers:
            continue
        sources = [source for source in measures(board, papers, number) if source.known]
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


def _line(source: Measure) -> Line:
    rows = source.pruned
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
        worse=HOLE if source.mute else str(len(source.worse)),
        detectable=detectable_text(source.metric, source.detectable),
        documents=HOLE if source.documents is None else str(source.documents),
    )


def _safe(sources: Sequence[Measure]) -> list[str]:
    """Names of rows that are the best or not shown worse wherever documents can tell."""
    if not sources:
        return []
    by_line = [
        {row.label.name for row in source.pruned if (cell := row.all_cells[source.place]).best or cell.tie}
        for source in sources
    ]
    return [row.label.name for row in sources[0].pruned if all(row.label.name in one for one in by_line)]


def _sentence(sources: Sequence[Measure], safe: Sequence[str]) -> tuple[str, str]:
    """The row to look at first, empty where there is nothing to choose, and the sentence."""
    if not sources:
        return "", "nothing has a value yet."
    wins = _wins(sources)
    if not wins:
        return "", "only one row has a value: there is nothing to choose."
    most = max(wins.values())
    leaders = [name for name, count in wins.items() if count == most]
    if not any(source.worse for source in sources):
        few = " (the documents are too few)" if all(source.mute for source in sources) else ""
        return leaders[0], (
            f"no measure shows a row to be worse than its best{few}: "
            f"choose by what else counts. {names(leaders)} {_best(most, len(sources), len(leaders))}."
        )
    rows = sources[0].pruned
    failing = [name for name in _alike(rows, leaders) if name not in safe]
    but = "".join(
        f" {name} {_best(most, len(sources))}, but shown to be worse by {_worse(sources, name)}."
        for name in failing
    )
    if silent := [source.plain for source in sources if not source.worse]:
        but += f" Undecided by {', '.join(silent)}: no row is shown to be worse than the best there."
    if unjudged := _unjudged(sources):
        but += f" Without a value of each measure, and so not judged: {names(unjudged)}."
    if not safe:
        return leaders[0], f"no row keeps up with the best on all of {len(sources)} measures.{but}"
    told = _alike(rows, sorted(safe, key=lambda name: -wins.get(name, 0)))
    first = next(iter(told))
    best = _best(wins.get(first, 0), len(sources))
    if len(told) == 1:
        others = "every other plan that has all values" if unjudged else "every other plan"
        return first, (
            f"choose {told[first]}: no measure shows it to be worse than its best, as some do of {others}. "
            f"It {best}.{but}"
        )
    return first, (
        f"choose one of {names(list(told.values()))}: "
        f"no measure shows them to be worse than its best. {first} {best}.{but}"
    )


def _wins(sources: Sequence[Measure]) -> dict[str, int]:
    """How many measures each row is the best on, of those that are on any."""
    found: dict[str, int] = {}
    for source in sources:
        for row in source.pruned:
            if row.all_cells[source.place].best:
                found[row.label.name] = found.get(row.label.name, 0) + 1
    return found


def _unjudged(sources: Sequence[Measure]) -> list[str]:
    """Names of rows that lack a value of some measure."""
    found: dict[str, None] = {}
    for source in sources:
        for row in source.pruned:
            value = row.all_cells[source.place].value
            if value is None or math.isnan(value):
                found[row.label.name] = None
    return list(found)


def _best(wins: int, of: int, rows: int = 1) -> str:
    if of == 1:
        return "has the best value" if rows == 1 else "have the best value"
    return f"{'is' if rows == 1 else 'are each'} best on {wins or 'none'} of {of} measures"


def _price(sources: Sequence[Measure], name: str) -> str:
    """What is left of the model and of each measure under one row."""
    row = next(row for row in sources[0].pruned if row.label.name == name)
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


def _worse(sources: Sequence[Measure], name: str) -> str:
    """The measures that show a row to be worse than their best."""
    shown = [
        source.plain
        for source in sources
        for row in source.pruned
        if row.label.name == name and not source.mute
        if not ((cell := row.all_cells[source.place]).best or cell.tie)
    ]
    return ", ".join(shown)


def names(of: Sequence[str]) -> str:
    """Names with commas, cut where there are many."""
    unique = list(dict.fromkeys(of))
    more = f" and {len(unique) - MOST_NAMES} more" if len(unique) > MOST_NAMES else ""
    return ", ".join(unique[:MOST_NAMES]) + more
