"""Durable writes: whole files that appear at once or not at all, and append-only lines."""

import json
import os
import shutil
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from prunebench.errors import InputError, ResourceError

TEMPORARY = ".tmp-"
LOCK_SECONDS = 600.0
MEND = "delete it and run `prunebench run CONFIG` again"
"""The remedy for a damaged file: whatever a store holds can be made anew."""


def _refusal(path: Path, error: OSError) -> ResourceError:
    reason = error.strerror or str(error)
    try:
        free = f" ({shutil.disk_usage(path.parent).free:,} bytes are free in {path.parent})"
    except OSError:
        free = ""
    return ResourceError(
        f"cannot write {path}: {reason}{free}. Everything committed before is safe: "
        "free some space (or mend the disk) and run the same command to resume"
    )


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomic(path: Path, data: bytes) -> None:
    """Write `path` so that a reader, a crash or a full disk sees the whole file or none.

    Raises:
        ResourceError: the disk refused; what was begun is removed.
    """
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _refusal(path, error) from error


def parquet_bytes(table: pa.Table, *, compression: str = "zstd") -> bytes:
    """The table as Parquet; equal rows in equal order give equal bytes under equal library versions."""
    sink = pa.BufferOutputStream()
    whole = table.combine_chunks()
    pq.write_table(whole, sink, compression=compression, store_schema=False, write_statistics=False)
    return sink.getvalue().to_pybytes()


class LineFile:
    """An append-only file of JSON lines with one writer. Only its last line can be torn, by a crash."""

    def __init__(self, path: Path) -> None:
        """Create `path`, which must not exist."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            sync_folder(path.parent)
        except OSError as error:
            raise _refusal(path, error) from error
        self._size = 0

    def append(self, line: Mapping[str, Any], *, durable: bool = False) -> None:
        """Append one line; `durable` waits for the disk, else only a crash of the machine can lose it.

        Raises:
            ResourceError: the disk refused; the file is as it was before.
        """
        data = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
        try:
            try:
                _write_all(self._descriptor, data)
                if durable:
                    os.fdatasync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, self._size)
                raise
        except OSError as error:
            raise _refusal(self.path, error) from error
        self._size += len(data)

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_lines(path: Path, *names: str) -> Iterator[dict]:
    """The JSON lines of a file; a torn last line, which only a crash leaves, is skipped.

    Raises:
        InputError: another line is damaged, or lacks one of `names`.
    """
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        yield parsed_line(path, number, line, names)


def parsed_line(path: Path, number: int, line: bytes, names: Sequence[str]) -> dict[str, Any]:
    """One JSON line of a file, the `number`-th from 1.

    Raises:
        InputError: it is damaged, or lacks one of `names`.
    """
    try:
        data = json.loads(line)
        return {**data, **{name: data[name] for name in names}}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path} is damaged in line {number}: {MEND}") from error


@contextmanager
def store_lock(root: Path, *, wait: bool = True) -> Generator[bool]:
    """Hold the store's advisory lock; yields whether it was got (always True when waiting).

    Raises:
        ResourceError: another process held it for ten minutes, or the folder takes no lock.
    """
    lock = FileLock(root / ".lock", timeout=LOCK_SECONDS if wait else 0)
    try:
        lock.acquire()
    except Timeout as error:
        if not wait:
            yield False
            return
        raise ResourceError(
            f"another process has held the lock of {root} for {LOCK_SECONDS:.0f} s"
        ) from error
    except OSError as error:
        raise _refusal(root / ".lock", error) from error
    try:
        yield True
    finally:
        lock.release()


def temporaries(root: Path, *, idle_seconds: float = 0.0) -> list[Path]:
    """What dead writers left behind: temporary files not touched for `idle_seconds`, sorted."""
    before = time.time() - idle_seconds
    found = []
    for path in root.rglob(f"{TEMPORARY}*"):
        try:
            if path.stat().st_mtime <= before:
                found.append(path)
        except FileNotFoundError:
            continue
    return sorted(found)
