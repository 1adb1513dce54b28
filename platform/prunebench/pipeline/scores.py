"""The measures of plans: their tasks evaluated as far as the store lacks them, and looked up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from prunebench.config.objectives import Measure
from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.evaluation.versions import METRICS
from prunebench.pipeline.evaluate import evaluate, exams
from prunebench.pipeline.planning import Planned, dense_variant
from prunebench.pipeline.prepare import Subject
from prunebench.pipeline.quest import Quest
from prunebench.pipeline.session import Session
from prunebench.store.aggregate import aggregate
from prunebench.store.exams import score_of
from prunebench.store.read import samples_table
from prunebench.store.record import Variant

GIB = 1 << 30
BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
Raw = Mapping[tuple[str, str], float]
"""The metrics of one plan, by task and metric."""


class Scores:
    """The values of measures, of every plan that was planned here."""

    def __init__(self, quest: Quest, session: Session) -> None:
        """Begin with the dense model's plan alone."""
        self.quest, self.session = quest, session
        dense = PruningPlan.dense(quest.subject.checkpoint.shape.num_layers)
        self.plans = {dense.plan_id: dense}
        """What was planned so far, by id."""
        self._dense = dense_variant(quest.subject)
        self._raw: dict[str, Raw] = {}
        """By plan id, as far as it was looked up."""

    def missing(self, plan_id: str, present: set[str], subject: Subject | None = None) -> list[str]:
        """Ids of the measures' units that the store lacks of a plan."""
        return [unit for unit in self.units(plan_id, subject) if unit not in present]

    def units(self, plan_id: str, subject: Subject | None = None) -> list[str]:
        """Ids of the measures' units of a plan."""
        return [exam.unit.for_plan(plan_id).unit_id for exam in exams(subject or self.quest.viewed)]

    def evaluate(self, variants: Sequence[Variant], subject: Subject | None = None) -> None:
        """Put plans, and the dense one, to the measures' tasks, and look up what is whole.

        Args:
            variants: with or without a plan.
            subject: with fewer documents of the tasks, where not all are to be scored.
        """
        viewed = subject or self.quest.viewed
        ids = dict.fromkeys([v.plan_id for v in (self._dense, *variants) if v.plan_id is not None])
        planned = Planned(variants=tuple(variants), plans=tuple(self.plans[plan_id] for plan_id in ids))
        evaluate(self.session, [viewed], {viewed.name: planned})
        present = self.session.ledger.present()
        self._look_up([i for i in ids if i not in self._raw and not self.missing(i, present)])

    def values(self, variant: Variant) -> dict[str, float] | None:
        """Every measure by name; None where samples are missing."""
        if variant.plan_id not in self._raw or self._dense.plan_id not in self._raw:
            return None
        return {measure.name: self._value(measure, variant) for measure in self.quest.search.measures}

    def document_scores(self, plan_id: str, subject: Subject) -> dict[int, float]:
        """The first objective document by document, in the sense of the objective: for pruning.

        Args:
            plan_id: of a plan whose units of `subject` are in the store.
            subject: with the documents that are asked for.
        """
        first = self.quest.search.search.objective[0]
        samples = samples_table(self.session.store, [plan_id]).to_pandas()
        units = set(self.units(plan_id, subject))
        own = samples[samples["unit_id"].isin(units) & (samples["metric"] == first.metric)]
        sums = own.groupby("doc_id")[["value", "weight"]].sum()
        metric = str(first.metric)
        rises = aggregate(metric, 1.0, 1.0) > aggregate(metric, 0.0, 1.0)
        if first.retained and METRICS[self.quest.exams[0].kind][metric] == "minimize":
            rises = not rises
        sign = 1 if rises else -1
        return {int(doc): sign * value / weight for doc, value, weight in sums.itertuples()}

    def _look_up(self, plan_ids: Sequence[str]) -> None:
        if not plan_ids:
            return
        samples = samples_table(self.session.store, plan_ids).to_pandas()
        for plan_id in plan_ids:
            own = samples[samples["unit_id"].isin(set(self.units(plan_id)))]
            self._raw[plan_id] = {
                (str(task), str(metric)): score_of(str(metric), group).value
                for (task, metric), group in own.groupby(["task", "metric"])
            }

    def _value(self, measure: Measure, variant: Variant) -> float:
        if measure.quantity is not None:
            return _quantity(measure.quantity, variant)
        own, dense = self._raw[str(variant.plan_id)], self._raw[str(self._dense.plan_id)]
        parts = []
        for name in measure.named:
            key = name, str(measure.metric)
            if key not in own:
                raise InputError(f"the samples of {name} hold no {measure.metric}: it cannot be an objective")
            lower = METRICS[self.quest.search.tasks[name].kind][key[1]] == "minimize"
            parts.append(_retained(own[key], dense[key], lower=lower) if measure.retained else own[key])
        return sum(parts) / len(parts)


def _quantity(name: str, variant: Variant) -> float:
    assert variant.total_params is not None  # both are there where there is a plan
    assert variant.removed_params is not None
    match name:
        case "total_params":
            return float(variant.total_params)
        case "removed_params":
            return float(variant.removed_params)
        case _:
            return variant.total_params * BYTES[variant.dtype] / GIB


def _retained(value: float, dense: float, *, lower: bool) -> float:
    """Percent of the dense model's performance; NaN where that is no number."""
    above, below = (dense, value) if lower else (value, dense)
    return 100 * above / below if below else float("nan")


def prefixes(subject: Subject) -> Iterator[Subject]:
    """The subject with the documents of its first range, of its first two, and so on; it has one task."""
    (task,) = subject.tasks
    for stop in sorted({exam.unit.stop for exam in exams(subject)}):
        yield replace(subject, tasks=(replace(task, documents=task.documents[:stop]),))
