"""One search file: the pieces of an experiment, and what is searched for on them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictInt, field_validator, model_validator

from prunebench.config.base import Strict, holds_password, nearest
from prunebench.config.experiment import (
    Experiment,
    MethodEntry,
    Setting,
    load_experiment,
    load_setting,
    read_yaml,
)
from prunebench.config.objectives import Constraint, Direction, Objective
from prunebench.methods import method_named

Scalar = bool | int | float | str | None


def _listed(given: Any) -> Any:  # noqa: ANN401 (whatever the file holds)
    """One objective as a list of one."""
    return [given] if isinstance(given, dict) else given


class Range(Strict):
    """A part of a parameter's range, both ends included; the method's own end where one is not given."""

    low: float | int | None = None
    high: float | int | None = None


class SearchedMethod(Strict):
    """A method, what is fixed of it, and what is narrowed of its space."""

    method: str
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters that are not searched."""
    space: dict[str, Range | list[Scalar] | Scalar] = Field(default_factory=dict)
    """Parameter -> part of what is searched: a range, a list of values or one value. A parameter for which
    the method declares nothing may be added here with both ends or all values."""
    calibration: str = "default"
    """Name of an entry of `calibrations`."""
    probe: str = "default"
    """Name of an entry of `probes`; read only if the method asks a probe."""

    @model_validator(mode="after")
    def has_valid_names(self) -> "SearchedMethod":
        """Refuse parameters that the method does not have, or that are both fixed and searched."""
        self.entry()
        valid = [field.name for field in dataclasses.fields(method_named(self.method).params)]
        for name in self.space:
            if name not in valid:
                raise ValueError(f"{self.method} has no parameter '{name}': {nearest(name, valid)}")
            if name in self.params:
                raise ValueError(f"{self.method}: '{name}' stands in both params and space: choose one")
        return self

    def entry(self) -> MethodEntry:
        """The method as an experiment names it."""
        return MethodEntry(
            method=self.method, params=self.params, calibration=self.calibration, probe=self.probe
        )


class Pruning(Strict):
    """When a trial is given up before all of its documents are scored."""

    p: float = Field(0.1, gt=0, lt=1)
    """From this p-value of Wilcoxon's signed-rank test on, against the best trial so far on their common
    documents. It is tested again after each range of documents: take less than a single test would."""


class SearchSettings(Strict):
    """What is searched, for what, and how."""

    methods: tuple[SearchedMethod, ...] = Field(min_length=1)
    budget: StrictInt | str | tuple[StrictInt | str, ...]
    """Layer-equivalents: an integer, or ratio:0.25. Of a list, each method is tried at each budget: a choice
    between budgets needs several objectives or constraints."""
    objective: Annotated[tuple[Objective, ...], BeforeValidator(_listed), Field(min_length=1)]
    """One, or a list: then all that no other setting beats in every one of them are chosen."""
    constraints: tuple[Constraint, ...] = ()
    trials: int = Field(50, ge=1)
    """Most parameter settings to try, those of interrupted runs included. A finite space may end before."""
    sampler: Literal["auto", "grid", "tpe", "random", "nsga2"] = "auto"
    """auto: every setting where there are at most `trials`; else TPE, or NSGA-II for several objectives."""
    pruning: Pruning | None = None
    """Stop hopeless trials early; by default every trial is evaluated whole."""
    seed: int = Field(0, ge=0)
    parallel: int = Field(1, ge=1)
    """Trials that are asked together, and run together on the executor's workers."""
    name: str = Field("search", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the study in its storage."""
    storage: str | None = Field(None, repr=False, exclude=True)
    """URL of a database that holds the study; by default a journal in the store, trials/NAME.journal."""

    @field_validator("storage")
    @classmethod
    def holds_no_password(cls, url: str | None) -> str | None:
        """Refuse passwords: the file, the command line and a job's entrypoint are kept and shown."""
        if url is not None and holds_password(url):
            raise ValueError(
                "a password does not belong in a config or on a command line, which are kept with runs and "
                "jobs: write postgresql://user@host/db, and give it by PGPASSWORD or ~/.pgpass"
            )
        return url

    @property
    def budgets(self) -> tuple[int | str, ...]:
        """The budgets as a list."""
        return self.budget if isinstance(self.budget, tuple) else (self.budget,)

    @model_validator(mode="after")
    def is_one_search(self) -> "SearchSettings":
        """Refuse settings that mean nothing together."""
        for what, names in (
            ("budget", [str(budget) for budget in self.budgets]),
            ("objective", [objective.name for objective in self.objective]),
            ("constraint", [constraint.name for constraint in self.constraints]),
        ):
            if doubled := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"the {what} {doubled[0]} stands twice")
        if not self.budgets:
            raise ValueError("an empty list of budgets leaves nothing to try")
        first = self.objective[0]
        if self.pruning is not None and (len(self.objective) > 1 or first.task is None):
            raise ValueError("pruning compares documents of one task: it goes with one objective of one task")
        return self


class Search(Setting):
    """The whole file of a search."""

    search: SearchSettings

    @field_validator("models")
    @classmethod
    def is_one_model(cls, models: tuple[Any, ...]) -> tuple[Any, ...]:
        """A study tunes one model."""
        if len(models) > 1:
            raise ValueError(
                f"a search tunes one model, and this file has {len(models)}: write one file each"
            )
        return models

    @model_validator(mode="after")
    def has_an_objective(self) -> "Search":
        """Refuse objectives that are not measured or may not be looked at, and names that are not defined."""
        for measure in self.measures:
            measure.check(self.tasks)
        self.check_names([method.entry() for method in self.search.methods])
        return self

    @property
    def measures(self) -> tuple[Objective | Constraint, ...]:
        """Everything that a trial is judged by."""
        return (*self.search.objective, *self.search.constraints)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Which way each objective is better."""
        return tuple(objective.aim(self.tasks) for objective in self.search.objective)

    def experiment(self) -> Experiment:
        """The experiment of the methods as they are without a search, at the search's budget."""
        shared = {name: getattr(self, name) for name in Setting.model_fields}
        methods = tuple(method.entry() for method in self.search.methods)
        return Experiment(**shared, methods=methods, budgets=self.search.budgets)


def load_search(path: Path, overrides: Sequence[str] = ()) -> Search:
    """Read and check a search file; arguments and errors as `load_setting`.

    A study without a name is called like the file.
    """
    search = load_setting(Search, path, overrides)
    if "name" in search.search.model_fields_set:
        return search
    return load_setting(Search, path, [*overrides, f"search.name={path.stem}"])


def load_job(path: Path, overrides: Sequence[str] = ()) -> tuple[Literal["run", "search"], Setting]:
    """Read and check a file of either kind; arguments and errors as `load_setting`.

    Returns: the verb that runs it, and what it holds. A search is what has a section `search`.
    """
    data = read_yaml(path)
    if isinstance(data, dict) and "search" in data:
        return "search", load_search(path, overrides)
    return "run", load_experiment(path, overrides)
