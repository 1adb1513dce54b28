"""Rows that begin alike, packed: what a group of rows shares is run once, without padding or a cache.

The rows of a group become one tree of tokens: their common beginning, then the rest of each. Trees stand one
after the other in packs, and a mask lets each token see the tokens of its own row. A row's last token is left
out: nothing that it predicts is asked for.

Bits: packs are a pure function of the groups and their order. Values equal those of the rows run by
themselves up to rounding.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prunebench.core.plan import PruningPlan
from prunebench.models.load import DenseModel
from prunebench.models.scoring import LogProbs, Row, check_vocabulary, head_scores
from prunebench.models.trie import Entry, Runner, States, enter, walk

PACK_TOKENS = 512
"""More fill a GPU better, but attention inside a pack grows with their square: measured on one CPU thread
with the 135M model, packs of 2,048 took 1.5 times as long a token."""

Ints: TypeAlias = npt.NDArray[np.int64]
Group: TypeAlias = Sequence[Row]


class Scored(NamedTuple):
    """The scored tokens of one row."""

    logprobs: LogProbs
    """In nats, shape (scored tokens,); not finite where a logit is not."""
    greedy: bool
    """Whether greedy decoding would write exactly these tokens."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Trees of rows in one sequence. All arrays but `reads` have shape (tokens,)."""

    ids: Ints
    positions: Ints
    """Of each token in its row."""
    trees: Ints
    branches: Ints
    """0 for what a tree's rows share, else 1 + the row's number in its group."""
    reads: Ints
    """The tokens after which the scored ones come, row by row."""

    def visible(self) -> npt.NDArray[np.bool_]:
        """Whether a token (first axis) and another (second) are on one row, shape (tokens, tokens)."""
        same = self.trees[:, None] == self.trees[None, :]
        return same & ((self.branches[None, :] == 0) | (self.branches[:, None] == self.branches[None, :]))


def num_tokens(group: Group) -> int:
    """Tokens of the group's tree."""
    shared = _num_shared(group)
    return shared + sum(len(row.ids) - 1 - shared for row in group)


def pack(groups: Sequence[Group], tokens: int = PACK_TOKENS) -> tuple[Pack, ...]:
    """The groups' trees in order, in packs of at most `tokens` tokens, or of one tree."""
    packs: list[list[Group]] = []
    room = 0
    for group in groups:
        size = num_tokens(group)
        if size > room:
            packs.append([])
            room = tokens
        packs[-1].append(group)
        room -= size
    return tuple(map(_packed, packs))


def _num_shared(group: Group) -> int:
    """Tokens that all rows begin with, none of them the last of its row."""
    shortest = min(len(row.ids) for row in group) - 1
    first = group[0].ids[:shortest]
    differs = [np.flatnonzero(row.ids[:shortest] != first) for row in group[1:]]
    return min((int(places[0]) for places in differs if places.size), default=shortest)


def _packed(groups: Sequence[Group]) -> Pack:
    ids, positions, trees, branches, reads = [], [], [], [], []
    size = 0
    for tree, group in enumerate(groups):
        shared, start = _num_shared(group), size
        for branch, row in enumerate([None, *group]):
            part = group[0].ids[:shared] if row is None else row.ids[shared:-1]
            ids.append(part)
            positions.append(np.arange(len(part)) + (0 if row is None else shared))
            trees.append(np.full(len(part), tree))
            branches.append(np.full(len(part), branch))
            if row is not None:
                before = np.arange(row.scored_from - 1, len(row.ids) - 1)
                reads.append(np.where(before < shared, start + before, size + before - shared))
            size += len(part)
    return Pack(*(np.concatenate(parts).astype(np.int64) for parts in (ids, positions, trees, branches, reads)))


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
