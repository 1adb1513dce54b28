"""Run logs, read: what each run was started with, and its events as one table.

A log has a line for every unit, so Arrow parses it: of 100,000 units in a tenth of a second, where Python's
own parser takes one.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from prunebench.errors import InputError
from prunebench.store.append import MEND, parsed_line, read_lines
from prunebench.store.layout import check_store

EVENTS = pa.schema(
    [
        ("event", pa.string()),
        ("exam_id", pa.string()),
        ("plan_ids", pa.list_(pa.string())),
        ("variant_key", pa.string()),
        ("unit_id", pa.string()),
        ("worker", pa.string()),
        ("host", pa.string()),
        ("seconds", pa.float64()),
        ("attempt", pa.int64()),
        ("at", pa.string()),
        ("status", pa.string()),
        ("ended_at", pa.string()),
    ]
)
"""What readers take from the lines of `store.runs.RunLog`; null where a line has no such name."""
NEEDED = {
    "exam": ("exam_id",),
    "variant": ("variant_key",),
    "unit": ("unit_id", "worker", "host", "seconds", "attempt", "at"),
    "end": ("status",),
}
"""What the lines of an event have to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvents:
    """The log of one attempt."""

    run_id: str
    started_at: str
    record: dict[str, Any]
    """What it was started with."""
    events: pa.Table
    """Of EVENTS: the lines after the first, in order."""

    def of(self, event: str, *names: str) -> Iterator[tuple[Any, ...]]:
        """The values of some names in every event of a kind, in order."""
        rows = self.events.filter(pc.field("event") == event)
        return zip(*(rows[name].to_pylist() for name in names), strict=True)


def run_events(root: Path) -> Iterator[RunEvents]:
    """The log of each run that got as far as its start record, by run id, ascending.

    Raises:
        InputError: not a store, or a damaged log, named.
    """
    for path in sorted((check_store(root) / "runs").glob("[!.]*.jsonl")):
        if (run := read_run(path)) is not None:
            yield run


def read_run(path: Path) -> RunEvents | None:
    """One log; a torn last line, which only a crash leaves, is skipped. None without a start record.

    Raises:
        InputError: another line is damaged, named.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    first, end, rest = data[: data.rfind(b"\n") + 1].partition(b"\n")
    if not end:
        return None
    start = parsed_line(path, 1, first, ("event", "started_at", "record"))
    events = _parsed(path, rest)
    _check(path, start, events)
    return RunEvents(
        run_id=path.stem,
        started_at=start["started_at"],
        record=start["record"],
        events=events,
    )


def _parsed(path: Path, lines: bytes) -> pa.Table:
    if not lines:
        return EVENTS.empty_table()
    number = lines.count(b"\n")
    try:
        # Arrow takes any bytes for text.
        lines.decode()
    except UnicodeDecodeError:
        _name_damage(path)
    # Arrow's reader ends the process where the first line is `null`, so it sees objects alone.
    if lines.startswith(b"{") + lines.count(b"\n{") != number:
        _name_damage(path)
    parse = arrow_json.ParseOptions(explicit_schema=EVENTS, unexpected_field_behavior="ignore")
    # A line has to fit into a block, and one that lists plans has no limit.
    read = arrow_json.ReadOptions(block_size=len(lines))
    try:
        table = arrow_json.read_json(pa.BufferReader(lines), read_options=read, parse_options=parse)
    except pa.ArrowInvalid as error:
        _name_damage(path)
        raise InputError(f"{path} is damaged ({error}): {MEND}") from error
    if table["event"].null_count or table.num_rows != number:
        _name_damage(path)
    return table.select(EVENTS.names)


def _check(path: Path, start: Mapping[str, Any], events: pa.Table) -> None:
    """Refuse lines that lack what readers take from them, and times that are none.

    Raises:
        InputError: with the line.
    """
    if not isinstance(start["record"], dict) or not _is_time(start["started_at"]):
        raise InputError(f"{path} is damaged in line 1: {MEND}")
    for event, names in NEEDED.items():
        own = events.filter(pc.field("event") == event)
        for name in names:
            if own[name].null_count:
                pairs = zip(events["event"].to_pylist(), events[name].to_pylist(), strict=True)
                line = list(pairs).index((event, None)) + 2
                raise InputError(f"{path} is damaged in line {line}, which has no {name}: {MEND}")
    try:
        times_of(events["at"].to_pylist())
    except ValueError as error:
        raise InputError(f"{path} is damaged ({str(error).partition('.')[0]}): {MEND}") from error


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and len(times_of([text])) == 1
    except ValueError:
        return False


def times_of(texts: Sequence[str | None]) -> "pd.Series[pd.Timestamp]":
    """Times of a log; one without a zone counts as UTC.

    Raises:
        ValueError: one is no ISO 8601 time.
    """
    return pd.to_datetime(pd.Series(list(texts), dtype="object"), utc=True, format="ISO8601")


def _name_damage(path: Path) -> None:
    """Let the reader of single lines find and name the one that is damaged."""
    deque(read_lines(path, "event"), maxlen=0)
