"""Multiple choice by the log-likelihood of each choice after its context."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Document, Sample
from prunebench.errors import NonFiniteError
from prunebench.models.load import DenseModel
from prunebench.models.scoring import LogProbs, Row, token_logprobs


@dataclass(frozen=True)
class Choice:
    """Two metrics a document, 1 where the right choice scores highest and 0 elsewhere (ties: the first choice).

    `acc` compares Σ log p of the choices, `acc_norm` compares Σ log p per byte of the choice. A document's payload is
    `{"context": token ids, "choices": [token ids, ..], "bytes": [length of each choice in UTF-8, ..], "gold": index}`.
    """

    scorer_version: ClassVar[str] = "choice-1"

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | NonFiniteError]]:
        """Yield each distinct plan with two samples a document, or with the document whose logits are not finite.

        Raises:
            InputError: an empty context or choice, or a token id outside the vocabulary.
        """
        rows = [
            Row(np.concatenate([document.payload["context"], choice]), len(document.payload["context"]))
            for document in documents
            for choice in document.payload["choices"]
        ]
        for plan, logprobs in token_logprobs(dense, plans, rows):
            yield plan, _samples(plan, documents, logprobs)


def _samples(
    plan: PruningPlan, documents: Sequence[Document], logprobs: Sequence[LogProbs]
) -> tuple[Sample, ...] | NonFiniteError:
    samples: list[Sample] = []
    scores = iter(logprobs)
    for document in documents:
        sums = np.array([math.fsum(next(scores)) for _ in document.payload["choices"]])
        if not np.isfinite(sums).all():
            return NonFiniteError(
                f"logits of plan {plan.plan_id} on document {document.doc_id} are not finite"
            )
        samples += _document(document, sums)
    return tuple(samples)


def _document(document: Document, sums: LogProbs) -> list[Sample]:
    gold, lengths = int(document.payload["gold"]), document.payload["bytes"]
    detail = canonical_json({"bytes": [int(n) for n in lengths], "gold": gold, "logprobs": sums.tolist()})
    return [
        Sample(
            doc_id=document.doc_id,
            doc_hash=document.doc_hash,
            metric=metric,
            value=float(np.argmax(scores) == gold),
            detail=detail,
        )
        for metric, scores in (("acc", sums), ("acc_norm", sums / np.asarray(lengths)))
    ]
