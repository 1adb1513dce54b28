"""Run logs, read: what each run was started with, and its events as one table.

A log has a line for every unit, so Arrow parses it: of 100,000 units in a tenth of a second, where Python's
own parser takes one.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    data = path.read_bytes()
    first, end, rest = data[: data.rfind(b"\n") + 1].partition(b"\n")
    if not end:
        return None
    start = parsed_line(path, 1, first, ("event", "started_at", "record"))
    return RunEvents(
        run_id=path.stem,
        started_at=start["started_at"],
        record=start["record"],
        events=_parsed(path, rest),
    )


def _parsed(path: Path, lines: bytes) -> pa.Table:
    if not lines:
        return EVENTS.empty_table()
    number = lines.count(b"\n")
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


def _name_damage(path: Path) -> None:
    """Let the reader of single lines find and name the one that is damaged."""
    deque(read_lines(path, "event"), maxlen=0)
