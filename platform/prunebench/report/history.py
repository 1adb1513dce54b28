"""How the numbers came about: runs, in what they differ, and what was asked and has no result."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.report.board import Board, Record, Row
from prunebench.report.metrics import counted
from prunebench.report.notes import Failure, Run, failures_of, runs_of
from prunebench.report.source import Source, parsed

APART = ("command", "kind", "experiment.base")
"""What runs may differ in without a word: the configuration says what was asked, wherever its file lay."""
LONGEST = 160
"""Letters of a value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact that is not the same in all runs."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """(value, runs)."""
    keyed: bool
    """Whether it is a setting: these are in the keys of what they change. Versions and hardware are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """One row that lacks results, and what of it."""

    name: str
    budget: str
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything of one store."""

    runs: tuple[Run, ...]
    differences: tuple[Difference, ...]
    failures: tuple[Failure, ...]
    mended: int
    unfinished: tuple[Unfinished, ...]


def history_of(source: Source, boards: Iterable[Board]) -> History:
    """Runs, what they differ in, failures that remain, and rows that lack results."""
    failures, mended = failures_of(source)
    return History(
        runs=tuple(runs_of(source)),
        differences=tuple(differences_of(source)),
        failures=tuple(failures),
        mended=mended,
        unfinished=tuple(one for board in boards for one in unfinished_of(board, source)),
    )


def differences_of(source: Source) -> Iterator[Difference]:
    """Every fact of the records that is not the same in all runs; versions and hardware first."""
    records = {row["run_id"]: dict(_leaves(parsed(row["record_json"]) or {})) for row in source.runs}
    names = dict.fromkeys(name for record in records.values() for name in record)
    found = []
    for name in names:
        if name in APART:
            continue
        values: dict[str, list[str]] = {}
        for run, record in records.items():
            values.setdefault(record.get(name, "–"), []).append(run)
        if len(values) > 1:
            told = tuple((_cut(value), tuple(runs)) for value, runs in values.items())
            found.append(Difference(name=name, values=told, keyed=name.startswith("experiment.")))
    yield from sorted(found, key=lambda one: one.keyed)


def _leaves(value: Mapping[str, Json], before: str = "") -> Iterator[tuple[str, str]]:
    """Every setting by its path; a list is one setting."""
    for name, one in value.items():
        if isinstance(one, Mapping) and one:
            yield from _leaves(one, f"{before}{name}.")
        else:
            yield f"{before}{name}", one if isinstance(one, str) else canonical_json(one)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def unfinished_of(board: Board, source: Source) -> Iterator[Unfinished]:
    """Rows without a plan, with the reason, and rows whose tasks are not whole."""
    rows = {row.variant["variant_key"]: row for table in board.tables for row in table.rows}
    for row in rows.values():
        if row.variant["status"] != "ok":
            yield _unfinished(row, "no plan", _why(row.variant))
    exams = {
        (result["variant_key"], result["exam_id"]): result
        for result in source.results
        if result["status"] == "incomplete" and result["variant_key"] in rows
    }
    for (key, _), result in exams.items():
        ranges = counted(result["units_total"], "document range")
        what = f"{result['task']}: {result['units_done']} of {ranges} done"
        yield _unfinished(rows[key], what, result["error"] or "not computed yet")


def _unfinished(row: Row, what: str, why: str) -> Unfinished:
    return Unfinished(name=row.label.name, budget=row.variant["budget"], what=what, why=why)


def _why(variant: Record) -> str:
    return variant["status"] + (f": {variant['error']}" if variant["error"] else "")
