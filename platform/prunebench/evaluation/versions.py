"""What is known of the evaluators apart from them: a driver writes keys without importing torch."""

from collections.abc import Mapping
from typing import Final, Literal

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
}
"""Kind of task -> each metric that it measures, and which way is better."""
