"""lm-eval's log-likelihood tasks: its requests, our forward passes, its filters and metrics."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import Document, Requests
from prunebench.errors import InputError, NonFiniteError
from prunebench.evaluation.harness.build import Asked, LmEvalTask, build
from prunebench.evaluation.harness.score import score
from prunebench.evaluation.harness.tokens import HarnessEncoder, cut
from prunebench.models.load import DenseModel
from prunebench.models.packing import Scored, packed_scores
from prunebench.models.rows import Row
from prunebench.models.tokenizer import Encoder

TRUNCATED = "truncated"
"""Status of a document with a request longer than the context, which is cut from the left as in lm-eval."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One document with its requests as token ids."""

    document: Document
    task: LmEvalTask
    asked: Asked
    rows: tuple[Row, ...]
    status: str


@dataclass(frozen=True)
class Harness:
    """The task's own metrics for each document, from Σ log p of every continuation.

    What the requests of a document begin with alike is run once, and documents are packed in their order.
    """

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | InputError | NonFiniteError]]:
        """Yield each distinct plan with its samples, or with why it has none.

        Raises:
            InputError: the requests are not those of the driver, or this tokenizer cannot score them.
        """
        encoder = HarnessEncoder(Encoder(dense.checkpoint))
        limit = dense.model.config.max_position_embeddings
        prepared = [_prepared(document, encoder, limit) for document in documents]
        for plan, scores in packed_scores(dense, plans, [one.rows for one in prepared]):
            yield plan, _samples(plan, prepared, scores)


def _prepared(document: Document, encoder: HarnessEncoder, limit: int) -> Prepared:
    assert isinstance(document.payload, Requests)
    built = build(document.payload.source)
    asked = built.document(document.doc_id, document.doc_hash)
    try:
        whole = [encoder.row(*request.args) for request in asked.requests]
        rows = tuple(cut(row, limit) for row in whole)
    except InputError as error:
        raise InputError(f"document {document.doc_id}: {error}") from error
    status = "ok" if all(row is same for row, same in zip(whole, rows, strict=True)) else TRUNCATED
    return Prepared(document, built.task, asked, rows, status)


def _samples(
    plan: PruningPlan, prepared: Sequence[Prepared], scores: Sequence[Scored]
) -> tuple[Sample, ...] | InputError | NonFiniteError:
    samples: list[Sample] = []
    scored = iter(scores)
    for one in prepared:
        found = [next(scored) for _ in one.rows]
        sums = [math.fsum(row.logprobs) for row in found]
        if not all(map(math.isfinite, sums)):
            number = one.document.doc_id
            return NonFiniteError(f"logits of plan {plan.plan_id} on document {number} are not finite")
        try:
            metrics = score(one.task, one.asked, list(zip(sums, (row.greedy for row in found), strict=True)))
        except InputError as error:
            return error
        detail = canonical_json({"logprobs": sums, "target": one.asked.target})
        samples += [
            Sample(
                doc_id=one.document.doc_id,
                doc_hash=one.document.doc_hash,
                metric=metric,
                value=value,
                detail=detail,
                status=one.status,
            )
            for metric, value in metrics.metrics.items()
        ]
    return tuple(samples)
