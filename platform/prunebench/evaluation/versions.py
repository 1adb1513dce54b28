"""What is known of the evaluators apart from them: a driver writes keys without importing torch."""

from collections.abc import Mapping
from typing import Final, Literal

SCORERS: Final[Mapping[str, str]] = {"perplexity": "perplexity-1", "choice": "choice-1"}
"""Kind of task -> version, part of every unit's key: raised whenever a value could change."""

METRICS: Final[Mapping[str, Mapping[str, Literal["minimize", "maximize"]]]] = {
    "perplexity": {"perplexity": "minimize"},
    "choice": {"acc": "maximize", "acc_norm": "maximize"},
}
"""Kind of task -> each metric that it measures, and which way is better."""
