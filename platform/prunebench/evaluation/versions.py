"""What is known of the evaluators apart from them: a driver writes keys without importing torch."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Directions: TypeAlias = Mapping[str, Literal["minimize", "maximize"]]
"""Metric -> which way is better."""

SCORERS: Final[Mapping[str, str]] = {"perplexity": "perplexity-1", "choice": "choice-1"}
"""Kind of task -> version, part of every unit's key: raised whenever a value could change."""

_DIAGNOSTICS_VERSION = "diagnostics-1"

GRADERS: Final[Mapping[str, str]] = {
    name: f"{name}-{number} {_DIAGNOSTICS_VERSION}"
    for name, number in (("integer", 1), ("number", 1), ("letter", 1), ("program", 1))
}
"""Grader of a generative task -> version, in the place that `SCORERS` has for the others: a grader's number
is raised whenever one of its values could change, that of the diagnostics when one of theirs could."""

VERDICTS: Final[Directions] = {
    "acc": "maximize",
    "no_answer": "minimize",
    "limit_hit": "minimize",
    "timed_out": "minimize",
}
"""1 where a generation got this verdict, else 0. Those that are wrong make up the rest."""

DIAGNOSTICS: Final[Directions] = {
    "token_limit_hit": "minimize",
    "repetition": "minimize",
    "unclosed_think": "minimize",
    "tokens": "minimize",
}
"""What is measured of every generation, whatever its grader; `evaluation.scoring.diagnostics` defines it."""

GRADED: Final[Mapping[str, Directions]] = {
    "integer": {**VERDICTS, "arithmetic": "maximize"},
    "number": {**VERDICTS, "arithmetic": "maximize"},
    "letter": {**VERDICTS, "arithmetic": "maximize"},
    "program": {**VERDICTS, "compilable": "maximize", "acc_compilable": "maximize"},
}
"""Grader -> the metrics of its own."""

METRICS: Final[Mapping[str, Directions]] = {
    "perplexity": {"perplexity": "minimize"},
    "choice": {"acc": "maximize", "acc_norm": "maximize"},
    "reasoning": {**VERDICTS, **DIAGNOSTICS},
}
"""Kind of task in a file -> each metric that all its tasks measure, and which way is better."""
