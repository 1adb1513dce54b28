"""Log-probabilities of given tokens under many plans of one model.

Bits: rows of equal length share a batch, in the order given and without padding, so batches are a pure
function of the rows. The head sees only the states that predict a scored token.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.models.load import DenseModel
from prunebench.models.rows import HEAD_CHUNK, TOKENS_PER_BATCH, Row
from prunebench.models.trie import Runner, States, enter, visit_together, walk

FEWEST_HEAD_ROWS = 32
"""Products of fewer rows take other kernels on some processors, with other bits."""

LogProbs: TypeAlias = npt.NDArray[np.float64]


def batches_of(lengths: Sequence[int], tokens: int = TOKENS_PER_BATCH) -> tuple[tuple[int, ...], ...]:
    """Group the indices of rows of equal length into batches of at most `tokens` tokens, or of one row."""
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(length, []).append(index)
    return tuple(
        tuple(group[start : start + step])
        for length, group in groups.items()
        for step in [max(1, tokens // length)]
        for start in range(0, len(group), step)
    )


def stack(rows: Sequence[npt.NDArray[np.integer]], batches: Iterable[Sequence[int]]) -> list[Tensor]:
    """The token ids of each batch of rows, int64 of shape (rows, tokens)."""
    return [torch.from_numpy(np.stack([rows[i] for i in batch]).astype(np.int64)) for batch in batches]


class Scorer:
    """Scores one set of rows under any plan."""

    def __init__(self, dense: DenseModel, rows: Sequence[Row]) -> None:
        """Batch and embed the rows.

        Raises:
            InputError: a token id outside the model's vocabulary.
        """
        self.rows = tuple(rows)
        self._dense = dense
        self._batches = batches_of([len(row.ids) for row in rows])
        check_vocabulary(dense, rows)
        batches = stack([row.ids for row in rows], self._batches)
        self.runner = Runner(dense, [enter(dense, ids) for ids in batches])

    def logprobs(self, normed: States) -> tuple[LogProbs, ...]:
        """Log-probabilities of each row's scored tokens; not finite where a logit is not."""
        found: dict[int, LogProbs] = {}
        for batch, hidden in zip(self._batches, normed, strict=True):
            rows = [self.rows[i] for i in batch]
            before = torch.cat([hidden[i, row.scored_from - 1 : -1] for i, row in enumerate(rows)])
            targets = np.concatenate([row.ids[row.scored_from :] for row in rows]).astype(np.int64)
            values = head_logprobs(self._dense, before, torch.from_numpy(targets).to(before.device))
            ends = np.cumsum([len(row.ids) - row.scored_from for row in rows])
            found |= dict(zip(batch, np.split(values, ends[:-1]), strict=True))
        return tuple(found[i] for i in range(len(self.rows)))


def check_vocabulary(dense: DenseModel, rows: Iterable[Row]) -> None:
    """Refuse token ids that the model has no embedding for.

    Raises:
        InputError: a token id outside the model's vocabulary.
    """
    vocab = dense.model.model.embed_tokens.num_embeddings
    for row in rows:
        if row.ids.min() < 0 or row.ids.max() >= vocab:
            outside = row.ids.max() if row.ids.max() >= vocab else row.ids.min()
            raise InputError(f"token id {outside} lies outside the model's vocabulary of {vocab}")


@torch.no_grad()
def head_logprobs(dense: DenseModel, normed: Tensor, targets: Tensor) -> LogProbs:
    """Log-probabilities of `targets` (n,) after the normed states (n, hidden), in float32 arithmetic.

    Not finite where a logit is not finite.
    """
    return torch.cat([_picked(*chunk) for chunk in _chunks(dense, normed, targets)]).double().numpy()


@torch.no_grad()
def head_scores(dense: DenseModel, normed: Tensor, targets: Tensor) -> tuple[LogProbs, npt.NDArray[np.bool_]]:
    """As `head_logprobs`, and whether each target is what greedy decoding would choose."""
    values, greedy = [], []
    for logits, wanted in _chunks(dense, normed, targets):
        values.append(_picked(logits, wanted))
        greedy.append((logits.argmax(-1) == wanted).cpu())
    return torch.cat(values).double().numpy(), torch.cat(greedy).numpy()


def _chunks(dense: DenseModel, normed: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and targets, HEAD_CHUNK rows at a time, where the head is."""
    for logits, wanted in zip(_logits(dense, normed), targets.split(HEAD_CHUNK), strict=True):
        yield logits, wanted.to(logits.device)


def _logits(dense: DenseModel, normed: Tensor) -> Iterator[Tensor]:
    """The logits after the normed states (n, hidden), HEAD_CHUNK rows at a time."""
    dense.need("lm_head")
    for start in range(0, len(normed), HEAD_CHUNK):
        states = normed[start : start + HEAD_CHUNK].to(dense.device)
        rows = len(states)
        if rows < FEWEST_HEAD_ROWS:
            states = torch.cat([states, states[-1:].expand(FEWEST_HEAD_ROWS - rows, -1)])
        logits = dense.model.lm_head(states)[:rows]
        # Gemma-2 bends its logits, in this order of operations; its configuration alone has the setting.
        if (cap := getattr(dense.model.config, "final_logit_softcapping", None)) is not None:
            logits = torch.tanh(logits / cap) * cap
        yield logits


def _picked(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities of the targets, on the CPU."""
    picked = logits.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    # Infinite and undefined logits spread through the softmax, all but negative infinity.
    return torch.where(logits.amin(-1).isfinite(), picked, torch.nan).cpu()


def token_logprobs(
    dense: DenseModel, plans: Iterable[PruningPlan], rows: Sequence[Row]
) -> Iterator[tuple[PruningPlan, tuple[LogProbs, ...]]]:
    """Yield each distinct plan with the log-probabilities of every row's scored tokens, in nats.

    Values are not finite where a logit is not. What a plan gets does not depend on the other plans.

    Raises:
        InputError: a token id outside the model's vocabulary.
    """
    scorer = Scorer(dense, rows)
    for plan, normed in walk(scorer.runner, plans):
        yield plan, scorer.logprobs(normed)


def token_logprobs_together(
    dense: DenseModel, work: Sequence[tuple[Iterable[PruningPlan], Sequence[Row]]]
) -> Iterator[tuple[int, PruningPlan, tuple[LogProbs, ...]]]:
    """Yield (place in `work`, plan, log-probabilities): what `token_logprobs` gives for each of `work`.

    A block is run for all of them before the next one, so that a streamed model is read once.
    """
    scorers = [Scorer(dense, rows) for _, rows in work]
    walks = [(scorer.runner, plans) for scorer, (plans, _) in zip(scorers, work, strict=True)]
    for place, visited in visit_together(walks):
        yield place, visited.plan, scorers[place].logprobs(visited.normed)
