"""What a run would still have to do, counted without starting anything."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from prunebench.config.experiment import Experiment
from prunebench.pipeline.evaluate import exams
from prunebench.pipeline.planning import dense_variant, variant_of
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
    """Worker time of what is left, from the mean of finished units; None before any is finished."""

    @property
    def to_do(self) -> int:
        """Units that are not in the store."""
        return self.units - self.done


def estimate(experiment: Experiment, store: Path) -> Estimate:
    """Count variants, plans and units, and how many the store has.

    Raises:
        InputError: a wrong setting, or a store that cannot be read.
    """
    known, present, seconds = pd.DataFrame(), frozenset(), None
    if holds_store(store):
        check_store(store)
        known = read_variants(store)
        present = frozenset(read_samples(store)["unit_id"])
        times = read_events(store)["seconds"]
        seconds = float(times.mean()) if len(times) else None
    counts = [_count(subject, store, known, present) for subject in prepare(experiment)]
    variants, planned, plans, units, done = (sum(column) for column in zip(*counts, strict=True))
    left = units - done
    return Estimate(
        variants=variants,
        planned=planned,
        plans=plans,
        units=units,
        done=done,
        seconds=None if seconds is None else seconds * left,
    )


def _count(
    subject: Subject, store: Path, known: pd.DataFrame, present: frozenset[str]
) -> tuple[int, int, int, int, int]:
    answered = {} if known.empty else known.set_index("variant_key")[["status", "plan_id"]].to_dict("index")
    dense = dense_variant(subject)
    plans = {str(dense.plan_id)}
    unplanned = 0
    for request in subject.requests:
        key = variant_of(subject, request, "not planned yet").variant_key
        answer = answered.get(key)
        if answer is None or answer["status"] == "failed":
            unplanned += 1
        elif answer["status"] == "ok":
            plans.add(load_plan(store, answer["plan_id"]).plan_id)
    ranges = exams(subject)
    done = sum(exam.unit.for_plan(plan).unit_id in present for exam in ranges for plan in plans)
    total = len(subject.requests) + 1
    distinct = len(plans) + unplanned
    return total, total - unplanned, distinct, distinct * len(ranges), done
