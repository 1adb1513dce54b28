"""How far a pruned model's states and attention are from the dense model's (LayerTrim, appendix D).

- `hidden_nmse`: Σ‖pruned - dense‖² / Σ‖dense‖² of the final states at the measured positions, after the
  model's final norm, as its head reads them (the paper does not say).
- `attention_kl`, `attention_overlap`: see `agreement`. The attention is that of the dense model's last two
  layers, as the paper has it. A plan that removed one of them (or its attention) has no such measure: earlier
  layers would flatter it, most of all one that cut off the end and changed nothing before.
- `mlp_score`, `mlp_change`: Σ s_j of the removed features, and the squared MLP output change that removing
  them makes (eq. 4), fed with the dense model's inputs at the measured positions; summed over the kept blocks
  that trim features of their own MLP, with each block in the detail.

What a plan has nothing of has no weight and a status that says so.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.tasks import Document, Measured
from prunebench.errors import NonFiniteError
from prunebench.evaluation.agreement import NOTHING, Agreement, agreement
from prunebench.evaluation.versions import DISTANCES
from prunebench.models.attention import Attention, attention_of
from prunebench.models.load import DenseModel
from prunebench.models.trie import Runner, Visit, enter, visit

LAST_LAYERS: Final = 2
DOWN: Final = "mlp.down_proj.weight"


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What is kept of the dense model's pass, a tensor for each row."""

    normed: tuple[Tensor, ...]
    """The final states at the measured positions, float32 of shape (positions, hidden)."""
    attention: Mapping[int, tuple[Attention, ...]]
    """By layer."""
    features: Mapping[int, tuple[Tensor, ...]]
    """The inputs of down_proj at the measured positions, float32 of shape (positions, width), by layer."""


@dataclass(frozen=True)
class Representation:
    """All measures of each row; the aggregates are ratios of sums over rows."""

    def evaluate(
        self, dense: DenseModel, plans: Iterable[PruningPlan], documents: Sequence[Document]
    ) -> Iterator[tuple[PruningPlan, tuple[Sample, ...] | NonFiniteError]]:
        """Yield each distinct plan with its samples, or with the row whose states are not finite.

        Raises:
            InputError: a plan for a model of other sizes.
        """
        plans, rows = tuple(plans), [_measured(document) for document in documents]
        runner = Runner(dense, [enter(dense, torch.from_numpy(row.ids)[None]) for row in rows])
        reference = _reference(dense, runner, plans, rows)
        for visited in visit(runner, plans, reference.attention):
            yield visited.plan, _samples(dense, runner, reference, visited, documents)


def _measured(document: Document) -> Measured:
    assert isinstance(document.payload, Measured)
    return document.payload


def _trimmed(plan: PruningPlan) -> list[tuple[int, Mask]]:
    """Base and kept features of the blocks whose change of output is one of features alone."""
    return [
        (spec.base, spec.features)
        for spec in plan.layers
        if spec.features is not None and not spec.blend and "mlp" not in spec.drop
    ]


@torch.no_grad()
def _reference(
    dense: DenseModel, runner: Runner, plans: Sequence[PruningPlan], rows: Sequence[Measured]
) -> Reference:
    compared = range(runner.shape.num_layers)[-LAST_LAYERS:]
    trimmed = {base for plan in plans for base, _ in _trimmed(plan)}
    attention: dict[int, tuple[Attention, ...]] = {}
    features: dict[int, tuple[Tensor, ...]] = {}
    states = runner.start
    for layer, block in enumerate(dense.model.model.layers):
        spec = LayerSpec(base=layer)
        if layer in compared:
            attention[layer] = attention_of(dense, runner, spec, states)
        inputs: list[Tensor] = []

        def keep(_: nn.Module, given: tuple[Tensor, ...], inputs: list[Tensor] = inputs) -> None:
            inputs.append(given[0])

        hook = block.mlp.down_proj.register_forward_pre_hook(keep) if layer in trimmed else None
        states = runner.block(spec, states)
        if hook is not None:
            hook.remove()
            features[layer] = _at(inputs, rows)
    return Reference(_at(runner.normed(states), rows), attention, features)


def _at(states: Sequence[Tensor], rows: Sequence[Measured]) -> tuple[Tensor, ...]:
    """The states at each row's measured positions in float32."""
    return tuple(
        state[0, torch.from_numpy(row.positions).to(state.device)].float()
        for state, row in zip(states, rows, strict=True)
    )


def _samples(
    dense: DenseModel, runner: Runner, reference: Reference, visited: Visit, documents: Sequence[Document]
) -> tuple[Sample, ...] | NonFiniteError:
    pruned = _at(visited.normed, [_measured(document) for document in documents])
    kept = [spec.base for spec, _ in visited.noted] == list(reference.attention)
    noted = [(spec.base, attention_of(dense, runner, spec, states)) for spec, states in visited.noted if kept]
    samples: list[Sample] = []
    for place, document in enumerate(documents):
        hidden = _hidden(reference.normed[place], pruned[place])
        attention = [(base, agreement(reference.attention[base][place], seen[place])) for base, seen in noted]
        changes = [
            (base, _change(dense.parameter(base, DOWN), mask, reference.features[base][place]))
            for base, mask in _trimmed(visited.plan)
        ]
        sums = [
            *hidden,
            *(each.divergence for _, each in attention),
            *(x for _, pair in changes for x in pair),
        ]
        if not all(map(math.isfinite, sums)):
            plan_id = visited.plan.plan_id
            return NonFiniteError(
                f"states of plan {plan_id} on row {document.doc_id} are not finite in {dense.dtype}"
            )
        samples.append(_sample(document, "hidden_nmse", *hidden, {"positions": len(pruned[place])}))
        samples += [*_attention(document, attention), *_mlp(document, changes)]
    return tuple(samples)


def _hidden(dense: Tensor, pruned: Tensor) -> tuple[float, float]:
    """Σ‖pruned - dense‖² and Σ‖dense‖²."""
    error, size = (each.square().sum(dtype=torch.float64) for each in (pruned - dense, dense))
    return float(error), float(size)


def _attention(document: Document, found: Sequence[tuple[int, Agreement]]) -> Iterator[Sample]:
    total = sum((each for _, each in found), NOTHING)
    means = [[base, each.divergence / (each.distributions or 1)] for base, each in found]
    missing = "too_few_tokens" if found else "last_attention_removed"
    detail = {"layers": means}
    yield _sample(document, "attention_kl", total.divergence, total.distributions, detail, missing)
    common, picked = total.common_B, total.picked_B
    yield _sample(document, "attention_overlap", common.sum(), picked.sum(), {}, missing)
    for distance, hits, picks in zip(DISTANCES, common, picked, strict=True):
        if distance <= len(_measured(document).ids) - 2:
            yield _sample(document, f"attention_overlap_from_{distance}", hits, picks, {}, missing)


def _mlp(document: Document, found: Sequence[tuple[int, tuple[float, float]]]) -> Iterator[Sample]:
    count = len(_measured(document).positions)
    detail = {"layers": [[base, score / count, change / count] for base, (score, change) in found]}
    for place, metric in enumerate(("mlp_score", "mlp_change")):
        total = math.fsum(pair[place] for _, pair in found)
        yield _sample(document, metric, total, count if found else 0, detail, "no_trimmed_mlp")


def _change(down_CI: Tensor, kept: Mask, features_PI: Tensor) -> tuple[float, float]:
    """Σ over positions of Σ s_j over the removed features, and of ‖Σ φ_j·w_j‖² over the same (eq. 4)."""
    removed = np.setdiff1d(np.arange(down_CI.shape[1]), kept.indices, assume_unique=True)
    places = torch.from_numpy(removed).to(features_PI.device)
    phi, columns = features_PI[:, places], down_CI[:, places].float()
    score = phi.square().sum(0, dtype=torch.float64) @ columns.square().sum(0, dtype=torch.float64)
    return float(score), float((phi @ columns.T).square().sum(dtype=torch.float64))


def _sample(
    document: Document,
    metric: str,
    value: float,
    weight: float,
    detail: Mapping[str, Json],
    missing: str = "ok",
) -> Sample:
    return Sample(
        doc_id=document.doc_id,
        doc_hash=document.doc_hash,
        metric=metric,
        value=float(value),
        weight=float(weight),
        detail=canonical_json(detail),
        status="ok" if weight else missing,
    )
