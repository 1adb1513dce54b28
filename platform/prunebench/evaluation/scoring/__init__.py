"""Graders: from what a model wrote to metrics."""

from prunebench.evaluation.scoring.base import Grader
from prunebench.evaluation.scoring.integer import Integer


def grader_named(name: str, *, allow_code_execution: bool) -> Grader:
    """The grader of that name.

    Raises:
        KeyError: there is none.
    """
    del allow_code_execution
    return {"integer": Integer()}[name]
