"""Progress of long work: a bar on a terminal, a line every 30 seconds elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LINE_EVERY_S = 30.0


class Progress(Protocol):
    """What a job reports while it works."""

    def start(self, stage: str, total: int) -> None:
        """A stage of `total` steps begins."""
        ...

    def advance(self, *, failed: bool = False) -> None:
        """One step is over."""
        ...

    def finish(self) -> None:
        """The stage is over."""
        ...


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

    def __init__(self) -> None:
        self._stage, self._total, self._done, self._failed = "", 0, 0, 0
        self._started = self._printed = 0.0

    def start(self, stage: str, total: int) -> None:
        """Print that the stage begins."""
        self._stage, self._total, self._done, self._failed = stage, total, 0, 0
        self._started = self._printed = time.monotonic()
        self._print()

    def advance(self, *, failed: bool = False) -> None:
        """Count a step; print when the last line is old."""
        self._done += 1
        self._failed += failed
        if time.monotonic() - self._printed >= LINE_EVERY_S:
            self._print()

    def finish(self) -> None:
        """Print the final count."""
        self._print()

    def _print(self) -> None:
        self._printed = time.monotonic()
        elapsed = self._printed - self._started
        rest = f", about {elapsed / self._done * (self._total - self._done):.0f} s left" if self._done else ""
        failed = f", {self._failed} failed" if self._failed else ""
        line = f"{self._stage}: {self._done}/{self._total}{failed}, {elapsed:.0f} s{rest}"
        sys.stderr.write(line + "\n")
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
    elif sys.stderr.isatty():
        bar = Bar()
        try:
            yield bar
        finally:
            bar.stop()
    else:
        yield Lines()
