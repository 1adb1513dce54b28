"""What a run tells Prometheus through Ray: each node's metrics port serves it, as `ray_` and the name."""

from typing import Final

from ray.util.metrics import Counter, Gauge, Histogram

from prunebench.core.unit import Failed, Generated, Message, UnitDone

SECONDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Bounds of the histogram of seconds a unit."""
DESCRIBED: Final = {
    "prunebench_units": "Units that came back, by status: done or failed",
    "prunebench_unit_seconds": "Seconds of a worker for one unit",
    "prunebench_generated_tokens": "Tokens that models wrote",
    "prunebench_items_waiting": "Work items that no worker has",
    "prunebench_workers": "Workers that have loaded what they need",
    "prunebench_workers_lost": "Workers that died with work in hand",
}


class RunMetrics:
    """The metrics of one driver."""

    def __init__(self) -> None:
        """Register them; Ray has to be connected."""
        told = DESCRIBED
        self._units = Counter("prunebench_units", told["prunebench_units"], tag_keys=("status",))
        self._seconds = Histogram(
            "prunebench_unit_seconds", told["prunebench_unit_seconds"], boundaries=list(SECONDS)
        )
        self._tokens = Counter("prunebench_generated_tokens", told["prunebench_generated_tokens"])
        self._waiting = Gauge("prunebench_items_waiting", told["prunebench_items_waiting"])
        self._workers = Gauge("prunebench_workers", told["prunebench_workers"])
        self._lost = Counter("prunebench_workers_lost", told["prunebench_workers_lost"])

    def message(self, message: Message) -> None:
        """Something arrived."""
        match message:
            case UnitDone(seconds=seconds):
                self._units.inc(1, {"status": "done"})
                self._seconds.observe(seconds)
            case Failed(keys=keys):
                self._units.inc(len(keys), {"status": "failed"})
            case Generated(generation=generation) if generation.num_tokens:
                self._tokens.inc(generation.num_tokens)

    def lost(self) -> None:
        """A worker died."""
        self._lost.inc()

    def state(self, *, waiting: int, workers: int) -> None:
        """How much is waiting, and for how many."""
        self._waiting.set(waiting)
        self._workers.set(workers)
