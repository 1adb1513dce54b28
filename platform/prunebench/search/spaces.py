"""The space of a study: a branch for each method and budget, with what is tried of each parameter."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from prunebench.config.params import parse_params
from prunebench.config.search import Range, SearchedMethod
from prunebench.core.budget import Budget, parse_budget
from prunebench.core.shape import ModelShape
from prunebench.errors import InputError
from prunebench.methods import method_named
from prunebench.methods.base import AnyMethod
from prunebench.methods.space import Choices, Distribution, Floats, Ints, Scalar

METHOD = "method"
"""Name of the parameter of a study that says which branch a setting is of."""

Point: TypeAlias = dict[str, Scalar]
"""A setting as a study holds it: the branch's label, and `LABEL.NAME` for each of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One method at one budget, with its part of the space."""

    label: str
    """The method's name; with a number where the method stands in the file again, and with the budget where
    there are several."""
    entry: SearchedMethod
    asked: int | str
    """The budget as it was written."""
    budget: Budget
    space: Mapping[str, Distribution]
    rule: Mapping[str, Any]
    """Parameters of the method's own rule: those that are fixed, without any that the method lets search."""

    @property
    def method(self) -> AnyMethod:
        """The method itself."""
        return method_named(self.entry.method)

    @property
    def size(self) -> int | None:
        """Number of settings, None where there is no end to them."""
        sizes = [size_of(distribution) for distribution in self.space.values()]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    def name(self, parameter: str) -> str:
        """What the study calls a parameter."""
        return f"{self.label}.{parameter}"

    def point(self, index: int) -> Point:
        """The setting of that number, 0 ≤ index < size; the last parameter changes first."""
        point: Point = {}
        for parameter, distribution in reversed(list(self.space.items())):
            index, digit = divmod(index, size_of(distribution) or 1)
            point[self.name(parameter)] = value_at(distribution, digit)
        return {METHOD: self.label, **dict(reversed(point.items()))}

    def start(self, shape: ModelShape, chosen: Mapping[str, Any]) -> Point | None:
        """The setting that the paper's rule comes to, if that can be told and was not narrowed away.

        Args:
            shape: of the model.
            chosen: what the method chose where its parameters left room, under its rule.
        """
        values = {**self.method.start(shape, self.budget), **chosen}
        if not all(name in values and holds(given, values[name]) for name, given in self.space.items()):
            return None
        return {METHOD: self.label, **{self.name(name): values[name] for name in self.space}}

    def params(self, point: Mapping[str, Scalar]) -> dict[str, Any]:
        """The method's parameters at a setting."""
        return {**self.entry.params, **{name: point[self.name(name)] for name in self.space}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All that a study may try."""

    branches: tuple[Branch, ...]

    @property
    def size(self) -> int | None:
        """Number of settings, None where there is no end to them."""
        sizes = [branch.size for branch in self.branches]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def branch(self, label: str) -> Branch:
        """The branch of that label."""
        return next(branch for branch in self.branches if branch.label == label)

    def point(self, index: int) -> Point:
        """The setting of that number, 0 ≤ index < size."""
        for branch in self.branches:
            if index < (size := branch.size or 0):
                return branch.point(index)
            index -= size
        raise IndexError(index)

    def endless(self) -> list[str]:
        """The parameters that keep the space from being finite."""
        return [
            branch.name(parameter)
            for branch in self.branches
            for parameter, distribution in branch.space.items()
            if size_of(distribution) is None
        ]


def space_of(entries: Sequence[SearchedMethod], shape: ModelShape, budgets: Sequence[int | str]) -> Space:
    """What the methods declare at these budgets, as far as their entries leave it.

    Raises:
        InputError: a range or value outside what the method declares, or nothing that could be tried.
    """
    several = len(budgets) > 1
    branches = tuple(
        Branch(
            label=_name(entries, place) + (f"@{asked}" if several else ""),
            entry=entry,
            asked=asked,
            budget=budget,
            space=_space(entry, declared),
            rule={name: value for name, value in entry.params.items() if name not in declared},
        )
        for place, entry in enumerate(entries)
        for asked, budget in ((asked, parse_budget(asked, shape.num_layers)) for asked in budgets)
        for declared in (method_named(entry.method).space(shape, budget, entry.params),)
    )
    space = Space(branches=branches)
    if space.size == 1:
        raise InputError(
            f"{branches[0].label} at budget {branches[0].budget.layers} leaves one setting, and so nothing "
            "to search: widen its space, or use `prunebench run`"
        )
    return space


def _name(entries: Sequence[SearchedMethod], place: int) -> str:
    method = entries[place].method
    earlier = sum(entry.method == method for entry in entries[:place])
    return f"{method}{earlier + 1}" if earlier else method


def _space(entry: SearchedMethod, declared: Mapping[str, Distribution]) -> dict[str, Distribution]:
    """What the method declares, without what the entry fixes, narrowed and widened as it says."""
    space = {name: given for name, given in declared.items() if name not in entry.params}
    for name, given in entry.space.items():
        space[name] = narrowed(declared.get(name), given, f"{entry.method}: the space of {name}")
        if name not in declared:
            _check_values(entry, name, space[name])
    return space


def narrowed(
    declared: Distribution | None, given: Range | Sequence[Scalar] | Scalar, where: str
) -> Distribution:
    """The part of `declared` that a file leaves; without `declared`, what the file says.

    Raises:
        InputError: it reaches outside `declared`, leaves nothing, or does not fit it.
    """
    try:
        if isinstance(given, Range):
            return _part(declared, given)
        listed = isinstance(given, Sequence) and not isinstance(given, str)
        choices = Choices(tuple(given) if listed else (given,))
        for value in choices.values:
            _inside(declared, value)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return choices


def _part(declared: Distribution | None, given: Range) -> Distribution:
    if isinstance(declared, Choices):
        raise InputError(f"it holds the values {list(declared.values)}: list some of them")
    low = given.low if declared is None or given.low is not None else declared.low
    high = given.high if declared is None or given.high is not None else declared.high
    if low is None or high is None:
        raise InputError("the method declares no range of it: give low and high")
    for end in (low, high):
        _inside(declared, end)
    if isinstance(low, int) and isinstance(high, int) and not isinstance(declared, Floats):
        return Ints(low, high)
    return Floats(low, high)


def _inside(declared: Distribution | None, value: Scalar) -> None:
    """Refuse a value that `declared` does not hold."""
    match declared:
        case Choices(values):
            if not any(value == known and type(value) is type(known) for known in values):
                raise InputError(f"{value!r} is not one of {list(values)}")
        case Ints(low, high):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InputError(f"{value!r} is not an integer from {low} to {high}")
        case Floats(low, high):
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise InputError(f"{value!r} is not a number from {low} to {high}")


def holds(distribution: Distribution, value: Scalar) -> bool:
    """Whether a distribution has a value."""
    try:
        _inside(distribution, value)
    except InputError:
        return False
    return True


def _check_values(entry: SearchedMethod, name: str, distribution: Distribution) -> None:
    values = (
        distribution.values if isinstance(distribution, Choices) else (distribution.low, distribution.high)
    )
    for value in values:
        parse_params(method_named(entry.method), {**entry.params, name: value})


def size_of(distribution: Distribution) -> int | None:
    """Number of values, None for a continuous range."""
    match distribution:
        case Choices(values):
            return len(values)
        case Ints(low, high):
            return high - low + 1
        case Floats(low, high):
            return 1 if low == high else None


def value_at(distribution: Distribution, index: int) -> Scalar:
    """The value of that number of a distribution that is not continuous."""
    return distribution.values[index] if isinstance(distribution, Choices) else distribution.low + index
