"""Proof that an engine shows a plan's model: log-probabilities of a fixed text, against the view in memory.

The text is read with teacher forcing: its own tokens, whatever the model would write.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from prunebench.core.plan import PruningPlan
from prunebench.errors import EngineError, NonFiniteError
from prunebench.models.load import DenseModel
from prunebench.models.scoring import LogProbs, Row, token_logprobs

TEXT: Final = (
    "The harbour was quiet before dawn. A ship of 240 tons lay at the pier, and three men counted its "
    "cargo: 12 crates of tea, 5 of silk, 31 of iron nails. If each crate of nails weighs 18 pounds, how much "
    "do they weigh together? Multiply 31 by 18 and you get 558. In Python: print(31 * 18)."
)
TOKENS: Final = 96
"""Most tokens of the text that are read."""
LIMITS: Final = {"float32": 1e-4, "float16": 0.03, "bfloat16": 0.2}
"""Largest root mean square difference over the text, in nats a token: what is left to rounding.

Two implementations sum in other orders. Measured with SmolLM2 on a CPU, dense and pruned: at most 3e-5 in
float32, 0.011 in float16, 0.076 in bfloat16; against 5e-4 (in float32) where one tensor of thirty layers is
0.1 % off, and 0.59 in any of them where one down_proj is missing.
"""


class Proof:
    """Compares one engine with views of one dense model."""

    def __init__(
        self, ids: Sequence[int], dense: Callable[[], DenseModel], ask: Callable[[Sequence[int]], LogProbs]
    ) -> None:
        """Keep what is compared.

        Args:
            ids: the text's tokens, at least two.
            dense: gives the dense model in memory.
            ask: gives an engine's log-probabilities of all tokens but the first.
        """
        self._row = Row(np.asarray(ids, dtype=np.int64))
        self._dense, self._ask = dense, ask
        self._expected: dict[str, LogProbs] = {}

    def expected(self, plan: PruningPlan) -> LogProbs:
        """The log-probabilities of the view, computed once a plan.

        Raises:
            NonFiniteError: the pruned model itself has logits that are not finite.
        """
        if plan.plan_id not in self._expected:
            ((_, (values,)),) = token_logprobs(self._dense(), [plan], [self._row])
            if not np.isfinite(values).all():
                raise NonFiniteError(f"logits of plan {plan.plan_id} on the proof's text are not finite")
            self._expected[plan.plan_id] = values
        return self._expected[plan.plan_id]

    def difference(self, plan: PruningPlan) -> float:
        """Root mean square of the difference between engine and view, in nats a token; NaN is possible."""
        return _distance(self._ask(self._row.ids.tolist()), self.expected(plan))

    def check(self, plan: PruningPlan) -> None:
        """Compare the engine with the plan's view.

        Raises:
            EngineError: they differ by more than rounding.
            NonFiniteError: as `expected`.
        """
        limit, found = self._limit, self.difference(plan)
        if not found <= limit:
            raise EngineError(
                f"the engine does not show plan {plan.plan_id}: its log-probabilities differ from the view's "
                f"by {found:.2g} nats a token, and rounding explains {limit:g}"
            )

    def must_differ(self, first: PruningPlan, second: PruningPlan) -> None:
        """Make sure that the text could tell two plans apart.

        Raises:
            EngineError: it could not.
        """
        found = _distance(self.expected(first), self.expected(second))
        if not found > self._limit:
            raise EngineError(
                f"the proof's text cannot tell plans {first.plan_id} and {second.plan_id} apart ({found:.2g} "
                f"nats a token, and rounding explains {self._limit:g}): a swap could not be verified"
            )

    @property
    def _limit(self) -> float:
        return LIMITS[self._dense().dtype]


def _distance(first: LogProbs, second: LogProbs) -> float:
    return math.sqrt(float(np.mean((first - second) ** 2))) if first.shape == second.shape else math.nan
