"""What a run would still have to do, counted without starting anything."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from prunebench.config.experiment import Experiment
from prunebench.core.plan import PruningPlan
from prunebench.evaluation.need import Need, need_of
from prunebench.pipeline.benchmark import model_setups
from prunebench.pipeline.evaluate import exams, missing_plans
from prunebench.pipeline.planning import variant_of
from prunebench.pipeline.prepare import Subject, prepare
from prunebench.store.artifacts import load_plan
from prunebench.store.layout import check_store, holds_store
from prunebench.store.read import read_events, read_samples, read_variants


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Counts of a run. While some variants have no plan yet, `units` is the most that there can be."""

    variants: int
    planned: int
    plans: int
    """Distinct plans, the dense one included; each unplanned variant counts as one."""
    units: int
    done: int
    seconds: float | None
    """Worker time of what is left, from the mean of finished units of each task (of all units for a task
    without any); None before any is finished."""
    needs: tuple[Need, ...]
    """What a worker needs for each model."""

    @property
    def to_do(self) -> int:
        """Units that are not in the store."""
        return self.units - self.done


def estimate(experiment: Experiment, store: Path) -> Estimate:
    """Count variants, plans and units, and how many the store has.

    Raises:
        InputError: a wrong setting, or a store that cannot be read.
    """
    known, done_units, times = pd.DataFrame(), _NO_UNITS, _NO_TIMES
    if holds_store(store):
        check_store(store)
        known, times = read_variants(store), read_events(store)
        done_units = read_samples(store)[["unit_id", "task"]].drop_duplicates()
    present = frozenset(done_units["unit_id"])
    subjects = prepare(experiment)
    counts = [_count(subject, store, known, present) for subject in subjects]
    left = sum((count.left for count in counts), Counter())
    units = sum(count.units for count in counts)
    return Estimate(
        variants=sum(count.variants for count in counts),
        planned=sum(count.planned for count in counts),
        plans=sum(count.plans for count in counts),
        units=units,
        done=units - left.total(),
        seconds=_seconds(left, times.merge(done_units, on="unit_id")),
        needs=tuple(need_of(name, setup) for name, setup in model_setups(subjects).items()),
    )


_NO_UNITS = pd.DataFrame(columns=["unit_id", "task"])
_NO_TIMES = pd.DataFrame(columns=["unit_id", "seconds"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    variants: int
    planned: int
    plans: int
    units: int
    left: Counter[str]
    """Units to do by task."""


def _seconds(left: Counter[str], times: pd.DataFrame) -> float | None:
    if times.empty:
        return None
    means = times.groupby("task")["seconds"].mean()
    overall = float(times["seconds"].mean())
    return sum(count * float(means.get(task, overall)) for task, count in left.items())


def _count(subject: Subject, store: Path, known: pd.DataFrame, present: frozenset[str]) -> _Count:
    answered = {} if known.empty else known.set_index("variant_key")[["status", "plan_id"]].to_dict("index")
    plans = {PruningPlan.dense(subject.checkpoint.shape.num_layers)}
    unplanned = 0
    for request in subject.requests:
        key = variant_of(subject, request, "not planned yet").variant_key
        answer = answered.get(key)
        if answer is None or answer["status"] == "failed":
            unplanned += 1
        elif answer["status"] == "ok":
            plans.add(load_plan(store, answer["plan_id"]))
    ranges = exams(subject)
    left: Counter[str] = Counter()
    for exam in ranges:
        left[exam.unit.task] += len(missing_plans(exam, plans, present)) + unplanned
    total, distinct = len(subject.requests) + 1, len(plans) + unplanned
    return _Count(
        variants=total,
        planned=total - unplanned,
        plans=distinct,
        units=distinct * len(ranges),
        left=left,
    )
