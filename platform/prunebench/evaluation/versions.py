"""Versions of the evaluators, apart from them: a driver writes keys without importing torch."""

from collections.abc import Mapping
from typing import Final

SCORERS: Final[Mapping[str, str]] = {"perplexity": "perplexity-1", "choice": "choice-1"}
"""Kind of task -> version, part of every unit's key: raised whenever a value could change."""
