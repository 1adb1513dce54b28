"""A study: which settings were asked, what they came to, and which is asked next.

Ask and tell, in one process: the driver is the only writer. What a killed driver left running, and what
failed, is queued again by the next one; the trial that takes over names the one it stands for, so that none
is lost and none counts twice, wherever the driver was killed.
"""

import math
import random
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.methods.space import Choices, Distribution, Floats, Ints
from prunebench.search.samplers import Sampler, make_pruner, make_sampler
from prunebench.search.spaces import METHOD, Point, Space
from prunebench.search.storage import open_storage
from prunebench.search.trials import (
    ERROR,
    EVALUATED,
    PLAN,
    REACHED,
    RETRY_OF,
    STOPPED,
    VARIANT,
    Asked,
    Tried,
    point_of,
    told,
    tried_of,
)

SAMPLER = "sampler"
"""Attribute of a study: how it asks."""


class Study:
    """One study with its space. Use `open_study`."""

    def __init__(self, study: optuna.Study, space: Space, trials: int, seed: int) -> None:
        """Take over an opened study; `trials` is the most settings that it may ask."""
        self._study = study
        self._space = space
        self._trials = trials
        self._seed = seed
        self._running: dict[int, Trial] = {}

    @property
    def sampler(self) -> Sampler | None:
        """How the study asks; None before `begin`."""
        return self._study.user_attrs.get(SAMPLER)

    def begin(self, sampler: Sampler, space: Space, first: Sequence[Point] = ()) -> None:
        """Queue again what was left running or failed, and fix how the study asks, now that all is known.

        Args:
            sampler: ignored by a study that has begun before.
            space: what is searched: the space of the study, with lists where a range can be listed.
            first: settings that a new study asks before its sampler does, if it does not ask all.
        """
        if self.sampler is None:
            self._study.set_user_attr(SAMPLER, sampler)
        self._space = space
        trials = self._study.get_trials(deepcopy=False)
        taken_over = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        for trial in trials:
            if trial.state not in (TrialState.RUNNING, TrialState.FAIL) or trial.number in taken_over:
                continue
            # First the queue, then the end of the old trial: a kill between the two is seen by the next run.
            if point := point_of(trial):
                self._study.enqueue_trial(point, user_attrs={RETRY_OF: trial.number})
        for trial in trials:
            if trial.state == TrialState.RUNNING:
                self._study.tell(trial.number, state=TrialState.FAIL)
        if not trials and sampler != "grid":
            for point in first[: self._trials]:
                self._study.enqueue_trial(point)
        # Another seed for each resumption: the same one would begin by asking the same settings again.
        seed = self._seed + len(trials)
        self._study.sampler = make_sampler(self.sampler or sampler, seed, space, self._trials)

    def ask(self, count: int) -> list[Asked]:
        """Up to `count` settings to try now; none when all trials are asked, or all settings."""
        asked = []
        while len(asked) < count and self._has_next():
            trial = self._study.ask()
            self._running[trial.number] = trial
            asked.append(Asked(number=trial.number, point=self._suggest(trial)))
        return asked

    def resolve(self, number: int, plan_id: str, variant_key: str, *, evaluated: bool) -> None:
        """Note what a trial came to before its scores are computed, as far as the store lacks any."""
        trial = self._running[number]
        trial.set_user_attr(PLAN, plan_id)
        trial.set_user_attr(VARIANT, variant_key)
        trial.set_user_attr(EVALUATED, evaluated)
        trial.set_constraint(REACHED, 0.0)

    def report(self, number: int, scores: Mapping[int, float]) -> bool:
        """Add scores of documents to a trial; whether the pruner finds it hopeless.

        Args:
            number: of the trial.
            scores: by the document's place in the task; lower is better where the objective is minimised.
        """
        trial = self._running[number]
        for document, score in scores.items():
            trial.report(score, document)
        return trial.should_prune()

    def tell(self, number: int, values: Sequence[float], violations: Mapping[str, float]) -> None:
        """The values of a trial, one an objective; one that is not a number is a failure.

        Args:
            number: of the trial.
            values: of the objectives.
            violations: by constraint, how far it is missed: at most 0 where it is kept.
        """
        if any(map(math.isnan, (*values, *violations.values()))):
            self.fail(number, "the objective is not a number")
            return
        trial = self._running.pop(number)
        for name, excess in violations.items():
            trial.set_constraint(name, excess)
        if broken := [name for name, excess in violations.items() if excess > 0]:
            trial.set_user_attr(ERROR, f"not kept: {', '.join(broken)}")
        self._study.tell(trial, list(values))

    def reject(self, number: int, reason: str, variant_key: str | None = None) -> None:
        """The setting cannot meet the budget: a violated constraint, without a value."""
        trial = self._running.pop(number)
        trial.set_constraint(REACHED, 1.0)
        trial.set_user_attr(ERROR, reason)
        if variant_key is not None:
            trial.set_user_attr(VARIANT, variant_key)
        self._study.tell(trial, state=TrialState.PRUNED)

    def stop(self, number: int, reason: str) -> None:
        """The setting is hopeless: it has no value, and is not tried again."""
        trial = self._running.pop(number)
        trial.set_user_attr(STOPPED, True)
        trial.set_user_attr(ERROR, reason)
        self._study.tell(trial, state=TrialState.PRUNED)

    def fail(self, number: int, error: str) -> None:
        """Planning or evaluation failed: the next run tries the setting again."""
        trial = self._running.pop(number)
        trial.set_user_attr(ERROR, error)
        self._study.tell(trial, state=TrialState.FAIL)

    def tried(self) -> list[Tried]:
        """Every setting that counts, in the order in which it was asked last."""
        return [tried_of(trial) for trial in self._counted()]

    def front(self) -> list[Tried]:
        """The settings that no other beats in every objective, the first of equal values; empty if none."""
        done = {trial.number: trial for trial in self.tried() if trial.state == "complete"}
        if len(self._study.directions) > 1:
            best = [done[trial.number] for trial in self._study.best_trials if trial.number in done]
            return list({trial.values: trial for trial in reversed(best)}.values())[::-1]
        sign = 1 if self._study.direction == StudyDirection.MINIMIZE else -1
        ranked = sorted(done.values(), key=lambda trial: sign * trial.values[0])
        return ranked[:1]

    def evaluated(self) -> int:
        """Number of distinct plans that had to be scored for this study, by all its runs together."""
        trials = self._study.get_trials(deepcopy=False)
        return len({trial.user_attrs[PLAN] for trial in trials if trial.user_attrs.get(EVALUATED)})

    def importances(self) -> list[dict[str, float]]:
        """For each objective the share of each parameter in what tells good settings from bad ones.

        By PED-ANOVA, which also holds where a parameter exists in some settings only. Empty where fewer than
        two settings have values.
        """
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len({canonical_json(trial.params) for trial in trials}) < 2:
            return [{} for _ in self._study.directions]
        signs = [1 if way == StudyDirection.MINIMIZE else -1 for way in self._study.directions]
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            # It says that low targets count as good, which is why the signs are turned.
            return [
                optuna.importance.get_param_importances(self._study, target=_value(place, sign))
                for place, sign in enumerate(signs)
            ]

    @property
    def exhausted(self) -> bool:
        """Whether every setting of a finite space was asked."""
        return len(self._known()) == self._space.size

    def _counted(self) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        taken_over = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        return [trial for trial in trials if trial.number not in taken_over and point_of(trial)]

    def _known(self) -> set[str]:
        return {canonical_json(point_of(trial)) for trial in self._counted()}

    def _has_next(self) -> bool:
        if self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            return True
        if len(self._counted()) >= self._trials or self.exhausted:
            return False
        if self.sampler == "grid":
            known = self._known()
            point = next(point for point in self._grid() if canonical_json(point) not in known)
            self._study.enqueue_trial(point)
        return True

    def _grid(self) -> Iterator[Point]:
        """The settings in an order drawn from the seed, so that the first of them are spread over all."""
        size = self._space.size or 0
        order = random.Random(self._seed).sample(range(size), min(size, self._trials))
        return map(self._space.point, order)

    def _suggest(self, trial: Trial) -> Point:
        label = trial.suggest_categorical(METHOD, [branch.label for branch in self._space.branches])
        branch = self._space.branch(label)
        for parameter, distribution in branch.space.items():
            _suggest(trial, branch.name(parameter), distribution)
        return dict(trial.params)


def _value(place: int, sign: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: sign * told(trial)[place]


def _suggest(trial: Trial, name: str, distribution: Distribution) -> None:
    match distribution:
        case Choices(values):
            trial.suggest_categorical(name, values)
        case Ints(low, high):
            trial.suggest_int(name, low, high)
        case Floats(low, high):
            trial.suggest_float(name, low, high)


@contextmanager
def open_study(
    *,
    folder: Path,
    name: str,
    url: str | None,
    directions: Sequence[Literal["minimize", "maximize"]],
    identity: Mapping[str, Json],
    space: Space,
    trials: int,
    seed: int,
    pruning: float | None = None,
) -> Generator[Study]:
    """Open or make the study `name`, for this process alone.

    Args:
        folder: holds the journal NAME.journal, and what keeps a second driver away.
        name: of the study, in the journal or in the database.
        url: of a database; None for the journal.
        directions: which way each objective is better.
        identity: what the study is about; a study about something else is refused.
        space: as it is declared.
        trials: the most settings that may be asked.
        seed: of what is drawn.
        pruning: p-value from which on a trial counts as hopeless; None evaluates every trial whole.

    Raises:
        InputError: the study of that name is about something else, or the journal is another's or damaged.
        ResourceError: the storage cannot be reached, or another process searches with this study.
    """
    with open_storage(
        folder=folder,
        name=name,
        url=url,
        directions=directions,
        identity=identity,
        pruner=make_pruner(pruning),
    ) as study:
        yield Study(study, space, trials, seed)
