"""A file of traces: one JSON line each, and until all are there one file each beside it.

A trace is known by its key. Lines hold at least `key`; what else they hold is the writer's.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from prunebench.core.fingerprint import canonical_json
from prunebench.errors import InputError
from prunebench.store.append import write_atomic


class TraceFile:
    """The traces of one command; killing it at any time loses none that was added."""

    def __init__(self, path: Path) -> None:
        """Touches nothing."""
        self.path = path.absolute()
        self.parts = self.path.with_name(f"{self.path.name}.parts")
        """The folder of traces that are not in the file yet, of whatever settings."""

    def there(self, keys: Collection[str]) -> dict[str, dict[str, Any]]:
        """Those of the traces `keys` that were written before, by key.

        Raises:
            InputError: the file holds others, or something is no trace.
        """
        found = {}
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                trace = _read(line, f"line {number} of {self.path}")
                found[trace["key"]] = trace
        if others := len(found.keys() - set(keys)):
            raise InputError(
                f"{self.path} holds {others} traces of another model, engine or sampling, or of other "
                "problems: it is not overwritten; choose another --out"
            )
        for key in keys:
            if (part := self._part(key)).is_file():
                found[key] = _read(part.read_text(encoding="utf-8"), str(part))
        return found

    def add(self, trace: Mapping[str, Any]) -> None:
        """Keep one trace.

        Raises:
            ResourceError: the disk refused.
        """
        self.parts.mkdir(parents=True, exist_ok=True)
        write_atomic(self._part(trace["key"]), canonical_json(trace).encode())

    def fold(self, traces: Sequence[Mapping[str, Any]]) -> None:
        """Write the file with all traces, in order; those that wait for another command stay.

        Raises:
            ResourceError: the disk refused.
        """
        data = "".join(f"{canonical_json(trace)}\n" for trace in traces).encode()
        if not self.path.is_file() or self.path.read_bytes() != data:
            write_atomic(self.path, data)
        for trace in traces:
            self._part(trace["key"]).unlink(missing_ok=True)
        if self.parts.is_dir() and not any(self.parts.iterdir()):
            self.parts.rmdir()

    def _part(self, key: str) -> Path:
        return self.parts / f"{key}.json"


def _read(text: str, where: str) -> dict[str, Any]:
    try:
        trace = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON ({error.msg}): delete it or choose another --out") from error
    if not isinstance(trace, dict) or not isinstance(trace.get("key"), str):
        raise InputError(f"{where} is no trace of `prunebench traces`: choose another --out")
    return trace
