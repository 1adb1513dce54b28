"""Progress of long work: a bar on a terminal, a line every 30 seconds elsewhere."""

import collections
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LINE_EVERY_S = 30.0


class Progress(Protocol):
    """What a job reports while it works."""

    def start(self, stage: str, total: int, *, done: int = 0) -> None:
        """A stage of `total` steps begins, `done` of which earlier runs left in the store."""

    def advance(self, *, failed: bool = False) -> None:
        """One step is over."""

    def finish(self) -> None:
        """The stage is over."""


class Silent:
    """Reports nothing."""

    def start(self, stage: str, total: int, *, done: int = 0) -> None:
        """Ignore the stage."""

    def advance(self, *, failed: bool = False) -> None:
        """Ignore the step."""

    def finish(self) -> None:
        """Ignore the end."""


class Pace:
    """How fast steps come, over the last of them: the first waits for models to load."""

    def __init__(self, steps: int = 200) -> None:
        self._times: collections.deque[float] = collections.deque(maxlen=steps + 1)

    def step(self) -> None:
        """One step is over."""
        self._times.append(time.monotonic())

    def per_second(self) -> float | None:
        """Steps a second; None before the second."""
        if len(self._times) < 2:
            return None
        # Up to now and not to the last step: where nothing comes any more, the pace falls.
        return (len(self._times) - 1) / max(time.monotonic() - self._times[0], 1e-6)

    def told(self, left: int) -> str:
        """The pace and what it promises, in words; empty before it is known."""
        pace = self.per_second()
        if pace is None:
            return ""
        shown = f"{pace:.1f}/s" if pace >= 1 else f"{60 * pace:.1f}/min"
        return f"{shown}, about {_duration(left / pace)} left" if left else shown


class Lines:
    """Plain lines on standard error: at the start and end of a stage, and every 30 seconds between."""

    def __init__(self, every_s: float = LINE_EVERY_S) -> None:
        self._stage, self._total, self._done, self._failed = "", 0, 0, 0
        self._pace, self._started = Pace(), 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        # A thread, because one step may take longer than the time between lines.
        threading.Thread(target=self._tick, args=(every_s,), daemon=True).start()

    def start(self, stage: str, total: int, *, done: int = 0) -> None:
        """Print that the stage begins."""
        with self._lock:
            self._stage, self._total, self._done, self._failed = stage, total, done, 0
            self._pace, self._started = Pace(), time.monotonic()
            self._print(f", resumed: {done} done before" if done else "")

    def advance(self, *, failed: bool = False) -> None:
        """Count a step."""
        with self._lock:
            self._done += 1
            self._failed += failed
            self._pace.step()

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

    def _print(self, more: str = "") -> None:
        left = self._total - self._done
        pace = self._pace.told(left)
        parts = [f"{self._stage}: {self._done}/{self._total} done", f"{left} to do", f"{self._failed} failed"]
        parts += [_duration(time.monotonic() - self._started), *([pace] if pace else [])]
        sys.stderr.write(", ".join(parts) + more + "\n")
        sys.stderr.flush()


class Bar:
    """A bar per stage on a terminal."""

    def __init__(self) -> None:
        # Imported here because lines and silence do without it.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._done = self._total = self._failed = 0
        self._pace = Pace()
        self._bars = RichProgress(
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[pace]}"),
            console=Console(stderr=True),
        )
        self._task = self._bars.add_task("", visible=False, failed="", pace="")
        self._bars.start()

    def start(self, stage: str, total: int, *, done: int = 0) -> None:
        """Add the stage's bar."""
        self._done, self._total, self._failed = done, total, 0
        self._pace = Pace()
        told = f"resumed at {done}" if done else ""
        self._task = self._bars.add_task(stage, total=total, completed=done, failed="0 failed", pace=told)

    def advance(self, *, failed: bool = False) -> None:
        """Move the bar."""
        self._done += 1
        self._failed += failed
        self._pace.step()
        text = f"[red]{self._failed} failed[/red]" if self._failed else "0 failed"
        told = self._pace.told(self._total - self._done)
        self._bars.update(self._task, completed=self._done, failed=text, pace=told)

    def finish(self) -> None:
        """Fill the bar."""
        self._bars.refresh()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._bars.stop()


def _duration(seconds: float) -> str:
    """Seconds, or minutes and hours where there are many."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


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
