"""The search job: a benchmark with one plan per trial, chosen by selection tasks alone.

Statistics are measured once; a trial is planned from them and scored through the ledger, so that one which
resolves to a plan already scored costs nothing. Only when the search is over are the chosen settings and the
papers' own rules put to the other tasks.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from prunebench.config.search import Search
from prunebench.core.fingerprint import Json
from prunebench.errors import IncompleteError
from prunebench.evaluation.setup import ModelSetup
from prunebench.methods.space import Scalar
from prunebench.pipeline.benchmark import model_setups
from prunebench.pipeline.evaluate import evaluate, exams, missing_plans
from prunebench.pipeline.executor import Executor
from prunebench.pipeline.found import Found, Goal, Row
from prunebench.pipeline.listing import listed_branch, pieces_of
from prunebench.pipeline.measure import measure
from prunebench.pipeline.planning import Planned, dense_variant, plan_all
from prunebench.pipeline.prepare import Request
from prunebench.pipeline.progress import Progress
from prunebench.pipeline.provenance import provenance
from prunebench.pipeline.quest import Quest, prepare_search
from prunebench.pipeline.scores import Scores, prefixes
from prunebench.pipeline.session import Session, open_session
from prunebench.search.samplers import sampler_for
from prunebench.search.spaces import METHOD, Branch, Space
from prunebench.search.study import Study, open_study
from prunebench.search.trials import Asked, State, Tried
from prunebench.store.record import Variant
from prunebench.store.runs import RunLog
from prunebench.store.trials import save_study


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
            directions=search.directions,
            identity=quest.identity(),
            space=quest.space,
            trials=settings.trials,
            seed=settings.seed,
            pruning=None if settings.pruning is None else settings.pruning.p,
        ) as study,
    ):
        hunt = Hunt(quest, session, study)
        hunt.begin()
        try:
            while asked := study.ask(settings.parallel):
                hunt.score(asked)
            missing = hunt.put_to_all_tasks()
        except BaseException:
            # Also after an interruption: the tables say what the study holds.
            hunt.save(hunt.found())
            raise
        found = hunt.found(missing)
        hunt.save(found)
        return found


class Hunt:
    """A running search."""

    def __init__(self, quest: Quest, session: Session, study: Study) -> None:
        """Measure, and list what can be listed of the space.

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
        self.pieces = {branch.label: pieces_of(quest, self.seen, branch) for branch in quest.space.branches}
        listed = Space(branches=tuple(listed_branch(b, self.pieces[b.label]) for b in quest.space.branches))
        goals = len(settings.objective)
        self.sampler = study.sampler or sampler_for(settings.sampler, listed, settings.trials, goals)
        self.space = listed if self.sampler == "grid" else quest.space
        self.scores = Scores(quest, session)
        self.rules: tuple[tuple[Row, Variant | None], ...] = ()
        """The papers' own rules and what they came to."""

    def begin(self) -> None:
        """Plan and evaluate each method as its paper sets it, and begin the study with what that came to."""
        requests = {label: r for label, r in self.quest.rules.items() if isinstance(r, Request)}
        variants = dict(zip(requests, self._plan(list(requests.values())), strict=True))
        self.scores.evaluate(list(variants.values()))
        self.rules = tuple(self._rule(b, variants.get(b.label)) for b in self.quest.space.branches)
        shape = self.quest.subject.checkpoint.shape
        starts = [
            branch.start(shape, json.loads(variants[branch.label].chosen_json))
            for branch in self.space.branches
            if branch.label in variants
        ]
        self.study.begin(self.sampler, self.space, [start for start in starts if start is not None])

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
                new = bool(self.scores.missing(variant.plan_id, present))
                self.study.resolve(number, variant.plan_id, variant.variant_key, evaluated=new)
        if self.quest.search.search.pruning is None:
            self.scores.evaluate(list(variants.values()))
        else:
            variants = self._without_hopeless(variants)
        for number, variant in variants.items():
            self._tell(number, variant)

    def put_to_all_tasks(self) -> int:
        """Evaluate the chosen settings and the rules on every task; return how many units are still missing.

        A run of its own in the store: of the other settings nothing but the selection tasks was ever asked.
        """
        subject, front = self.quest.subject, self.study.front()
        if len(subject.tasks) == len(self.quest.exams) or not front:
            return 0
        requests = [request for one in front if isinstance(request := self._request(one.point), Request)]
        ruled = [variant for _, variant in self.rules if variant is not None and variant.plan_id is not None]
        variants = [dense_variant(subject), *ruled, *self._plan(requests)]
        plans = {v.plan_id: self.scores.plans[v.plan_id] for v in variants if v.plan_id is not None}
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

    def found(self, missing: int = 0) -> Found:
        """The search in numbers; `missing` units of the last step are failures."""
        search, subject, tried = self.quest.search, self.quest.subject, self.study.tried()
        states = [one.state for one in tried]
        rules = tuple(row for row, _ in self.rules)
        goals = zip(search.search.objective, search.directions, self.study.importances(), strict=True)
        told = [(Goal(name=o.name, direction=d, tasks=o.named, metric=o.metric), i) for o, d, i in goals]
        reasons = dict.fromkeys(one.error for one in tried if one.state == "infeasible" and one.error)
        failed = states.count("failed")
        return Found(
            run_id=self.session.log.run_id,
            store=self.session.store,
            study=search.search.name,
            model=subject.name,
            weights_id=subject.checkpoint.weights_id,
            objectives=tuple(goal for goal, _ in told),
            constraints=tuple(constraint.text for constraint in search.search.constraints),
            sampler=str(self.study.sampler),
            seed=search.search.seed,
            settings=self.space.size,
            asked=len(tried),
            distinct=len({one.plan_id for one in tried if one.plan_id is not None}),
            evaluated=self.study.evaluated(),
            infeasible=states.count("infeasible"),
            stopped=states.count("stopped"),
            failed=failed,
            exhausted=self.study.exhausted,
            chosen=tuple(map(self._row, self.study.front())),
            rules=rules,
            importances={goal.name: importance for goal, importance in told},
            pieces=self.pieces,
            reasons=tuple(reasons),
            failures=failed + missing + sum(row.state == "failed" for row in rules),
        )

    def save(self, found: Found) -> None:
        """Write the study's tables and record into the store."""
        rows = [self._row(one) for one in self.study.tried()]
        save_study(self.session.store, found.study, found.to_json(), rows)

    def _row(self, tried: Tried) -> Row:
        label = str(tried.point.get(METHOD, ""))
        names = [objective.name for objective in self.quest.search.search.objective]
        return Row(
            method=label,
            budget=self.space.branch(label).budget.layers,
            params={n.removeprefix(f"{label}."): v for n, v in tried.point.items() if n != METHOD},
            state=tried.state,
            values=dict(zip(names, tried.values, strict=False)),
            plan_id=tried.plan_id,
            variant_key=tried.variant_key,
            trial=tried.number,
            error=tried.error,
        )

    def _rule(self, branch: Branch, variant: Variant | None) -> tuple[Row, Variant | None]:
        row = Row(
            method=branch.label,
            budget=branch.budget.layers,
            rule=branch.method.rule,
            state="infeasible",
            error=str(self.quest.rules[branch.label]),
        )
        if variant is None:
            return row, None
        state, values, error = self._outcome(variant)
        known = {"plan_id": variant.plan_id, "variant_key": variant.variant_key}
        return replace(row, state=state, values=values, error=error, **known), variant

    def _tell(self, number: int, variant: Variant) -> None:
        """Tell the study what a setting came to."""
        state, values, error = self._outcome(variant)
        if values:
            settings = self.quest.search.search
            missed = {one.text: one.violation(values[one.name]) for one in settings.constraints}
            self.study.tell(number, [values[one.name] for one in settings.objective], missed)
        elif state == "infeasible":
            self.study.reject(number, str(error), variant.variant_key)
        else:
            self.study.fail(number, str(error))

    def _without_hopeless(self, variants: Mapping[int, Variant]) -> dict[int, Variant]:
        """Score settings range by range, and stop those that the pruner finds hopeless; return the others."""
        going = dict(variants)
        known: dict[int, set[int]] = {number: set() for number in going}
        for subject in prefixes(self.quest.viewed):
            planned = {n: variant for n, variant in going.items() if variant.plan_id is not None}
            self.scores.evaluate(list(planned.values()), subject)
            present = self.session.ledger.present()
            for number, variant in planned.items():
                if self.scores.missing(str(variant.plan_id), present, subject):
                    continue
                scores = self.scores.document_scores(str(variant.plan_id), subject)
                new = {doc: score for doc, score in scores.items() if doc not in known[number]}
                known[number] |= set(new)
                total = len(self.quest.exams[0].documents)
                if self.study.report(number, new) and len(scores) < total:
                    self.study.stop(number, f"hopeless after {len(scores)} of {total} documents")
                    del going[number]
        return going

    def _request(self, point: Mapping[str, Scalar]) -> Request | str:
        branch = self.space.branch(str(point[METHOD]))
        return self.quest.request(branch, branch.params(point))

    def _plan(self, requests: Sequence[Request]) -> list[Variant]:
        """The requests' variants, in their order; plans and variants are in the store."""
        subject = replace(self.quest.subject, requests=tuple(requests))
        planned = plan_all(self.session, [subject], {subject.name: self.seen})[subject.name]
        self.scores.plans.update({plan.plan_id: plan for plan in planned.plans})
        _, *variants = planned.variants
        return variants

    def _outcome(self, variant: Variant) -> tuple[State, Mapping[str, float], str | None]:
        """State, measures and error of what was evaluated."""
        if variant.plan_id is None:
            return ("failed" if variant.status == "failed" else "infeasible"), {}, variant.error
        if (values := self.scores.values(variant)) is not None:
            return "complete", values, None
        errors = (self.session.failures.get(unit) for unit in self.scores.units(variant.plan_id))
        return "failed", {}, next(filter(None, errors), "its evaluation did not end")
