"""What stands beside the numbers: warnings, how rows were planned, runs, failures."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from prunebench.report.board import Board, Record
from prunebench.report.metrics import HOLE, counted
from prunebench.report.source import Source, parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """One warning, and whose it is."""

    text: str
    rows: tuple[str, ...]
    """Names of rows, each with its budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """How one row came about."""

    name: str
    budget: str
    plan_id: str
    calibration: str
    params: str
    chosen: str
    seconds: str
    peak_memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt: when, how it ended, and what it recorded about itself."""

    run_id: str
    started: str
    ended: str
    status: str
    facts: tuple[tuple[str, str], ...]
    config: str
    """The resolved experiment as YAML; empty where none was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One unit or item without a result, with its last error."""

    key: str
    attempts: int
    error: str
    traceback: str


def warnings_of(board: Board, source: Source) -> list[Warned]:
    """Warnings of methods and of evaluation, each text once."""
    found: dict[str, dict[str, list[int]]] = {}
    results: dict[str, dict[str, None]] = {}
    for key, text in {(row["variant_key"], row["warnings_json"]): None for row in source.results}:
        results.setdefault(key, {}).update(dict.fromkeys(parsed(text) or []))
    for table in board.tables:
        for row in table.rows:
            own = [
                *(parsed(row.variant["warnings_json"]) or []),
                *results.get(row.variant["variant_key"], {}),
            ]
            for text in dict.fromkeys(own):
                found.setdefault(text, {}).setdefault(row.label.name, []).append(row.variant["budget_layers"])
    return [
        Warned(text=text, rows=tuple(_name(name, budgets) for name, budgets in rows.items()))
        for text, rows in found.items()
    ]


def plannings_of(board: Board) -> list[Planning]:
    """Parameters, choices and costs of every pruned row."""
    return [
        Planning(
            name=row.label.name,
            budget=row.variant["budget"],
            plan_id=row.variant["plan_id"] or f"{HOLE} ({row.variant['status']})",
            calibration=_joined(row.variant["calibration"], (row.variant["calibration_id"] or "")[:8]),
            params=_settings(row.variant["params_json"]),
            chosen=_settings(row.variant["chosen_json"]),
            seconds=_measured(row.variant["seconds"], ".3f"),
            peak_memory=_measured(row.variant["peak_rss_mb"], ".0f"),
        )
        for table in board.tables
        for row in table.rows
        if not row.label.dense
    ]


def runs_of(source: Source) -> list[Run]:
    """Every attempt, the latest first."""
    runs = sorted(source.runs, key=lambda row: (row["started_at"], row["run_id"]), reverse=True)
    return [_run(row) for row in runs]


def failures_of(source: Source) -> tuple[list[Failure], int]:
    """What has no result yet, and the number of failed attempts that a later one mended."""
    open_rows: dict[str, list[Record]] = {}
    mended = 0
    for row in source.failures:
        if row["superseded"]:
            mended += 1
        else:
            open_rows.setdefault(row["key"], []).append(row)
    found = [
        Failure(
            key=key,
            attempts=len(rows),
            error=rows[-1]["error"] or "",
            traceback=rows[-1]["traceback"] or "",
        )
        for key, rows in open_rows.items()
    ]
    return found, mended


def _run(row: Record) -> Run:
    record: Mapping[str, Any] = parsed(row["record_json"]) or {}
    config = record.get("experiment")
    if isinstance(config, Mapping):
        # Where the file lay changes no number; it names folders of whoever ran it.
        config = {name: value for name, value in config.items() if name != "base"}
    facts = [(name, _fact(name, value)) for name, value in record.items() if name != "experiment"]
    facts.append(("computed", _computed(row)))
    return Run(
        run_id=row["run_id"],
        started=_time(row["started_at"]),
        ended=_time(row["ended_at"]),
        status=row["status"],
        facts=tuple((name, text) for name, text in facts if text),
        config="" if config is None else yaml.safe_dump(config, sort_keys=False, allow_unicode=True),
    )


def _computed(row: Record) -> str:
    if not row["units"]:
        return "nothing: whatever it asked for was there, or did not come back"
    return f"{counted(row['units'], 'unit')} in {row['seconds']:.1f} s of work by {row['workers']}"


def _fact(name: str, value: Any) -> str:  # noqa: ANN401 (whatever a run recorded)
    if name == "command" and isinstance(value, list):
        return shlex.join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _settings(text: str | None) -> str:
    return ", ".join(f"{name}={_plain(value)}" for name, value in (parsed(text) or {}).items())


def _plain(value: Any) -> str:  # noqa: ANN401 (one parameter)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _name(name: str, budgets: list[int]) -> str:
    """A row's name with its budgets; the dense model, in every table, has none."""
    return f"{name} at {', '.join(map(str, budgets))}" if any(budgets) else name


def _measured(value: float | None, form: str) -> str:
    return HOLE if value is None else format(value, form)


def _joined(*parts: str | None) -> str:
    return " ".join(part for part in parts if part) or HOLE


def _time(text: str | None) -> str:
    return HOLE if text is None else text[:19].replace("T", " ") + " UTC"
