"""Rows of token ids, and how rows that begin alike are packed: plain arrays, which the driver counts too.

The rows of a group become one tree of tokens: their common beginning, then the rest of each. Trees stand one
after the other in packs, and a mask lets each token see the tokens of its own row. A row's last token is left
out: nothing that it predicts is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from prunebench.errors import InputError

TOKENS_PER_BATCH = 4096
"""Most tokens of rows of one length that are run together, unless a row by itself is longer."""
HEAD_CHUNK = 256
"""States that the head reads at once."""
PACK_TOKENS = 512
"""Measured on one CPU thread, 1,351 tokens through 10 blocks of the 135M model: 1.06 s in packs of 512, 1.16
in packs of 128, 1.44 in a single one, because attention inside a pack grows with its square."""

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids of shape (tokens,); those before `scored_from` are context only."""

    ids: npt.NDArray[np.integer]
    scored_from: int = 1

    def __post_init__(self) -> None:
        """Refuse a row without a scored token, or one that scores its first token, which nothing predicts."""
        if not 1 <= self.scored_from < len(self.ids):
            raise InputError(
                f"a row of {len(self.ids)} tokens cannot be scored from token {self.scored_from}: "
                "at least one token of context and one scored token are needed"
            )


Group: TypeAlias = Sequence[Row]


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
    return Pack(
        *(np.concatenate(parts).astype(np.int64) for parts in (ids, positions, trees, branches, reads))
    )
