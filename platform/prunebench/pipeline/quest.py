"""From a search file to a quest: the model, the space and the rules; refused here, before any work."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prunebench.config.objectives import Measure
from prunebench.config.params import parse_params
from prunebench.config.search import Search
from prunebench.config.tasks import ChoiceTask, PerplexityTask
from prunebench.core.fingerprint import Json, canonical_json
from prunebench.data.leaks import find_overlaps
from prunebench.data.recipes import recipe_named
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import TaskData
from prunebench.errors import InputError
from prunebench.methods import method_named
from prunebench.methods.space import Choices
from prunebench.models.checkpoint import Checkpoint
from prunebench.pipeline.prepare import Request, Subject, request_of, subject_of
from prunebench.search.spaces import Branch, Space, space_of

MOST_NEEDS = 256
"""Combinations of listed values that are looked at to find what has to be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quest:
    """A search that may begin."""

    search: Search
    subject: Subject
    """The model with every task, and requests that need whatever any setting needs."""
    exams: tuple[TaskData, ...]
    """The tasks of the objectives and constraints."""
    space: Space
    """As it is declared and narrowed."""
    rules: dict[str, Request | str]
    """Each branch's method as its paper sets it, or why that cannot be at this budget."""

    @property
    def viewed(self) -> Subject:
        """The subject as the search sees it: only the tasks of objectives and constraints."""
        return replace(self.subject, tasks=self.exams)

    def request(self, branch: Branch, params: dict[str, Any]) -> Request | str:
        """The request of a setting, or why it cannot be."""
        return _request(self.subject.checkpoint, branch, params)

    def identity(self) -> dict[str, Json]:
        """What the study is about: settings of one study are only told apart by what this leaves out."""
        subject, settings = self.subject, self.search.search
        exams = {exam.name: [exam.version, exam.recipe_json] for exam in self.exams}
        goals = zip(settings.objective, self.search.directions, strict=True)
        told = {
            "model": [subject.checkpoint.weights_id, subject.entry.dtype, subject.entry.attention],
            "budget": [branch.budget.layers for branch in self.space.branches],
            "objective": [[goal.name, direction] for goal, direction in goals],
            "constraints": [constraint.text for constraint in settings.constraints],
            "tasks": exams,
            "space": [_described(branch) for branch in self.space.branches],
            "calibrations": {name: c.corpus_id for name, c in sorted(subject.calibrations.items())},
            "probes": {name: c.corpus_id for name, c in sorted(subject.probes.items())},
            "sampler": [settings.sampler, settings.seed],
            "pruning": None if settings.pruning is None else settings.pruning.p,
        }
        return json.loads(canonical_json(told))


def prepare_search(search: Search) -> Quest:
    """Resolve a search file.

    Raises:
        InputError: a wrong setting, nothing to search, selection text that a test task or a data set's own
            test split holds as well, or a mean of unlike perplexities.
    """
    settings = search.search
    spaces: list[Space] = []
    rules: dict[str, Request | str] = {}
    named = list(dict.fromkeys(name for measure in search.measures for name in measure.named))
    for name in named:
        _refuse_test_split(search, name)

    def requests(checkpoint: Checkpoint) -> tuple[Request, ...]:
        space = space_of(settings.methods, checkpoint.shape, settings.budgets)
        spaces.append(space)
        for branch in space.branches:
            rules[branch.label] = _request(checkpoint, branch, dict(branch.rule))
        tried = [*rules.values(), *(r for branch in space.branches for r in _typical(checkpoint, branch))]
        return tuple(request for request in tried if isinstance(request, Request))

    subject = subject_of(search.experiment(), search.models[0], requests)
    looked_at = {f"selection task '{t.name}'": t.texts for t in subject.tasks if t.role == "selection"}
    for overlap in find_overlaps(looked_at, subject.tasks):
        raise InputError(f"{overlap.sentence}: a search may not look at text of a test task")
    exams = {task.name: task for task in subject.tasks if task.name in named}
    for measure in search.measures:
        _check_mean(measure, [exams[name] for name in measure.named])
    return Quest(search=search, subject=subject, exams=tuple(exams.values()), space=spaces[0], rules=rules)


def _refuse_test_split(search: Search, name: str) -> None:
    """A data set's own test split is kept for tests, whatever role a file gives it."""
    task = search.tasks[name]
    if isinstance(task, PerplexityTask) and task.recipe is not None:
        recipe = recipe_named(task.recipe)
        dataset, split = recipe.dataset, recipe.split
    elif isinstance(task, PerplexityTask | ChoiceTask) and task.text is not None:
        spec = parse_spec(task.text, search.base)
        dataset, split = spec.source, spec.split
    else:
        return
    if split == "test":
        raise InputError(
            f"the objective's task '{name}' reads the test split of {dataset}, which nothing may be chosen "
            "by: take its train or validation split"
        )


def _check_mean(measure: Measure, tasks: Sequence[TaskData]) -> None:
    """Perplexities may be averaged over texts, but only under one recipe."""
    if measure.retained or not tasks or tasks[0].kind != "perplexity":
        return
    recipes = [{name: v for name, v in task.recipe.items() if name != "windows"} for task in tasks]
    if unlike := [name for name in recipes[0] if any(recipe[name] != recipes[0][name] for recipe in recipes)]:
        raise InputError(
            f"{measure.name} is a mean over unlike recipes (other {', '.join(unlike)}): give the tasks one "
            "recipe, or average with retained: true"
        )


def _typical(checkpoint: Checkpoint, branch: Branch) -> Iterator[Request | str]:
    """Requests that between them need whatever a setting of the branch needs.

    What is needed depends on listed values and not on where in its range a number lies.
    """
    values = [
        distribution.values if isinstance(distribution, Choices) else (distribution.low, distribution.high)
        for distribution in branch.space.values()
    ]
    for chosen in itertools.islice(itertools.product(*values), MOST_NEEDS):
        params = {**branch.entry.params, **dict(zip(branch.space, chosen, strict=True))}
        yield _request(checkpoint, branch, params)


def _request(checkpoint: Checkpoint, branch: Branch, params: dict[str, Any]) -> Request | str:
    entry = branch.entry.entry().model_copy(update={"params": params})
    try:
        parse_params(method_named(entry.method), params)
        return request_of(checkpoint, entry, branch.asked)
    except InputError as error:
        return str(error)


def _described(branch: Branch) -> Json:
    space = {name: repr(distribution) for name, distribution in branch.space.items()}
    return [branch.label, branch.entry.params, space]
