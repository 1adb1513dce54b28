"""The few exceptions prunebench raises.

Each takes one string, so that it survives pickling between Ray workers, and carries the exit code of the
command line. `ValueError` and `RuntimeError` are bases so that library users can catch the standard ones.
"""


class PrunebenchError(Exception):
    """Base of every error that is explained to a person instead of shown as a stack trace."""

    exit_code = 2


class InputError(PrunebenchError, ValueError):
    """A setting, file or argument is wrong: exit code 2."""


class BudgetError(InputError):
    """A budget that this model or method cannot meet, with both numbers."""


class UnsupportedError(InputError):
    """A model, or a method on a model, that prunebench refuses by name."""


class UnreachableError(PrunebenchError, ValueError):
    """No setting of a method removes exactly the budget: a hole in the table, not a failure."""

    exit_code = 3


class IncompleteError(PrunebenchError, RuntimeError):
    """Work failed that all the rest needs; the same command tries it again: exit code 3."""

    exit_code = 3


class ResourceError(PrunebenchError, RuntimeError):
    """The machine lacks something that was asked for: exit code 4."""

    exit_code = 4


class NonFiniteError(PrunebenchError, ArithmeticError):
    """A pruned model's logits or states are infinite or not numbers: its unit fails, others go on."""

    exit_code = 3


class ExportError(PrunebenchError, RuntimeError):
    """An exported checkpoint does not load as what its plan says: nothing is left of it."""

    exit_code = 3


class EngineError(PrunebenchError, RuntimeError):
    """An engine does not show the model that its plan says: what it would write fails, and it is closed."""

    exit_code = 3
