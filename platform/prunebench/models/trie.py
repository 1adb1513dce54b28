"""Many plans of one model, run as a trie of block lists: a prefix that plans share is run once.

Rows of one length are one tensor (rows, tokens, hidden). Masks, rotary embeddings and the scaling of the
embeddings come from the model's own forward pass, run once over blocks that only take notes. So every family
is right by construction, and the results are those of `model(...)` bit for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.core.trie import Node, grow
from prunebench.models.load import DenseModel
from prunebench.models.view import ModelView, check_plan

States: TypeAlias = tuple[Tensor, ...]
"""Hidden states of several batches at one block boundary, each of shape (rows, tokens, hidden)."""


class _NoteTaker(nn.Module):
    """Stands in for one block: keeps what the model hands to it and passes the hidden states on."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {}

    def forward(self, hidden: Tensor, **arguments: Any) -> Tensor:  # noqa: ANN401
        self.arguments = arguments
        return hidden


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch at the entrance of the first block."""

    hidden: Tensor
    arguments: tuple[dict[str, Any], ...]
    """What the model hands to each dense block; a block keeps its own, wherever a plan puts it."""


@torch.no_grad()
def enter(
    dense: DenseModel, ids: Tensor, *, positions: Tensor | None = None, mask: Tensor | None = None
) -> Entry:
    """Embed `ids`, integers of shape (rows, tokens), and note what the model hands to each block.

    Args:
        dense: the model.
        ids: token ids.
        positions: of each token in its text, shape (rows, tokens); by default 0, 1, 2, ...
        mask: what is added to attention scores in every block, shape (rows, 1, tokens, tokens); by default
            the model's own.
    """
    body = dense.model.model
    blocks, notes = body.layers, [_NoteTaker() for _ in body.layers]
    seen: list[Tensor] = []
    notes[0].register_forward_pre_hook(lambda _, positional: seen.append(positional[0]))
    body.layers = nn.ModuleList(notes)
    try:
        body(input_ids=ids.to(dense.device), position_ids=positions, attention_mask=mask, use_cache=False)
    finally:
        body.layers = blocks
    return Entry(seen[0], tuple(note.arguments for note in notes))


class Runner:
    """Runs blocks of any plan over a fixed set of batches, and counts them."""

    def __init__(self, dense: DenseModel, entries: Iterable[Entry]) -> None:
        """Start from batches that stand at the entrance."""
        self.shape = dense.checkpoint.shape
        self.forwards = 0
        """Blocks run so far (a block over all batches counts once)."""
        self.view = ModelView(dense)
        self.entries = tuple(entries)
        self._norm = dense.model.model.norm

    @property
    def start(self) -> States:
        """The states before the first block."""
        return tuple(entry.hidden for entry in self.entries)

    @torch.no_grad()
    def block(self, spec: LayerSpec, states: States) -> States:
        """The states after one more block."""
        block = self.view.block(spec)
        self.forwards += 1
        return tuple(
            block(hidden, **entry.arguments[spec.base])
            for hidden, entry in zip(states, self.entries, strict=True)
        )

    @torch.no_grad()
    def normed(self, states: States) -> States:
        """The states after the model's final norm, as its head reads them."""
        return tuple(self._norm(hidden) for hidden in states)


Ends: TypeAlias = tuple[tuple[LayerSpec, States], ...]
"""Blocks, each with the states before it."""


class Visit(NamedTuple):
    """What a plan comes to."""

    plan: PruningPlan
    normed: States
    """The final states after the model's final norm."""
    ends: Ends
    """The plan's last blocks that have attention."""


def visit(runner: Runner, plans: Iterable[PruningPlan], last: int) -> Iterator[Visit]:
    """Visit each distinct plan depth first, with its `last` blocks that have attention, or all it has.

    One set of states is kept for each branch that is still open, and `last` more with it.

    Raises:
        InputError: a plan for a model of other sizes.
    """
    plans = tuple(plans)
    for plan in plans:
        check_plan(plan, runner.shape)
    open_nodes: list[tuple[Node, LayerSpec | None, States, Ends]] = [(grow(plans), None, runner.start, ())]
    while open_nodes:
        node, spec, states, ends = open_nodes.pop()
        if spec is not None:
            if last and "attention" not in spec.drop:
                ends = (*ends, (spec, states))[-last:]
            states = runner.block(spec, states)
        for plan in node.plans:
            yield Visit(plan, runner.normed(states), ends)
        open_nodes += [(child, spec, states, ends) for spec, child in reversed(node.children.items())]


def walk(runner: Runner, plans: Iterable[PruningPlan]) -> Iterator[tuple[PruningPlan, States]]:
    """Yield each distinct plan with its normed final states, depth first; errors as `visit`."""
    for plan, normed, _ in visit(runner, plans, 0):
        yield plan, normed


def final_states(
    dense: DenseModel, plans: Sequence[PruningPlan], batches: Iterable[Tensor]
) -> Iterator[tuple[PruningPlan, States]]:
    """Yield each distinct plan with its normed final states of every batch of token ids (rows, tokens)."""
    yield from walk(Runner(dense, [enter(dense, ids) for ids in batches]), plans)
