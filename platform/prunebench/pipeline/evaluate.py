"""Stage 3: every distinct plan on every document range of every task, as far as the store lacks it."""

import collections
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prunebench.core.plan import PruningPlan
from prunebench.core.trie import Node
from prunebench.core.unit import EvaluateItem, GenerateItem, Unit, WorkItem
from prunebench.data.tasks import (
    Choice,
    Document,
    Measured,
    Question,
    Requests,
    TaskData,
    Window,
    Workload,
    range_hash,
    ranges,
)
from prunebench.evaluation.versions import EXECUTION, SCORERS
from prunebench.pipeline.generate import WrittenExam, written_exams, written_items
from prunebench.pipeline.planning import Planned
from prunebench.pipeline.prepare import Subject
from prunebench.pipeline.session import Session
from prunebench.pipeline.together import ranges_together
from prunebench.store.artifacts import exam_id, save_exam

ITEM_TOKENS = 32_768
"""Tokens that one work item sends through all blocks, counting what plans share once: about a minute
for a small model on one CPU thread, and still enough for a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """One document range of one task: the key without a plan, and its documents."""

    kind: str
    unit: Unit
    documents: tuple[Document, ...]
    tokens: int

    def unit_of(self, plan: PruningPlan) -> Unit:
        """The plan's unit."""
        return self.unit.for_plan(plan.plan_id)


def exams(subject: Subject) -> list[Exam | WrittenExam]:
    """Every document range of every task of the subject, in order; of what is written every seed."""
    return [exam for task in subject.tasks for exam in _exams_of(subject, task)]


def evaluate(session: Session, subjects: Iterable[Subject], planned: Mapping[str, Planned]) -> None:
    """Evaluate what the store lacks, and record which exams the run set.

    What is scored comes before what is written, so that workers change from models to engines once.
    """
    present = session.ledger.present()
    scored: list[WorkItem] = []
    units = 0
    written: list[GenerateItem] = []
    asked_units = collections.Counter[str]()
    for subject in subjects:
        plans, asked = planned[subject.name].plans, exams(subject)
        record_exams(session, asked, plans)
        for exam in asked:
            asked_units["evaluate" if isinstance(exam, Exam) else "write"] += len(plans)
            if isinstance(exam, Exam):
                units += len(missing_plans(exam, plans, present))
        scored += _scored(subject, [exam for exam in asked if isinstance(exam, Exam)], plans, present)
        answers = [exam for exam in asked if isinstance(exam, WrittenExam)]
        written += written_items(session.ledger, subject.name, answers, plans)
    steps = {
        "evaluate": units,
        "write": sum(len(item.units) for item in written),
    }
    for stage, items in (("evaluate", scored), ("write", written)):
        session.work(stage, items, steps[stage], done=asked_units[stage] - steps[stage])


def record_exams(session: Session, asked: Sequence[Exam | WrittenExam], plans: Sequence[PruningPlan]) -> None:
    """Keep the ranges of every exam, and log which exams were put to which plans."""
    units: dict[str, list[Unit]] = defaultdict(list)
    asked_of: dict[str, set[str]] = defaultdict(set)
    for exam in asked:
        # One range is several exams where some plans need another execution.
        of_plan = {plan.plan_id: exam.unit_of(plan) for plan in plans}
        for execution, unit in {unit.execution: unit for unit in of_plan.values()}.items():
            name = exam_id(unit)
            units[name].append(unit)
            asked_of[name] |= {plan_id for plan_id, own in of_plan.items() if own.execution == execution}
    everyone = {plan.plan_id for plan in plans}
    for name, ranges_of in units.items():
        save_exam(session.store, ranges_of)
        session.log.exam(name, None if asked_of[name] == everyone else asked_of[name])


def missing_plans(
    exam: Exam | WrittenExam, plans: Collection[PruningPlan], present: Collection[str]
) -> list[PruningPlan]:
    """The plans whose unit on this range is not in the store."""
    return [plan for plan in plans if exam.unit_of(plan).unit_id not in present]


def _exams_of(subject: Subject, task: TaskData) -> Iterator[Exam | WrittenExam]:
    if task.kind == "generate":
        yield from written_exams(subject, task)
        return
    for start, stop in ranges(task):
        documents = task.documents[start:stop]
        unit = Unit(
            weights_id=subject.checkpoint.weights_id,
            tokenizer_hash=subject.checkpoint.tokenizer_hash,
            plan_id=PruningPlan.dense(subject.checkpoint.shape.num_layers).plan_id,
            task=task.name,
            task_version=task.version,
            recipe=task.recipe_json,
            document_hash=range_hash(task, start, stop),
            start=start,
            stop=stop,
            dtype=subject.entry.dtype,
            attention=subject.entry.attention,
            scorer_version=SCORERS[task.kind],
            execution=EXECUTION.get(task.kind, "padded"),
        )
        yield Exam(kind=task.kind, unit=unit, documents=documents, tokens=sum(map(_num_tokens, documents)))


def _num_tokens(document: Document) -> int:
    match document.payload:
        case Window() | Measured() as row:
            return len(row.ids)
        case Workload() as work:
            protocol = work.protocol
            runs = protocol.warmup + protocol.repeats
            return runs * protocol.batch * (protocol.prompt_tokens + protocol.steps)
        case Choice() as choice:
            context = len(choice.context)
            return sum(context + len(continuation) for continuation in choice.continuations)
        case Question():
            raise TypeError("an open question is written to and not scored")
        case Requests() as requests:
            return requests.tokens


def _scored(
    subject: Subject, exams: Sequence[Exam], plans: Sequence[PruningPlan], present: Collection[str]
) -> Iterator[WorkItem]:
    """The work that the store lacks."""
    if not subject.entry.streamed:
        for exam in exams:
            yield from _items(subject.name, exam, missing_plans(exam, plans, present))
        return
    for kind in dict.fromkeys(exam.kind for exam in exams):
        missing = [(exam, missing_plans(exam, plans, present)) for exam in exams if exam.kind == kind]
        items = [(_item(subject.name, exam, left), exam.tokens) for exam, left in missing if left]
        yield from ranges_together(items, subject.checkpoint.shape, subject.entry.dtype)


def _items(model: str, exam: Exam, plans: Sequence[PruningPlan]) -> Iterator[EvaluateItem]:
    """Items of about ITEM_TOKENS each. Plans that begin alike go together: they share their beginning.

    What is timed shares nothing: each plan is an item of its own.
    """
    group, root, blocks = [], Node(), 0
    for plan in sorted(plans, key=lambda plan: plan.canonical):
        blocks += root.add(plan)
        group.append(plan)
        if exam.kind == "efficiency" or exam.tokens * blocks >= ITEM_TOKENS * plan.num_layers:
            yield _item(model, exam, group)
            group, root, blocks = [], Node(), 0
    if group:
        yield _item(model, exam, group)


def _item(model: str, exam: Exam, plans: Sequence[PruningPlan]) -> EvaluateItem:
    return EvaluateItem(
        model=model, kind=exam.kind, unit=exam.unit, documents=exam.documents, plans=tuple(plans)
    )
