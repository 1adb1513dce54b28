"""A study: which settings were asked, what they came to, and which is asked next.

Ask and tell, in one process: the driver is the only writer. What a killed driver left running, and what
failed, is queued again by the next one; the trial that takes over names the one it stands for, so that none
is lost and none counts twice, wherever the driver was killed.
"""

import math
import random
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import optuna
from filelock import FileLock, Timeout
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.errors import InputError, ResourceError
from prunebench.methods.space import Choices, Distribution, Floats, Ints, Scalar
from prunebench.search.spaces import METHOD, Point, Space

Sampler: TypeAlias = Literal["grid", "tpe", "random", "nsga2"]

IDENTITY, SAMPLER = "identity", "sampler"
"""Attributes of a study: what it is about, and how it asks."""
RETRY_OF, PLAN, VARIANT, EVALUATED, ERROR = "retry_of", "plan_id", "variant_key", "evaluated", "error"
"""Attributes of a trial: the trial that it stands for, what it resolved to, whether the store lacked any of
its scores, and why it has no value."""
REACHED = "budget_reached"
"""The constraint: at most 0 where the budget was met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A setting to be tried."""

    number: int
    point: Point

    @property
    def label(self) -> str:
        """The branch of the space."""
        return str(self.point[METHOD])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that counts: it was asked once, however often it had to be run."""

    number: int
    point: Point
    state: Literal["complete", "infeasible", "failed", "open"]
    value: float | None
    plan_id: str | None
    variant_key: str | None
    error: str | None


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

    def begin(self, sampler: Sampler, space: Space) -> None:
        """Queue again what was left running or failed, and fix how the study asks, now that all is known.

        Args:
            sampler: ignored by a study that has begun before.
            space: what is searched: the space of the study, with lists where a range can be listed.
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
            if point := _point(trial):
                self._study.enqueue_trial(point, user_attrs={RETRY_OF: trial.number})
        for trial in trials:
            if trial.state == TrialState.RUNNING:
                self._study.tell(trial.number, state=TrialState.FAIL)
        # Another seed for each resumption: the same one would begin by asking the same settings again.
        self._study.sampler = _sampler(self.sampler or sampler, self._seed + len(trials), space)

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

    def tell(self, number: int, value: float) -> None:
        """The value of a trial; one that is not a number is a failure."""
        if math.isnan(value):
            self.fail(number, "the objective is not a number")
            return
        self._study.tell(self._running.pop(number), value)

    def reject(self, number: int, reason: str, variant_key: str | None = None) -> None:
        """The setting cannot meet the budget: a violated constraint, without a value."""
        trial = self._running.pop(number)
        trial.set_constraint(REACHED, 1.0)
        trial.set_user_attr(ERROR, reason)
        if variant_key is not None:
            trial.set_user_attr(VARIANT, variant_key)
        self._study.tell(trial, state=TrialState.PRUNED)

    def fail(self, number: int, error: str) -> None:
        """Planning or evaluation failed: the next run tries the setting again."""
        trial = self._running.pop(number)
        trial.set_user_attr(ERROR, error)
        self._study.tell(trial, state=TrialState.FAIL)

    def tried(self) -> list[Tried]:
        """Every setting that counts, in the order in which it was asked last."""
        return [_tried(trial) for trial in self._counted()]

    def best(self) -> Tried | None:
        """The setting of the best value, the first on ties; None where none has a value."""
        done = [trial for trial in self.tried() if trial.state == "complete" and trial.value is not None]
        sign = 1 if self._study.direction == optuna.study.StudyDirection.MINIMIZE else -1
        return min(done, key=lambda trial: sign * (trial.value or 0.0), default=None)

    def evaluated(self) -> int:
        """Number of distinct plans that had to be scored for this study, by all its runs together."""
        trials = self._study.get_trials(deepcopy=False)
        return len({trial.user_attrs[PLAN] for trial in trials if trial.user_attrs.get(EVALUATED)})

    @property
    def exhausted(self) -> bool:
        """Whether every setting of a finite space was asked."""
        return len(self._known()) == self._space.size

    def _counted(self) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        taken_over = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        return [trial for trial in trials if trial.number not in taken_over and _point(trial)]

    def _known(self) -> set[str]:
        return {canonical_json(_point(trial)) for trial in self._counted()}

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


def _suggest(trial: Trial, name: str, distribution: Distribution) -> None:
    match distribution:
        case Choices(values):
            trial.suggest_categorical(name, values)
        case Ints(low, high):
            trial.suggest_int(name, low, high)
        case Floats(low, high):
            trial.suggest_float(name, low, high)


def _point(trial: FrozenTrial) -> Point:
    """The setting of a trial, also of one that waits or was killed before all of it was drawn."""
    fixed: Mapping[str, Scalar] = trial.system_attrs.get("fixed_params", {})
    return {**fixed, **trial.params}


def _tried(trial: FrozenTrial) -> Tried:
    states: dict[TrialState, Literal["complete", "infeasible", "failed"]] = {
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "infeasible",
        TrialState.FAIL: "failed",
    }
    return Tried(
        number=trial.number,
        point=_point(trial),
        state=states.get(trial.state, "open"),
        value=trial.value if trial.state == TrialState.COMPLETE else None,
        plan_id=trial.user_attrs.get(PLAN),
        variant_key=trial.user_attrs.get(VARIANT),
        error=trial.user_attrs.get(ERROR),
    )


def _sampler(sampler: Sampler, seed: int, space: Space) -> BaseSampler:
    match sampler:
        case "tpe":
            with warnings.catch_warnings():
                # `group` is marked experimental; it models the parameters of each method on their own.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return TPESampler(seed=seed, multivariate=True, group=len(space.branches) > 1)
        case "nsga2":
            return NSGAIISampler(seed=seed)
        case "grid" | "random":
            # A grid is queued setting by setting, and its sampler never asked.
            return RandomSampler(seed=seed)


def sampler_for(asked: Literal["auto"] | Sampler, space: Space, trials: int) -> Sampler:
    """The sampler of a new study: for `auto` every setting where that takes at most `trials`, else TPE.

    Raises:
        InputError: a grid over a continuous range.
    """
    if asked == "auto":
        return "grid" if space.size is not None and space.size <= trials else "tpe"
    if asked == "grid" and space.size is None:
        raise InputError(f"a grid needs a finite space: list the values of {', '.join(space.endless())}")
    return asked


@contextmanager
def open_study(
    *,
    folder: Path,
    name: str,
    url: str | None,
    direction: Literal["minimize", "maximize"],
    identity: Mapping[str, Json],
    space: Space,
    trials: int,
    seed: int,
) -> Generator[Study]:
    """Open or make the study `name`, for this process alone.

    Args:
        folder: holds the journal NAME.journal, and what keeps a second driver away.
        name: of the study, in the journal or in the database.
        url: of a database; None for the journal.
        direction: which way the objective is better.
        identity: what the study is about; a study about something else is refused.
        space: as it is declared.
        trials: the most settings that may be asked.
        seed: of what is drawn.

    Raises:
        InputError: the study of that name is about something else, or the journal is damaged.
        ResourceError: the storage cannot be reached, or another process searches with this study.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lock = FileLock(folder / f".{name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise ResourceError(
            f"another process runs the search '{name}' on this store: wait for it, or change search.name"
        ) from error
    try:
        storage = _journal(folder / f"{name}.journal") if url is None else _database(url)
        study = optuna.create_study(
            storage=storage, study_name=name, direction=direction, load_if_exists=True
        )
        _check_identity(study, dict(identity))
        yield Study(study, space, trials, seed)
    finally:
        lock.release()


def _journal(path: Path) -> BaseStorage:
    _mend(path)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError) as error:
        raise InputError(f"{path} is no journal of a study, or damaged ({error}): move it away") from error


def _mend(path: Path) -> None:
    """Cut off a torn last line, which a killed writer leaves and which no line may follow."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _database(url: str) -> BaseStorage:
    # Imported here because a journal does without it.
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        return RDBStorage(url)
    # Neither message is passed on, nor the URL: both may hold a password.
    except ArgumentError as error:
        raise InputError(
            "search.storage is no URL of a kind of database known here, such as sqlite:///study.db"
        ) from error
    except (SQLAlchemyError, ImportError) as error:
        raise ResourceError(
            f"the study's storage ({url.partition(':')[0]}) cannot be opened: {type(error).__name__}; "
            "check search.storage, or leave it out for a journal in the store"
        ) from error


def _check_identity(study: optuna.Study, identity: dict[str, Any]) -> None:
    known = study.user_attrs.get(IDENTITY)
    if known is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(IDENTITY, identity)
        return
    if known == identity:
        return
    differs = [key for key in identity if (known or {}).get(key) != identity[key]]
    raise InputError(
        f"the study '{study.study_name}' is of another search (other {', '.join(differs)}): "
        "give search.name another name, or restore the settings"
    )
