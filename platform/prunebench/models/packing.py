"""Packed rows under many plans: what a group of rows shares is run once, without padding or a cache.

Bits: packs are a pure function of the groups and their order. Values equal those of the rows run by
themselves up to rounding.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prunebench.core.plan import PruningPlan
from prunebench.models.load import DenseModel
from prunebench.models.rows import Group, Pack, pack
from prunebench.models.scoring import LogProbs, check_vocabulary, head_scores
from prunebench.models.trie import Entry, Runner, States, enter, walk


class Scored(NamedTuple):
    """The scored tokens of one row."""

    logprobs: LogProbs
    """In nats, shape (scored tokens,); not finite where a logit is not."""
    greedy: bool
    """Whether greedy decoding would write exactly these tokens."""


def enter_pack(dense: DenseModel, packed: Pack) -> Entry:
    """A pack at the entrance of the first block, with the mask of each block.

    What a block may look at by position (causal, or within a window) is read off the model's own masks of a
    plain row, so that every family is right by construction.
    """
    positions, length = packed.positions, int(packed.positions.max()) + 1
    plain = enter(dense, torch.zeros((1, length), dtype=torch.int64))
    visible = torch.from_numpy(packed.visible()).to(dense.device)
    place = torch.from_numpy(positions).to(dense.device)
    causal = torch.ones((length, length), dtype=torch.bool, device=dense.device).tril()
    masks: dict[int, Tensor] = {}

    def mask_of(own: Tensor | None) -> Tensor:
        if id(own) not in masks:
            allowed = causal if own is None else _allowed(own[0, 0])
            seen = visible & allowed[place[:, None], place[None, :]]
            lowest = torch.finfo(plain.hidden.dtype).min
            added = torch.zeros(seen.shape, dtype=plain.hidden.dtype, device=dense.device)
            masks[id(own)] = added.masked_fill(~seen, lowest)[None, None]
        return masks[id(own)]

    entry = enter(dense, torch.from_numpy(packed.ids)[None], positions=place[None], mask=mask_of(None))
    return Entry(
        entry.hidden,
        tuple(
            {**given, "attention_mask": mask_of(alike["attention_mask"])}
            for given, alike in zip(entry.arguments, plain.arguments, strict=True)
        ),
    )


def _allowed(mask: Tensor) -> Tensor:
    """A mask as booleans: it is these already, or what is added to the scores."""
    return mask if mask.dtype == torch.bool else mask == 0


class PackedScorer:
    """Scores groups of rows under any plan."""

    def __init__(self, dense: DenseModel, groups: Sequence[Group]) -> None:
        """Pack and embed the rows.

        Raises:
            InputError: a token id outside the model's vocabulary.
        """
        self.rows = tuple(row for group in groups for row in group)
        check_vocabulary(dense, self.rows)
        self._dense = dense
        self._packs = pack(groups)
        self.runner = Runner(dense, [enter_pack(dense, packed) for packed in self._packs])

    def scores(self, normed: States) -> tuple[Scored, ...]:
        """What each row's scored tokens get, in the order of the groups and their rows."""
        before = torch.cat(
            [hidden[0, packed.reads] for packed, hidden in zip(self._packs, normed, strict=True)]
        )
        targets = np.concatenate([row.ids[row.scored_from :] for row in self.rows]).astype(np.int64)
        values, greedy = head_scores(self._dense, before, torch.from_numpy(targets).to(before.device))
        ends = np.cumsum([len(row.ids) - row.scored_from for row in self.rows])[:-1]
        return tuple(
            Scored(logprobs, bool(chosen.all()))
            for logprobs, chosen in zip(np.split(values, ends), np.split(greedy, ends), strict=True)
        )


def packed_scores(
    dense: DenseModel, plans: Iterable[PruningPlan], groups: Sequence[Group]
) -> Iterator[tuple[PruningPlan, tuple[Scored, ...]]]:
    """Yield each distinct plan with the scores of every row of every group.

    What a plan gets does not depend on the other plans.

    Raises:
        InputError: a token id outside the model's vocabulary.
    """
    scorer = PackedScorer(dense, groups)
    for plan, normed in walk(scorer.runner, plans):
        yield plan, scorer.scores(normed)
