"""Generative tasks: a unit for each document and seed, and items of one plan's missing units."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import GenerateItem, Generation, Unit
from prunebench.data.tasks import Document, TaskData, range_hash, ranges
from prunebench.evaluation.versions import grader_version
from prunebench.models.family import Family
from prunebench.models.padding import padded_ok
from prunebench.pipeline.prepare import Subject
from prunebench.pipeline.writing import Answering, question_of
from prunebench.store.generations import load_generations
from prunebench.store.ledger import Ledger

REQUESTS_PER_ITEM: Final = 128
"""Prompts that one item keeps an engine busy with."""
ITEM_TOKENS_WRITTEN: Final = 1_024
"""Tokens that one item may write at most where prompts are answered one at a time: about a minute for a
small model on one CPU thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenExam:
    """One document under one seed: the key without a plan."""

    answering: Answering
    unit: Unit
    document: Document
    family: Family

    def unit_of(self, plan: PruningPlan) -> Unit:
        """The plan's unit: one that does not fit the dense shape of a padded engine is deployed."""
        unit = self.unit.for_plan(plan.plan_id)
        in_place = self.answering.setup.kind != "hf" and unit.execution == "padded"
        if in_place and not padded_ok(self.family, plan):
            return replace(unit, execution="deployed")
        return unit


def written_exams(subject: Subject, task: TaskData) -> Iterator[WrittenExam]:
    """Every document of a generative task under every seed, seed by seed."""
    answering = subject.answering[task.name]
    for seed in answering.seeds:
        for (start, stop), document in zip(ranges(task), task.documents, strict=True):
            question = question_of(document)
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
                scorer_version=grader_version(question.grader),
                backend=answering.setup.kind,
                execution=answering.setup.execution,
                seed=seed,
                generation=answering.sampling.to_json(),
                template_hash="" if question.raw else answering.template_hash,
                backend_version=answering.backend_version,
            )
            family = subject.checkpoint.family
            yield WrittenExam(answering=answering, unit=unit, document=document, family=family)


def written_items(
    ledger: Ledger, model: str, exams: Sequence[WrittenExam], plans: Iterable[PruningPlan]
) -> Iterator[GenerateItem]:
    """Items of what the store lacks, engine by engine and plan by plan; texts that it has go along."""
    present, written = ledger.present(), ledger.written()
    for engine in dict.fromkeys(exam.answering.engine for exam in exams):
        own = [exam for exam in exams if exam.answering.engine == engine]
        size = _requests_per_item([exam.answering for exam in own])
        for plan in plans:
            missing = [
                (unit, exam.document) for exam in own if (unit := exam.unit_of(plan)).unit_id not in present
            ]
            known = _known(ledger.root, [unit for unit, _ in missing], written)
            # Apart from the others: they need no engine, and need not wait for one.
            for scored_only in (True, False):
                group = [pair for pair in missing if (pair[0].generation_id in known) == scored_only]
                for start in range(0, len(group), size):
                    yield _item(model, engine, plan, group[start : start + size], known)


def _known(root: Path, units: Sequence[Unit], written: set[str]) -> dict[str, Generation]:
    return load_generations(root, {unit.generation_id for unit in units} & written)


def _item(
    model: str,
    engine: str,
    plan: PruningPlan,
    pairs: Sequence[tuple[Unit, Document]],
    known: Mapping[str, Generation],
) -> GenerateItem:
    own = [unit.generation_id for unit, _ in pairs]
    return GenerateItem(
        model=model,
        engine=engine,
        plan=plan,
        units=tuple(unit for unit, _ in pairs),
        documents=tuple(document for _, document in pairs),
        known={generation_id: known[generation_id] for generation_id in own if generation_id in known},
    )


def _requests_per_item(asked: Sequence[Answering]) -> int:
    if asked[0].setup.kind != "hf":
        return REQUESTS_PER_ITEM
    longest = max(one.sampling.max_tokens for one in asked)
    return max(1, min(REQUESTS_PER_ITEM, ITEM_TOKENS_WRITTEN // longest))
