"""What is known of the evaluators apart from them: a driver writes keys without importing torch."""

from collections.abc import Mapping
from typing import Final, Literal

SCORERS: Final[Mapping[str, str]] = {
    "perplexity": "perplexity-1",
    "choice": "choice-1",
    "harness": "harness-1",
}
"""Kind of task -> version, part of every unit's key: raised whenever a value could change."""

METRICS: Final[Mapping[str, Mapping[str, Literal["minimize", "maximize"]]]] = {
    "perplexity": {"perplexity": "minimize"},
    "choice": {"acc": "maximize", "acc_norm": "maximize"},
    # A task of lm-eval has some of them.
    "harness": {
        "acc": "maximize",
        "acc_norm": "maximize",
        "exact_match": "maximize",
        "exact_match_strict_match": "maximize",
        "exact_match_flexible_extract": "maximize",
        "perplexity": "minimize",
    },
}
"""Kind of task -> each metric that it measures, and which way is better."""
