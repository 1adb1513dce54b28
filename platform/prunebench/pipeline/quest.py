"""From a search file to a quest: the model, the space and the rules; refused here, before any work."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from prunebench.config.params import parse_params
from prunebench.config.search import Search
from prunebench.core.budget import Budget, parse_budget
from prunebench.core.fingerprint import Json, canonical_json
from prunebench.data.leaks import find_overlaps
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
    exam: TaskData
    """The task of the objective."""
    space: Space
    """As it is declared and narrowed."""
    rules: dict[str, Request | str]
    """Each branch's method as its paper sets it, or why that cannot be at this budget."""

    @property
    def viewed(self) -> Subject:
        """The subject as the search sees it: only the task of the objective."""
        return replace(self.subject, tasks=(self.exam,))

    @property
    def budget(self) -> Budget:
        """The budget of every setting."""
        return parse_budget(self.search.search.budget, self.subject.checkpoint.shape.num_layers)

    def request(self, branch: Branch, params: dict[str, Any]) -> Request | str:
        """The request of a setting, or why it cannot be."""
        return _request(self.subject.checkpoint, self.search, branch, params)

    def identity(self) -> dict[str, Json]:
        """What the study is about: settings of one study are only told apart by what this leaves out."""
        subject, settings = self.subject, self.search.search
        return json.loads(
            canonical_json(
                {
                    "model": [subject.checkpoint.weights_id, subject.entry.dtype, subject.entry.attention],
                    "budget": self.budget.layers,
                    "objective": [self.exam.version, self.exam.recipe_json, settings.objective.metric],
                    "direction": self.search.direction,
                    "space": [_described(branch) for branch in self.space.branches],
                    "calibrations": {name: c.corpus_id for name, c in sorted(subject.calibrations.items())},
                    "probes": {name: c.corpus_id for name, c in sorted(subject.probes.items())},
                    "sampler": [settings.sampler, settings.seed],
                }
            )
        )


def prepare_search(search: Search) -> Quest:
    """Resolve a search file.

    Raises:
        InputError: a wrong setting, nothing to search, or selection text that a test task holds as well.
    """
    settings = search.search
    spaces: list[Space] = []
    rules: dict[str, Request | str] = {}

    def requests(checkpoint: Checkpoint) -> tuple[Request, ...]:
        budget = parse_budget(settings.budget, checkpoint.shape.num_layers)
        space = space_of(settings.methods, checkpoint.shape, budget)
        spaces.append(space)
        for branch in space.branches:
            rules[branch.label] = _request(checkpoint, search, branch, dict(branch.rule))
        tried = [
            *rules.values(),
            *(r for branch in space.branches for r in _typical(checkpoint, search, branch)),
        ]
        return tuple(request for request in tried if isinstance(request, Request))

    subject = subject_of(search.experiment(), search.models[0], requests)
    looked_at = {f"selection task '{t.name}'": t.texts for t in subject.tasks if t.role == "selection"}
    for overlap in find_overlaps(looked_at, subject.tasks):
        raise InputError(f"{overlap.sentence}: a search may not look at text of a test task")
    exam = next(task for task in subject.tasks if task.name == settings.objective.task)
    return Quest(search=search, subject=subject, exam=exam, space=spaces[0], rules=rules)


def _typical(checkpoint: Checkpoint, search: Search, branch: Branch) -> Iterator[Request | str]:
    """Requests that between them need whatever a setting of the branch needs.

    What is needed depends on listed values and not on where in its range a number lies.
    """
    values = [
        distribution.values if isinstance(distribution, Choices) else (distribution.low, distribution.high)
        for distribution in branch.space.values()
    ]
    for chosen in itertools.islice(itertools.product(*values), MOST_NEEDS):
        params = {**branch.entry.params, **dict(zip(branch.space, chosen, strict=True))}
        yield _request(checkpoint, search, branch, params)


def _request(checkpoint: Checkpoint, search: Search, branch: Branch, params: dict[str, Any]) -> Request | str:
    entry = branch.entry.entry().model_copy(update={"params": params})
    try:
        parse_params(method_named(entry.method), params)
        return request_of(checkpoint, entry, search.search.budget)
    except InputError as error:
        return str(error)


def _described(branch: Branch) -> Json:
    space = {name: repr(distribution) for name, distribution in branch.space.items()}
    return [branch.label, branch.entry.params, space]
