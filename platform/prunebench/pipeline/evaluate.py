"""Stage 3: every distinct plan on every document range of every task, as far as the store lacks it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prunebench.core.plan import PruningPlan
from prunebench.core.trie import Node
from prunebench.core.unit import EvaluateItem, Unit
from prunebench.data.tasks import (
    Choice,
    Document,
    Measured,
    TaskData,
    Window,
    Workload,
    range_hash,
    ranges,
)
from prunebench.evaluation.versions import EXECUTION, SCORERS
from prunebench.pipeline.planning import Planned
from prunebench.pipeline.prepare import Subject
from prunebench.pipeline.session import Session
from prunebench.store.artifacts import save_exam

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


def exams(subject: Subject) -> list[Exam]:
    """Every document range of every task of the subject, in order."""
    return [exam for task in subject.tasks for exam in _exams_of(subject, task)]


def evaluate(session: Session, subjects: Iterable[Subject], planned: Mapping[str, Planned]) -> None:
    """Evaluate what the store lacks, and record which exams the run set."""
    present = session.ledger.present()
    items: list[EvaluateItem] = []
    for subject in subjects:
        for task in subject.tasks:
            session.log.exam(save_exam(session.store, [exam.unit for exam in _exams_of(subject, task)]))
        for exam in exams(subject):
            missing = missing_plans(exam, planned[subject.name].plans, present)
            items += _items(subject.name, exam, missing)
    session.work("evaluate", items, sum(len(item.plans) for item in items))


def missing_plans(exam: Exam, plans: Sequence[PruningPlan], present: set[str]) -> list[PruningPlan]:
    """The plans whose unit on this range is not in the store."""
    return [plan for plan in plans if exam.unit.for_plan(plan.plan_id).unit_id not in present]


def _exams_of(subject: Subject, task: TaskData) -> Iterator[Exam]:
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
