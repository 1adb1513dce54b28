"""Budgets: N layer-equivalents, given as a count or as `ratio:r` of the layers."""

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from prunebench.core.shape import ModelShape
from prunebench.errors import BudgetError


def round_half_up(value: float | Decimal) -> int:
    """Round to the nearest integer, halves up (the papers round 10.5 to 11; Python's round gives 10)."""
    return int(Decimal(value).quantize(Decimal(1), rounding=ROUND_HALF_UP))


@dataclass(frozen=True, slots=True)
class Budget:
    """N layer-equivalents to remove, at least 1."""

    layers: int

    def params(self, shape: ModelShape) -> int:
        """Projection parameters that the budget stands for: N·P_layer."""
        return self.layers * shape.params_per_layer

    def check(self, prunable: int, num_layers: int, why: str = "one block has to stay") -> None:
        """Raise BudgetError when fewer than N of the `num_layers` layers are prunable."""
        if self.layers > prunable:
            raise BudgetError(
                f"cannot remove {self.layers} of {num_layers} layers: at most {prunable} ({why})"
            )


def parse_budget(text: int | str, num_layers: int) -> Budget:
    """Read a budget: an integer N, or `ratio:r` with 0 < r < 1 for round-half-up(r·L).

    Raises:
        BudgetError: not a number, zero, negative, or at least as many as there are layers.
    """
    spelled = str(text).strip()
    if match := re.fullmatch(r"ratio:(\d*\.?\d+)", spelled):
        ratio = Decimal(match[1])
        if not 0 < ratio < 1:
            raise BudgetError(f"budget '{spelled}': the ratio must lie between 0 and 1")
        layers = round_half_up(ratio * num_layers)
        if layers < 1:
            raise BudgetError(f"budget '{spelled}' removes no layer of {num_layers}: give a larger ratio")
    elif isinstance(text, bool) or not re.fullmatch(r"[+-]?\d{1,9}", spelled):
        raise BudgetError(
            f"budget '{spelled}' is not a number of layers: write an integer such as 7, or ratio:0.25"
        )
    else:
        layers = int(spelled)
    if layers < 1:
        raise BudgetError(f"budget {layers}: at least 1 layer-equivalent has to be removed")
    budget = Budget(layers)
    budget.check(num_layers - 1, num_layers)
    return budget
