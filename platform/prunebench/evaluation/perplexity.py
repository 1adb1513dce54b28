"""Perplexity: the log-likelihood of token windows."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import Document, Window
from prunebench.errors import NonFiniteError
from prunebench.models.load import DenseModel
from prunebench.models.scoring import LogProbs, Row, token_logprobs


@dataclass(frozen=True)
class Perplexity:
    """Σ log p and the number of scored tokens of each window; the aggregate is exp(-Σ value / Σ weight)."""

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | NonFiniteError]]:
        """Yield each distinct plan with one sample a window, or with the window whose logits are not finite.

        Raises:
            InputError: a window without a scored token, or a token id outside the vocabulary.
        """
        for plan, logprobs in token_logprobs(dense, plans, self.rows(documents)):
            yield plan, self.samples(plan, documents, logprobs)

    def rows(self, documents: Sequence[Document]) -> list[Row]:
        """The rows whose scored tokens count."""
        return [Row(window.ids, window.scored_from) for window in map(_window, documents)]

    def samples(
        self, plan: PruningPlan, documents: Sequence[Document], logprobs: Sequence[LogProbs]
    ) -> tuple[Sample, ...] | NonFiniteError:
        """One sample a window, from the log-probabilities of its row."""
        return _samples(plan, documents, logprobs)


def _window(document: Document) -> Window:
    assert isinstance(document.payload, Window)
    return document.payload


def _samples(
    plan: PruningPlan, documents: Sequence[Document], logprobs: Sequence[LogProbs]
) -> tuple[Sample, ...] | NonFiniteError:
    samples = []
    for document, values in zip(documents, logprobs, strict=True):
        if not np.isfinite(values).all():
            return NonFiniteError(f"logits of plan {plan.plan_id} on window {document.doc_id} are not finite")
        samples.append(
            Sample(
                doc_id=document.doc_id,
                doc_hash=document.doc_hash,
                metric="perplexity",
                value=math.fsum(values),
                weight=float(len(values)),
            )
        )
    return tuple(samples)
