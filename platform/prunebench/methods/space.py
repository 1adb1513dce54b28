"""What a search may try of a method's parameters: plain data, from which any sampler can be fed."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from prunebench.errors import InputError

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Ints:
    """The integers from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        _ordered(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Floats:
    """The numbers from `low` to `high`, both included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        _ordered(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Choices:
    """One of these values, in this order."""

    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        """Refuse an empty list and values given twice."""
        if not self.values:
            raise InputError("an empty list of values leaves nothing to try")
        if len({(type(value), value) for value in self.values}) < len(self.values):
            raise InputError(f"a value is given twice in {list(self.values)}")


Distribution: TypeAlias = Ints | Floats | Choices


class Piece(NamedTuple):
    """A part of a continuous range, from `low` to `high`, in which every number means the same plan."""

    low: float
    high: float
    value: float | None
    """The number that stands for all; None for a limit: so narrow that it need not hold one."""


def shortest(low: float, high: float) -> float:
    """The number of fewest decimals strictly between two, as near to their middle as it can be.

    The middle itself where none of up to 15 decimals lies between.
    """
    middle = (low + high) / 2
    return next((x for digits in range(16) if low < (x := round(middle, digits)) < high), middle)


def _ordered(low: float, high: float) -> None:
    # Written so that NaN is refused as well.
    if not low <= high:
        raise InputError(f"the range from {low} to {high} is empty")
