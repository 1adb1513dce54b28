"""What an evaluator is, and the menu of them; their versions are in `versions`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import Document
from prunebench.errors import InputError, NonFiniteError
from prunebench.evaluation.choice import MultipleChoice
from prunebench.evaluation.efficiency import Efficiency
from prunebench.evaluation.harness.evaluator import Harness
from prunebench.evaluation.perplexity import Perplexity
from prunebench.evaluation.representation import Representation
from prunebench.models.load import DenseModel


class Evaluator(Protocol):
    """Turns the documents of one range into samples, under each of many plans of one model."""

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | InputError | NonFiniteError]]:
        """Yield each distinct plan, as it is finished, with its samples or with why it has none.

        What a plan gets depends on the documents of the range, and never on the other plans.
        """


EVALUATORS: Final[Mapping[str, Evaluator]] = {
    "perplexity": Perplexity(),
    "choice": MultipleChoice(),
    "harness": Harness(),
    "representation": Representation(),
    "efficiency": Efficiency(),
}
