"""Multiple choice by the log-likelihood of each continuation of a context."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import Choice, Document
from prunebench.errors import NonFiniteError
from prunebench.models.load import DenseModel
from prunebench.models.scoring import LogProbs, Row, token_logprobs


@dataclass(frozen=True)
class MultipleChoice:
    """Two metrics a document: 1 where the true continuation scores highest, else 0 (ties: the first one).

    `acc` compares Σ log p of the continuations, `acc_norm` compares Σ log p per byte of the continuation.
    """

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | NonFiniteError]]:
        """Yield each distinct plan with two samples a document, or with why it has none.

        Raises:
            InputError: an empty context or continuation, or a token id outside the vocabulary.
        """
        for plan, logprobs in token_logprobs(dense, plans, self.rows(documents)):
            yield plan, self.samples(plan, documents, logprobs)

    def rows(self, documents: Sequence[Document]) -> list[Row]:
        """One row a continuation, after its context."""
        return [
            Row(np.concatenate([item.context, continuation]), len(item.context))
            for item in map(_item, documents)
            for continuation in item.continuations
        ]

    def samples(
        self, plan: PruningPlan, documents: Sequence[Document], logprobs: Sequence[LogProbs]
    ) -> tuple[Sample, ...] | NonFiniteError:
        """Two samples a document, from the log-probabilities of its rows."""
        return _samples(plan, documents, logprobs)


def _item(document: Document) -> Choice:
    assert isinstance(document.payload, Choice)
    return document.payload


def _samples(
    plan: PruningPlan, documents: Sequence[Document], logprobs: Sequence[LogProbs]
) -> tuple[Sample, ...] | NonFiniteError:
    samples: list[Sample] = []
    scores = iter(logprobs)
    for document in documents:
        sums = np.array([math.fsum(next(scores)) for _ in _item(document).continuations])
        if not np.isfinite(sums).all():
            return NonFiniteError(
                f"logits of plan {plan.plan_id} on document {document.doc_id} are not finite"
            )
        samples += _graded(document, sums)
    return tuple(samples)


def _graded(document: Document, sums: LogProbs) -> list[Sample]:
    item = _item(document)
    detail = canonical_json({"bytes": item.num_bytes, "gold": item.gold, "logprobs": sums.tolist()})
    return [
        Sample(
            doc_id=document.doc_id,
            doc_hash=document.doc_hash,
            metric=metric,
            value=float(np.argmax(scores) == item.gold),
            detail=detail,
        )
        for metric, scores in (("acc", sums), ("acc_norm", sums / np.asarray(item.num_bytes)))
    ]
