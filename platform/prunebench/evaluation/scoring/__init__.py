"""From what a model wrote to scores. Imports little: the sandbox's bare interpreter passes through here."""

from typing import TYPE_CHECKING

from prunebench.errors import InputError, ResourceError

if TYPE_CHECKING:
    from prunebench.evaluation.scoring.base import Grader


def grader_named(name: str, *, allow_code_execution: bool) -> "Grader":
    """The grader of a `Question`. Whoever generates asks for it first: hours may lie between.

    Raises:
        InputError: it runs code from models, and nobody allowed that.
        ResourceError: it does, and this machine lacks a guard of the sandbox, which is named.
    """
    if name == "program":
        if not allow_code_execution:
            raise InputError(
                "grading programs runs code that a model wrote: set allow_code_execution: true to allow it"
            )
        from prunebench.evaluation.scoring.code_grader import ProgramGrader
        from prunebench.evaluation.scoring.sandbox import missing_guard

        if guard := missing_guard():
            raise ResourceError(guard)
        return ProgramGrader()
    if name == "harness":
        from prunebench.evaluation.harness.grader import HarnessGrader

        return HarnessGrader()
    from prunebench.evaluation.scoring.text_graders import IntegerGrader, LetterGrader, NumberGrader

    return {"integer": IntegerGrader, "number": NumberGrader, "letter": LetterGrader}[name]()
