"""The grader of programs: HumanEval's original tests, the plus tests of EvalPlus.

EvalPlus is used for its data: its published `test` column holds every plus input, the expected results and
the comparison. Its package is not: `untrusted_check` runs code in the caller's process, `sanitize` parses
every slice of a response (over a minute for 2,000 lines) and keeps the longest that parses, whatever that
defines.
"""

from dataclasses import dataclass
from typing import Any, Final

from prunebench.core.unit import Generation
from prunebench.data.tasks import Question
from prunebench.evaluation.scoring.base import Graded, Verdict, verdict_metrics, verdict_of
from prunebench.evaluation.scoring.fences import defines, program_of
from prunebench.evaluation.scoring.sandbox import Limits, Outcome, Trial, run_trial
from prunebench.evaluation.versions import GRADERS

PATIENCE: Final = 4
"""Wall time allowed for each second of CPU time: workers share processors."""
_SHOWN: Final = 4000
"""Characters of a program that are kept."""


@dataclass(frozen=True)
class ProgramGrader:
    """Runs the extracted program against its tests, in the sandbox.

    The reference is a mapping: `entry_point`, `prompt` (code that a response may go on with; else empty),
    `before` (imports and functions to stand above the response's code), `setup` and `test` of the sandbox,
    and `cpu_seconds`, the CPU time that the program may take for all its tests.
    """

    version = GRADERS["program"]

    def grade(self, question: Question, generation: Generation) -> Graded:
        """Score one generation.

        Raises:
            ResourceError: this machine lacks a guard of the sandbox.
        """
        reference: Any = question.reference
        name = reference["entry_point"]
        program = program_of(generation.text, name, reference["prompt"], reference["before"])
        compiles = program is not None and defines(program, name)
        outcome = Outcome(
            verdict="failed", error="the program does not compile or does not define the function"
        )
        if program is not None and compiles:
            trial = Trial(program=program, entry_point=name, setup=reference["setup"], test=reference["test"])
            seconds = reference["cpu_seconds"]
            outcome = run_trial(trial, Limits(cpu_seconds=seconds, wall_seconds=PATIENCE * seconds))
        verdict = _verdict(generation, program, outcome)
        metrics = verdict_metrics(verdict)
        return Graded(
            metrics={
                **metrics,
                "compilable": float(compiles),
                "acc_compilable": metrics["acc"] if compiles else 0.0,
            },
            weights={"acc_compilable": float(compiles)},
            detail={
                "verdict": verdict,
                "program": None if program is None else program[:_SHOWN],
                "error": outcome.error,
            },
        )


def _verdict(generation: Generation, program: str | None, outcome: Outcome) -> Verdict:
    if program is not None and outcome.verdict == "timed_out":
        return "timed_out"
    return verdict_of(generation, None if program is None else outcome.verdict == "passed")
