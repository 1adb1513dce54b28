"""What runs asked of which variants, and how each unit came back to them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from prunebench.store.run_events import run_events


class Came(NamedTuple):
    """A unit that came back to a run; the later one is the greater."""

    at: str
    run_id: str
    seconds: float


@dataclass(slots=True)
class Asked:
    """What the runs say: who asked what, and how each unit came about."""

    runs_of_exam: dict[str, dict[str, frozenset[str] | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Exam id -> run id -> the plans that the run asked it of; None for all."""
    runs_of_variant: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Variant key -> the runs that asked about it, the last one last."""
    started: dict[str, str] = field(default_factory=dict)
    units: dict[str, Came] = field(default_factory=dict)
    """Unit id -> how it came back the last time."""

    def last(self, variant: Mapping[str, Any]) -> str | None:
        """The last run that asked about the variant."""
        return next(reversed(self.runs_of_variant.get(variant["variant_key"], [])), None)

    def last_under(self, variant: Mapping[str, Any], exam: str) -> str | None:
        """The last run that asked the exam of the variant; without a plan it is asked what any plan is."""
        plans, plan_id = self.runs_of_exam.get(exam, {}), variant["plan_id"]
        for run in reversed(self.runs_of_variant.get(variant["variant_key"], [])):
            only = plans.get(run, frozenset())
            if only is None or plan_id in only or (only and not plan_id):
                return run
        return None


def read_asked(root: Path) -> Asked:
    """What the logs of a store's runs say.

    Raises:
        InputError: not a store, or a damaged log, named.
    """
    asked = Asked()
    for run in run_events(root):
        asked.started[run.run_id] = run.started_at
        for (variant_key,) in run.of("variant", "variant_key"):
            asked.runs_of_variant[variant_key].append(run.run_id)
        for exam_id, plan_ids in run.of("exam", "exam_id", "plan_ids"):
            asked.runs_of_exam[exam_id][run.run_id] = None if plan_ids is None else frozenset(plan_ids)
        for unit_id, at, seconds in run.of("unit", "unit_id", "at", "seconds"):
            asked.units[unit_id] = Came(at, run.run_id, seconds)
    return asked
