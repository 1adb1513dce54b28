"""Progress of long work: a bar on a terminal, a line every 30 seconds elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LINE_EVERY_S = 30.0


class Progress(Protocol):
    """What a job reports while it works."""

    def start(self, stage: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def advance(self, *, failed: bool = False) -> None:
        """One step is over."""

    def finish(self) -> None:
        """The stage is over."""


class Silent:
    """Reports nothing."""

    def start(self, stage: str, total: int) -> None:
        """Ignore the stage."""

    def advance(self, *, failed: bool = False) -> None:
        """Ignore the step."""

    def finish(self) -> None:
        """Ignore the end."""


class Lines:
    """Plain lines on standard error: at the start and end of a stage, and every 30 seconds between."""

    def __init__(self, every_s: float = LINE_EVERY_S) -> None:
        self._stage, self._total, self._done, self._failed = "", 0, 0, 0
        self._started = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        # A thread, because one step may take longer than the time between lines.
        threading.Thread(target=self._tick, args=(every_s,), daemon=True).start()

    def start(self, stage: str, total: int) -> None:
        """Print that the stage begins."""
        with self._lock:
            self._stage, self._total, self._done, self._failed = stage, total, 0, 0
            self._started = time.monotonic()
            self._print()

    def advance(self, *, failed: bool = False) -> None:
        """Count a step."""
        with self._lock:
            self._done += 1
            self._failed += failed

    def finish(self) -> None:
        """Print the final count."""
        with self._lock:
            self._print()
            self._stage = ""

    def stop(self) -> None:
        """Print no more."""
        self._stopped.set()

    def _tick(self, every_s: float) -> None:
        while not self._stopped.wait(every_s):
            with self._lock:
                if self._stage:
                    self._print()

    def _print(self) -> None:
        elapsed = time.monotonic() - self._started
        left = elapsed / self._done * (self._total - self._done) if self._done else 0.0
        rest = f", about {left:.0f} s left" if left else ""
        failed = f", {self._failed} failed" if self._failed else ""
        sys.stderr.write(f"{self._stage}: {self._done}/{self._total}{failed}, {elapsed:.0f} s{rest}\n")
        sys.stderr.flush()


class Bar:
    """A bar per stage on a terminal."""

    def __init__(self) -> None:
        # Imported here because lines and silence do without it.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._failed = 0
        self._bars = RichProgress(
            TextColumn("{task.description:<11}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bars.add_task("", visible=False, failed="")
        self._bars.start()

    def start(self, stage: str, total: int) -> None:
        """Add the stage's bar."""
        self._failed = 0
        self._task = self._bars.add_task(stage, total=total, failed="")

    def advance(self, *, failed: bool = False) -> None:
        """Move the bar."""
        self._failed += failed
        text = f"[red]{self._failed} failed[/red]" if self._failed else ""
        self._bars.update(self._task, advance=1, failed=text)

    def finish(self) -> None:
        """Fill the bar."""
        self._bars.refresh()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._bars.stop()


@contextmanager
def progress_for(*, quiet: bool) -> Iterator[Progress]:
    """The progress that fits standard error: silence, a bar on a terminal, or lines."""
    if quiet:
        yield Silent()
        return
    shown = Bar() if sys.stderr.isatty() else Lines()
    try:
        yield shown
    finally:
        shown.stop()
