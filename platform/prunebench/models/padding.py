"""Whether a plan fits the dense shape: removed blocks become zeros, and nothing else is needed."""

from itertools import pairwise
from typing import Final

from prunebench.core.plan import PruningPlan
from prunebench.models.family import Family

PADDED_FAMILIES: Final = frozenset(
    {"Llama", "Mistral", "Qwen2", "Qwen3", "OLMo-2", "OLMo-3", "Phi-3", "Gemma-2", "Gemma-3"}
)
"""Families of which padded models were seen to write the same in vLLM (benchmarks/padded_families.py)."""


def padded_ok(family: Family, plan: PruningPlan) -> bool:
    """Whether an engine of the dense shape can show the plan's model.

    Every kept block stays in the place of its base, so the bases have to ascend. Its tensors have the base's
    own shapes, and a sublayer whose last projection is zero adds nothing, also where a norm follows it.
    """
    ascending = all(first.base < second.base for first, second in pairwise(plan.layers))
    return ascending and family.name in PADDED_FAMILIES
