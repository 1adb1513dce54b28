"""Several ranges under their plans in one pass over a streamed model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import EvaluateItem, Sample
from prunebench.data.tasks import Document
from prunebench.errors import InputError, NonFiniteError
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.choice import MultipleChoice
from prunebench.evaluation.perplexity import Perplexity
from prunebench.models.load import DenseModel
from prunebench.models.scoring import LogProbs, Row, token_logprobs_together


class _Scored(Protocol):
    """An evaluator that looks at log-probabilities alone."""

    def rows(self, documents: Sequence[Document]) -> list[Row]: ...

    def samples(
        self, plan: PruningPlan, documents: Sequence[Document], logprobs: Sequence[LogProbs]
    ) -> tuple[Sample, ...] | NonFiniteError: ...


_SCORED: Final[Mapping[str, _Scored]] = {"perplexity": Perplexity(), "choice": MultipleChoice()}


def evaluate_together(
    dense: DenseModel, items: Sequence[EvaluateItem]
) -> Iterator[tuple[EvaluateItem, PruningPlan, tuple[Sample, ...] | InputError | NonFiniteError]]:
    """Yield each item's plans with what its evaluator gives, in the order in which they are finished.

    Ranges of a kind that looks at more than log-probabilities follow one another, each in a pass of its own.
    """
    scored = _SCORED.get(items[0].kind)
    if scored is None:
        for item in items:
            for plan, outcome in EVALUATORS[item.kind].evaluate(dense, item.plans, item.documents):
                yield item, plan, outcome
        return
    work = [(item.plans, scored.rows(item.documents)) for item in items]
    for place, plan, logprobs in token_logprobs_together(dense, work):
        yield items[place], plan, scored.samples(plan, items[place].documents, logprobs)
