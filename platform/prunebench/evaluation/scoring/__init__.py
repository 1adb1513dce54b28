"""Graders: from what a model wrote to metrics."""

from prunebench.errors import InputError
from prunebench.evaluation.scoring.base import Grader


def grader_named(name: str, *, allow_code_execution: bool) -> Grader:
    """The grader of that name.

    Raises:
        InputError: there is none.
    """
    del allow_code_execution  # no grader here runs code
    if name == "harness":
        from prunebench.evaluation.harness.grader import HarnessGrader

        return HarnessGrader()
    raise InputError(f"there is no grader '{name}'; there is: harness")
