"""Stage 2: every method at every budget becomes a variant; methods that ask a probe run on workers."""

import functools
import json
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prunebench.config.params import params_json
from prunebench.core.fingerprint import canonical_json, sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.core.unit import PlanDone, PlanItem
from prunebench.evaluation.planning import ask_method
from prunebench.methods.base import Measurements
from prunebench.pipeline.measure import Seen
from prunebench.pipeline.prepare import Request, Subject
from prunebench.pipeline.session import Session
from prunebench.store.artifacts import load_planned, save_plan, save_variant
from prunebench.store.record import DENSE, Variant

METHODS_VERSION = 1
"""Raised when a method's plans change, so that remembered plans of probe methods are made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A subject's variants, and the distinct plans to evaluate."""

    variants: tuple[Variant, ...]
    plans: tuple[PruningPlan, ...]


def plan_all(session: Session, subjects: Iterable[Subject], seen: Mapping[str, Seen]) -> dict[str, Planned]:
    """Plan every request of every subject, and keep plans and variants in the store; by model name.

    Probe methods go budget by budget: what a smaller budget asked of a probe, a larger one remembers.
    """
    subjects = tuple(subjects)
    for budget in sorted({request.budget.layers for subject in subjects for request in subject.requests}):
        items = [
            item
            for subject in subjects
            for item in _probe_items(session, subject, seen[subject.name], budget)
        ]
        session.work(f"plan {budget}", items, len(items))
    return {subject.name: _planned(session, subject, seen[subject.name]) for subject in subjects}


def dense_variant(subject: Subject) -> Variant:
    """The row of the unpruned model."""
    shape = subject.checkpoint.shape
    return Variant(
        model=subject.name,
        weights_id=subject.checkpoint.weights_id,
        dtype=subject.entry.dtype,
        attention=subject.entry.attention,
        method=DENSE,
        params_json="{}",
        budget="0",
        budget_layers=0,
        num_layers=shape.num_layers,
        projection_params=shape.num_layers * shape.params_per_layer,
        plan_id=PruningPlan.dense(shape.num_layers).plan_id,
        removed_params=0,
        total_params=shape.total_params,
        warnings=_own_code(subject),
    )


def variant_of(subject: Subject, request: Request, outcome: PlanDone | str) -> Variant:
    """The variant of a request, from what the method answered or the error that it ended in."""
    shape = subject.checkpoint.shape
    settings = params_json(request.params)
    if request.probe is not None:
        settings["probe_corpus"] = subject.probes[request.probe].corpus_id[:16]
    asked = {
        "model": subject.name,
        "weights_id": subject.checkpoint.weights_id,
        "dtype": subject.entry.dtype,
        "attention": subject.entry.attention,
        "method": request.method.name,
        "params_json": canonical_json(settings),
        "budget": request.asked,
        "budget_layers": request.budget.layers,
        "num_layers": shape.num_layers,
        "projection_params": shape.num_layers * shape.params_per_layer,
        "calibration": request.calibration,
        "calibration_id": None
        if request.calibration is None
        else subject.calibrations[request.calibration].corpus_id,
    }
    if request.unsupported:
        return Variant(**asked, status="unsupported", error=request.unsupported)
    if isinstance(outcome, str):
        return Variant(**asked, status="failed", error=outcome)
    if outcome.plan is None:
        return Variant(**asked, status="unreachable", error=outcome.unreachable, seconds=outcome.seconds)
    plan = PruningPlan.from_json(outcome.plan)
    return Variant(
        **asked,
        plan_id=plan.plan_id,
        chosen_json=outcome.chosen,
        removed_layers=plan.removed_layers,
        removed_params=plan.removed_params(shape),
        total_params=plan.total_params(shape),
        warnings=(*outcome.warnings, *_overlaps(subject, request), *_own_code(subject)),
        seconds=outcome.seconds,
    )


def planned_key(subject: Subject, request: Request) -> str:
    """Identity of a request: everything that decides its plan."""
    return sha256_json(
        {
            "version": METHODS_VERSION,
            "weights": subject.checkpoint.weights_id,
            "dtype": subject.entry.dtype,
            "attention": subject.entry.attention,
            "method": request.method.name,
            "params": json.loads(canonical_json(params_json(request.params))),
            "budget": request.budget.layers,
            "calibration": None if request.calibration is None else subject.source(request.calibration),
            "probe": None if request.probe is None else subject.probes[request.probe].corpus_id,
        }
    )


def _overlaps(subject: Subject, request: Request) -> tuple[str, ...]:
    used = {f"calibration '{request.calibration}'", f"probe corpus '{request.probe}'"}
    return tuple(overlap.sentence for overlap in subject.overlaps if overlap.corpus in used)


def _own_code(subject: Subject) -> tuple[str, ...]:
    if not (named := subject.checkpoint.classes):
        return ()
    return (f"the model runs code of its checkpoint (trust_remote_code): {', '.join(named.values())}",)


def _probe_items(session: Session, subject: Subject, seen: Seen, budget: int) -> Iterable[PlanItem]:
    for request in subject.requests:
        key = planned_key(subject, request)
        if request.budget.layers != budget or request.probe is None or request.unsupported:
            continue
        if load_planned(session.store, key) is not None:
            continue
        if request.calibration is not None and request.calibration not in seen.calibrations:
            continue
        corpus = subject.probes[request.probe]
        needs = request.method.needs(request.params)
        yield PlanItem(
            key=key,
            model=subject.name,
            method=request.method.name,
            params=request.params,
            budget=request.budget.layers,
            calibration=None if request.calibration is None else seen.calibrations[request.calibration],
            weights=seen.weights if needs & {"weights", "cka"} else None,
            corpus_id=corpus.corpus_id,
            rows=corpus.rows,
            remembered=dict(session.probes.answers),
        )


def _planned(session: Session, subject: Subject, seen: Seen) -> Planned:
    dense = PruningPlan.dense(subject.checkpoint.shape.num_layers)
    plans = {dense.plan_id: dense}
    variants = [dense_variant(subject)]
    parse = functools.cache(CalibrationStats.from_bytes)
    weights = None if seen.weights is None else WeightStats.from_bytes(seen.weights)
    for request in subject.requests:
        calibration = seen.calibrations.get(request.calibration) if request.calibration else None
        measured = Measurements(
            shape=subject.checkpoint.shape,
            calibration=None if calibration is None else parse(calibration),
            weights=weights,
        )
        outcome = _outcome(session, subject, request, measured)
        variants.append(variant_of(subject, request, outcome))
        if isinstance(outcome, PlanDone) and outcome.plan is not None:
            plan = PruningPlan.from_json(outcome.plan)
            plans[plan.plan_id] = plan
            for other in outcome.others:
                save_plan(session.store, PruningPlan.from_json(other))
    for plan in plans.values():
        save_plan(session.store, plan)
    for variant in variants:
        save_variant(session.store, variant)
        session.log.variant(variant.variant_key)
    return Planned(variants=tuple(variants), plans=tuple(plans.values()))


def _outcome(session: Session, subject: Subject, request: Request, seen: Measurements) -> PlanDone | str:
    """What the method answered, or the error that it or its measurements ended in."""
    key = planned_key(subject, request)
    if request.unsupported:
        return request.unsupported
    if request.calibration is not None and seen.calibration is None:
        return f"its calibration '{request.calibration}' failed"
    if request.method.needs(request.params) & {"weights", "cka"} and seen.weights is None:
        return "the weight statistics failed"
    if request.probe is not None:
        return load_planned(session.store, key) or session.failures[key]
    try:
        return ask_method(key, request.method.name, seen, request.budget, request.params)
    except Exception as error:  # noqa: BLE001 (a method's fault is a row of the table; the other methods go on)
        text = f"{type(error).__name__}: {error}"
        session.fail(key, text, traceback.format_exc())
        return text
