"""Many plans of one model, run as a trie of block lists: a prefix that plans share is run once.

Rows of one length are one tensor (rows, tokens, hidden). Masks, rotary embeddings and the scaling of the
embeddings come from the model's own forward pass, run once over blocks that only take notes. So every family
is right by construction, and the results are those of `model(...)` bit for bit.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
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
    dense.need("model.embed_tokens")
    body = dense.model.model
    blocks, notes = body.layers, [_NoteTaker() for _ in body.layers]
    seen: list[Tensor] = []
    notes[0].register_forward_pre_hook(lambda _, positional: seen.append(positional[0]))
    body.layers = nn.ModuleList(notes)
    try:
        body(input_ids=ids.to(dense.device), position_ids=positions, attention_mask=mask, use_cache=False)
    finally:
        body.layers = blocks
    return Entry(seen[0].to(dense.states_device), tuple(note.arguments for note in notes))


class Runner:
    """Runs blocks of any plan over a fixed set of batches, and counts them."""

    def __init__(self, dense: DenseModel, entries: Iterable[Entry]) -> None:
        """Start from batches that stand at the entrance."""
        self.shape = dense.checkpoint.shape
        self.forwards = 0
        """Blocks run so far (a block over all batches counts once)."""
        self.view = ModelView(dense)
        self.streamed = dense.streamed
        """Whether a block that is run again later has to be read again."""
        self.entries = tuple(entries)
        self._norm = dense.model.model.norm
        self._device, self._waiting = dense.device, dense.states_device

    @property
    def start(self) -> States:
        """The states before the first block."""
        return tuple(entry.hidden.to(self._waiting) for entry in self.entries)

    @torch.no_grad()
    def block(self, spec: LayerSpec, states: States) -> States:
        """The states after one more block."""
        block = self.view.block(spec)
        self.forwards += 1
        return tuple(
            block(hidden.to(self._device), **entry.arguments[spec.base]).to(self._waiting)
            for hidden, entry in zip(states, self.entries, strict=True)
        )

    @torch.no_grad()
    def normed(self, states: States) -> States:
        """The states after the model's final norm, as its head reads them."""
        return tuple(self._norm(hidden.to(self._device)).to(self._waiting) for hidden in states)


Noted: TypeAlias = tuple[tuple[LayerSpec, States], ...]
"""Blocks, each with the states before it."""


class Visit(NamedTuple):
    """What a plan comes to."""

    plan: PruningPlan
    normed: States
    """The final states after the model's final norm."""
    noted: Noted
    """The plan's blocks with attention whose base was to be noted, in order."""


def visit(runner: Runner, plans: Iterable[PruningPlan], noted: Container[int]) -> Iterator[Visit]:
    """Visit each distinct plan depth first, with its blocks that have attention and a base in `noted`.

    One set of states is kept for each branch that is still open, and one for each block that is noted.
    A streamed model is walked by `visit_together`, so that its blocks are read once.

    Raises:
        InputError: a plan for a model of other sizes.
    """
    plans = _checked(runner, plans)
    if runner.streamed:
        yield from (found for _, found in visit_together([(runner, plans)], noted))
        return
    open_nodes: list[tuple[Node, LayerSpec | None, States, Noted]] = [(grow(plans), None, runner.start, ())]
    while open_nodes:
        node, spec, states, notes = open_nodes.pop()
        if spec is not None:
            if spec.base in noted and "attention" not in spec.drop:
                notes = (*notes, (spec, states))
            states = runner.block(spec, states)
        for plan in node.plans:
            yield Visit(plan, runner.normed(states), notes)
        open_nodes += [(child, spec, states, notes) for spec, child in reversed(node.children.items())]


class _Open(NamedTuple):
    """A block to be run, and what it is run on."""

    walk: int
    node: Node
    spec: LayerSpec
    states: States
    notes: Noted


def visit_together(
    walks: Sequence[tuple[Runner, Iterable[PruningPlan]]], noted: Container[int] = ()
) -> Iterator[tuple[int, Visit]]:
    """Yield (number of the walk, visit) for the distinct plans of several walks, by dense block.

    All that any walk runs on one dense block is run before the next block: where the bases of plans ascend,
    each block of the model is needed once. One set of states is kept for each branch of all walks together.

    Raises:
        InputError: a plan for a model of other sizes.
    """
    waiting: dict[int, list[_Open]] = defaultdict(list)
    for number, (runner, plans) in enumerate(walks):
        _wait(waiting, number, grow(_checked(runner, plans)), runner.start, ())
    while waiting:
        ended: list[tuple[_Open, States]] = []
        group = waiting.pop(min(waiting))[::-1]
        while group:
            open_node = group.pop()
            number, node, spec, states, notes = open_node
            if spec.base in noted and "attention" not in spec.drop:
                notes = (*notes, (spec, states))
            states = walks[number][0].block(spec, states)
            _wait(waiting, number, node, states, notes)
            if node.plans:
                ended.append((open_node._replace(notes=notes), states))
        # The head that visitors ask for takes the block's place, so it comes after all that the block is for.
        for (number, node, _, _, notes), states in ended:
            for plan in node.plans:
                yield number, Visit(plan, walks[number][0].normed(states), notes)


def _wait(waiting: dict[int, list[_Open]], number: int, node: Node, states: States, notes: Noted) -> None:
    for spec, child in node.children.items():
        waiting[spec.base].append(_Open(number, child, spec, states, notes))


def _checked(runner: Runner, plans: Iterable[PruningPlan]) -> tuple[PruningPlan, ...]:
    plans = tuple(plans)
    for plan in plans:
        check_plan(plan, runner.shape)
    return plans


def walk(runner: Runner, plans: Iterable[PruningPlan]) -> Iterator[tuple[PruningPlan, States]]:
    """Yield each distinct plan with its normed final states, depth first; errors as `visit`."""
    for plan, normed, _ in visit(runner, plans, ()):
        yield plan, normed


def final_states(
    dense: DenseModel, plans: Sequence[PruningPlan], batches: Iterable[Tensor]
) -> Iterator[tuple[PruningPlan, States]]:
    """Yield each distinct plan with its normed final states of every batch of token ids (rows, tokens)."""
    yield from walk(Runner(dense, [enter(dense, ids) for ids in batches]), plans)
