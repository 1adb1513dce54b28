"""ModelProbe: answers what probe methods ask with forward passes, and never runs the same question twice."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from prunebench.core.fingerprint import canonical_json, sha256_text
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.core.unit import ProbeAnswered
from prunebench.errors import NonFiniteError
from prunebench.models.load import DenseModel
from prunebench.models.scoring import Row, Scorer
from prunebench.models.trie import Runner, States
from prunebench.models.view import check_plan

PROBE_VERSION = 1
"""Raised when answers change, so that remembered ones are asked again."""

BOUNDARY_BYTES = 1 << 30


class Boundaries:
    """The states at block boundaries of the plan run last, from which the next plan continues.

    A search that drops or merges each block in turn costs about half.
    """

    def __init__(self, runner: Runner, limit: int = BOUNDARY_BYTES) -> None:
        """Keep as many evenly spaced boundaries as fit into `limit` bytes."""
        size = sum(hidden.nbytes for hidden in runner.start)
        self._runner = runner
        self._stride = max(1, -(-size * runner.shape.num_layers // limit))
        self._specs: tuple[LayerSpec, ...] = ()
        self._kept: dict[int, States] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the boundaries kept now."""
        return sum(hidden.nbytes for states in self._kept.values() for hidden in states)

    def normed(self, plan: PruningPlan) -> States:
        """The normed final states under the plan.

        Raises:
            InputError: a plan for a model of other sizes.
        """
        check_plan(plan, self._runner.shape)
        pairs = zip(self._specs, plan.layers, strict=False)
        common = next(
            (i for i, (old, new) in enumerate(pairs) if old != new), min(len(self._specs), len(plan.layers))
        )
        self._kept = {depth: states for depth, states in self._kept.items() if depth <= common}
        self._specs = plan.layers
        depth = max(self._kept, default=0)
        states = self._kept.get(depth, self._runner.start)
        for spec in plan.layers[depth:]:
            states = self._runner.block(spec, states)
            depth += 1
            if depth % self._stride == 0:
                self._kept[depth] = states
        return self._runner.normed(states)


class ModelProbe:
    """Implements `methods.base.Probe` for one model on one fixed corpus."""

    def __init__(
        self,
        dense: DenseModel,
        rows: Sequence[npt.NDArray[np.integer]],
        corpus_id: str,
        remembered: Mapping[str, float],
        on_answer: Callable[[ProbeAnswered], None],
    ) -> None:
        """Bind the probe to rows of token ids; nothing runs before the first new question.

        Args:
            dense: the unpruned model.
            rows: token ids, one array of shape (tokens,) a sample, at least two tokens each.
            corpus_id: identity of the rows.
            remembered: answers by call id, from earlier runs.
            on_answer: called with each new answer, before the method sees it.
        """
        self._dense, self._rows, self._corpus_id = dense, tuple(rows), corpus_id
        self._remembered = dict(remembered)
        self._on_answer = on_answer
        self._opened: tuple[Scorer, Boundaries] | None = None
        self._reference: States | None = None

    @property
    def forwards(self) -> int:
        """Blocks run so far."""
        return self._opened[0].runner.forwards if self._opened else 0

    def loss(self, plan: PruningPlan) -> float:
        """Mean negative log-likelihood of all predicted tokens, in nats.

        Raises:
            NonFiniteError: the pruned model's logits are not finite.
        """
        return self._answer("loss", plan, self._loss)

    def output_similarity(self, plan: PruningPlan) -> float:
        """Mean over samples of cos(dense, pruned), each sample's normed final states as one vector (LaCo).

        Raises:
            NonFiniteError: the pruned model's states are not finite.
        """
        return self._answer("output_similarity", plan, self._output_similarity)

    def _answer(self, question: str, plan: PruningPlan, ask: Callable[[PruningPlan], float]) -> float:
        call = canonical_json(
            {
                "probe_version": PROBE_VERSION,
                "weights_id": self._dense.checkpoint.weights_id,
                "corpus_id": self._corpus_id,
                "dtype": self._dense.dtype,
                "attention": self._dense.attention,
                "question": question,
                "plan_id": plan.plan_id,
            }
        )
        call_id = sha256_text(call)
        if call_id not in self._remembered:
            began = time.perf_counter()
            value = ask(plan)
            if not math.isfinite(value):
                raise NonFiniteError(
                    f"the probe's {question} of plan {plan.plan_id} is {value}: the pruned model diverges"
                )
            seconds = time.perf_counter() - began
            self._on_answer(ProbeAnswered(call_id=call_id, call=call, value=value, seconds=seconds))
            self._remembered[call_id] = value
        return self._remembered[call_id]

    def _open(self) -> tuple[Scorer, Boundaries]:
        if self._opened is None:
            scorer = Scorer(self._dense, [Row(ids) for ids in self._rows])
            self._opened = scorer, Boundaries(scorer.runner)
        return self._opened

    def _loss(self, plan: PruningPlan) -> float:
        scorer, boundaries = self._open()
        logprobs = np.concatenate(scorer.logprobs(boundaries.normed(plan)))
        return -math.fsum(logprobs) / len(logprobs)

    def _output_similarity(self, plan: PruningPlan) -> float:
        _, boundaries = self._open()
        if self._reference is None:
            self._reference = boundaries.normed(PruningPlan.dense(plan.num_layers))
        cosines = [
            torch.cosine_similarity(dense.flatten(1).double(), pruned.flatten(1).double(), dim=1)
            for dense, pruned in zip(self._reference, boundaries.normed(plan), strict=True)
        ]
        return float(torch.cat(cosines).mean())
