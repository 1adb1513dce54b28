"""The search job: a benchmark with one plan per trial, chosen by a selection task alone.

Statistics are measured once; a trial is planned from them and scored through the ledger, so that one which
resolves to a plan already scored costs nothing. Only when the search is over are the best setting and the
papers' own rules put to the other tasks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from prunebench.config.search import Search
from prunebench.core.fingerprint import Json, canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.errors import IncompleteError
from prunebench.evaluation.setup import ModelSetup
from prunebench.methods.base import Measurements
from prunebench.methods.space import Scalar
from prunebench.pipeline.benchmark import model_setups
from prunebench.pipeline.evaluate import evaluate, exams, missing_plans
from prunebench.pipeline.executor import Executor
from prunebench.pipeline.measure import measure
from prunebench.pipeline.planning import Planned, dense_variant, plan_all
from prunebench.pipeline.prepare import Request
from prunebench.pipeline.progress import Progress
from prunebench.pipeline.provenance import provenance
from prunebench.pipeline.quest import Quest, prepare_search
from prunebench.pipeline.session import Session, open_session
from prunebench.search.spaces import METHOD, Branch, Space
from prunebench.search.study import Asked, Study, Tried, open_study, sampler_for
from prunebench.store.exams import score_of
from prunebench.store.read import samples_table
from prunebench.store.record import Variant
from prunebench.store.runs import RunLog
from prunebench.store.trials import save_trials

State: TypeAlias = Literal["complete", "infeasible", "failed", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting with what it came to on the selection task."""

    method: str
    params: Mapping[str, Scalar]
    """What was searched of it; empty for a paper's own rule."""
    state: State
    value: float | None = None
    plan_id: str | None = None
    trial: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to, all its runs together."""

    run_id: str
    store: Path
    study: str
    objective: str
    direction: Literal["minimize", "maximize"]
    sampler: str
    settings: int | None
    """Size of the space, None where it has no end."""
    asked: int
    distinct: int
    """Plans that the trials came to."""
    evaluated: int
    """Plans that had to be scored for it: the store did not know them."""
    infeasible: int
    failed: int
    exhausted: bool
    best: Row | None
    rules: tuple[Row, ...]
    """Each method as its paper sets it."""
    reasons: tuple[str, ...]
    """Why settings were infeasible, each once."""
    failures: int
    """What the same command would try again."""

    def lines(self) -> list[str]:
        """The outcome as a person reads it."""
        size = "without end" if self.settings is None else f"of {self.settings} settings"
        shown = [
            f"study '{self.study}': {self.objective}, {self.direction}; space {size}, sampler {self.sampler}",
            f"asked {self.asked}, distinct plans {self.distinct}, evaluated {self.evaluated}, "
            f"infeasible {self.infeasible}, failed {self.failed}",
        ]
        rows = [("paper's rule", row) for row in self.rules]
        rows += [] if self.best is None else [(f"best (trial {self.best.trial})", self.best)]
        for what, row in rows:
            params = ", ".join(f"{name}={value}" for name, value in row.params.items())
            value = row.error if row.value is None else f"{row.value:.6g} (plan {row.plan_id})"
            shown.append(f"{what:<16} {row.method} {params}: {value}".replace(" :", ":"))
        return [*shown, f"store: {self.store}"]


def run_search(
    search: Search,
    store: Path,
    make_executor: Callable[[dict[str, ModelSetup]], Executor],
    progress: Progress,
) -> Found:
    """Run or resume a search on a store.

    Raises:
        InputError: a wrong setting, selection text that a test task holds, or another study of that name.
        IncompleteError: measurements failed that the methods need.
        ResourceError: the executor or the study's storage lacks what was asked for.
    """
    quest = prepare_search(search)
    settings = search.search
    executor = make_executor(model_setups((quest.subject,)))
    record: dict[str, Json] = {"experiment": search.model_dump(mode="json"), "kind": "search"}
    with (
        open_session(store, executor, progress, record) as session,
        open_study(
            folder=session.store / "trials",
            name=settings.name,
            url=settings.storage,
            direction=search.direction,
            identity=quest.identity(),
            space=quest.space,
            trials=settings.trials,
            seed=settings.seed,
        ) as study,
    ):
        hunt = Hunt(quest, session, study)
        rules = hunt.rules()
        try:
            while asked := study.ask(settings.parallel):
                hunt.score(asked)
        finally:
            # Also after an interruption: the table says what the study holds.
            save_trials(session.store, settings.name, map(hunt.row_of_table, study.tried()))
        missing = hunt.put_to_all_tasks(rules)
        return hunt.found(rules, missing)


class Hunt:
    """A running search."""

    def __init__(self, quest: Quest, session: Session, study: Study) -> None:
        """Measure, list what can be listed of the space, and let the study begin.

        Raises:
            IncompleteError: measurements failed.
            InputError: a grid over a continuous range.
        """
        self.quest, self.session, self.study = quest, session, study
        self.seen = measure(session, [quest.subject])[quest.subject.name]
        if session.failures:
            first = next(iter(session.failures.values()))
            raise IncompleteError(f"the measurements failed ({first}): the same command tries them again")
        settings = quest.search.search
        listed = Space(branches=tuple(map(self._listed, quest.space.branches)))
        sampler = study.sampler or sampler_for(settings.sampler, listed, settings.trials)
        self.space = listed if sampler == "grid" else quest.space
        study.begin(sampler, self.space)
        self._plans: dict[str, PruningPlan] = {}
        """What was planned so far, by id."""
        self._values: dict[str, float] = {}
        """Objective by plan id, as far as it was looked up."""

    def rules(self) -> tuple[tuple[Row, Variant | None], ...]:
        """The papers' own rules and what they came to."""
        requests = {label: r for label, r in self.quest.rules.items() if isinstance(r, Request)}
        variants = dict(zip(requests, self._plan(list(requests.values())), strict=True))
        self._evaluate(list(variants.values()))
        rows: list[tuple[Row, Variant | None]] = []
        for label, request in self.quest.rules.items():
            variant = variants.get(label)
            if variant is None:
                rows.append((Row(method=label, params={}, state="infeasible", error=str(request)), None))
                continue
            state, value, error = self._outcome(variant)
            row = Row(method=label, params={}, state=state, value=value, plan_id=variant.plan_id, error=error)
            rows.append((row, variant))
        return tuple(rows)

    def score(self, asked: Sequence[Asked]) -> None:
        """Plan and evaluate settings together, and tell the study what each came to."""
        requests: dict[int, Request] = {}
        for one in asked:
            request = self._request(one.point)
            if isinstance(request, Request):
                requests[one.number] = request
            else:
                self.study.reject(one.number, request)
        variants = dict(zip(requests, self._plan(list(requests.values())), strict=True))
        present = self.session.ledger.present()
        for number, variant in variants.items():
            if variant.plan_id is not None:
                new = bool(self._missing(variant.plan_id, present))
                self.study.resolve(number, variant.plan_id, variant.variant_key, evaluated=new)
        self._evaluate(list(variants.values()))
        for number, variant in variants.items():
            state, value, error = self._outcome(variant)
            if value is not None:
                self.study.tell(number, value)
            elif state == "infeasible":
                self.study.reject(number, str(error), variant.variant_key)
            else:
                self.study.fail(number, str(error))

    def put_to_all_tasks(self, rules: Sequence[tuple[Row, Variant | None]]) -> int:
        """Evaluate the best setting and the rules on every task; return how many units are still missing.

        A run of its own in the store: of the other settings nothing but the selection task was ever asked.
        """
        subject, best = self.quest.subject, self.study.best()
        if len(subject.tasks) == 1 or best is None:
            return 0
        request = self._request(best.point)
        chosen = self._plan([request]) if isinstance(request, Request) else []
        ruled = [variant for _, variant in rules if variant is not None and variant.plan_id is not None]
        variants = [dense_variant(subject), *ruled, *chosen]
        plans = {v.plan_id: self._plans[v.plan_id] for v in variants if v.plan_id is not None}
        record: dict[str, Json] = {
            **provenance(),
            "experiment": self.quest.search.model_dump(mode="json"),
            "kind": "search: chosen setting on every task",
        }
        planned = Planned(variants=tuple(variants), plans=tuple(plans.values()))
        with RunLog.start(self.session.store, record) as log:
            for variant in variants:
                log.variant(variant.variant_key)
            evaluate(replace(self.session, log=log), [subject], {subject.name: planned})
            present = self.session.ledger.present()
            missing = sum(len(missing_plans(exam, planned.plans, present)) for exam in exams(subject))
            log.end("failed" if missing else "done")
        return missing

    def found(self, rules: Sequence[tuple[Row, Variant | None]], missing: int) -> Found:
        """The search in numbers."""
        tried, best = self.study.tried(), self.study.best()
        states = [one.state for one in tried]
        objective = self.quest.search.search.objective
        rows = tuple(row for row, _ in rules)
        failed = states.count("failed")
        return Found(
            run_id=self.session.log.run_id,
            store=self.session.store,
            study=self.quest.search.search.name,
            objective=f"{objective.task}.{objective.metric}",
            direction=self.quest.search.direction,
            sampler=str(self.study.sampler),
            settings=self.space.size,
            asked=len(tried),
            distinct=len({one.plan_id for one in tried if one.plan_id is not None}),
            evaluated=self.study.evaluated(),
            infeasible=states.count("infeasible"),
            failed=failed,
            exhausted=self.study.exhausted,
            best=None if best is None else self._row(best),
            rules=rows,
            reasons=tuple(
                dict.fromkeys(one.error for one in tried if one.state == "infeasible" and one.error)
            ),
            failures=failed + missing + sum(row.state == "failed" for row in rows),
        )

    def row_of_table(self, tried: Tried) -> dict[str, Any]:
        """A setting as the store's table of trials holds it."""
        row = self._row(tried)
        return {
            "trial": row.trial,
            "state": row.state,
            "method": row.method,
            "params_json": canonical_json(row.params),
            "value": row.value,
            "plan_id": row.plan_id,
            "variant_key": tried.variant_key,
            "error": row.error,
        }

    def _row(self, tried: Tried) -> Row:
        label = str(tried.point.get(METHOD, ""))
        params = {n.removeprefix(f"{label}."): v for n, v in tried.point.items() if n != METHOD}
        return Row(
            method=label,
            params=params,
            state=tried.state,
            value=tried.value,
            plan_id=tried.plan_id,
            trial=tried.number,
            error=tried.error,
        )

    def _listed(self, branch: Branch) -> Branch:
        """The branch with a list of values in place of a range, where the method can make one."""
        rule = self.quest.rules[branch.label]
        if len(branch.space) != 1 or not isinstance(rule, Request):
            return branch
        calibration = None if rule.calibration is None else self.seen.calibrations[rule.calibration]
        measured = Measurements(
            shape=self.quest.subject.checkpoint.shape,
            calibration=None if calibration is None else CalibrationStats.from_bytes(calibration),
            weights=None if self.seen.weights is None else WeightStats.from_bytes(self.seen.weights),
        )
        listed = rule.method.distinct(measured, rule.budget, rule.params, branch.space)
        return replace(branch, space={**branch.space, **listed})

    def _request(self, point: Mapping[str, Scalar]) -> Request | str:
        branch = self.space.branch(str(point[METHOD]))
        return self.quest.request(branch, branch.params(point))

    def _plan(self, requests: Sequence[Request]) -> list[Variant]:
        """The requests' variants, in their order; plans and variants are in the store."""
        subject = replace(self.quest.subject, requests=tuple(requests))
        planned = plan_all(self.session, [subject], {subject.name: self.seen})[subject.name]
        self._plans.update({plan.plan_id: plan for plan in planned.plans})
        _, *variants = planned.variants
        return variants

    def _missing(self, plan_id: str, present: set[str]) -> list[str]:
        """Ids of the objective's units that the store lacks of a plan."""
        return [unit for unit in self._units(plan_id) if unit not in present]

    def _units(self, plan_id: str) -> list[str]:
        return [exam.unit.for_plan(plan_id).unit_id for exam in exams(self.quest.viewed)]

    def _evaluate(self, variants: Sequence[Variant]) -> None:
        """Put the variants' plans, and the dense one, to the objective's task and look their values up."""
        subject = self.quest.viewed
        ids = dict.fromkeys([v.plan_id for v in (dense_variant(subject), *variants) if v.plan_id is not None])
        planned = Planned(variants=tuple(variants), plans=tuple(self._plans[plan_id] for plan_id in ids))
        evaluate(self.session, [subject], {subject.name: planned})
        present = self.session.ledger.present()
        new = {i for i in ids if i not in self._values and not self._missing(i, present)}
        if not new:
            return
        units = {unit: plan_id for plan_id in new for unit in self._units(plan_id)}
        samples = samples_table(self.session.store).to_pandas()
        metric = self.quest.search.search.objective.metric
        samples = samples[samples["unit_id"].isin(units) & (samples["metric"] == metric)]
        for plan_id, group in samples.groupby(samples["unit_id"].map(units)):
            self._values[str(plan_id)] = score_of(metric, group).value

    def _outcome(self, variant: Variant) -> tuple[State, float | None, str | None]:
        """State, objective and error of what was evaluated."""
        if variant.plan_id is None:
            return ("failed" if variant.status == "failed" else "infeasible"), None, variant.error
        if variant.plan_id in self._values:
            return "complete", self._values[variant.plan_id], None
        errors = (self.session.failures.get(unit) for unit in self._units(variant.plan_id))
        return "failed", None, next(filter(None, errors), "its evaluation did not end")
