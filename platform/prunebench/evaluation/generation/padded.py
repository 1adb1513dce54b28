"""Every plan of a model in one engine of the dense shape: what travels, and how it is proven to have arrived.

A removed block is one whose o_proj and down_proj (and their biases) are zero; blends and trims have the dense
shapes. Between two plans only the modules travel that either changes. An engine answers a reload with
nothing, so what it then holds is verified from outside, and an engine that fails once is not asked again.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias

import torch
from torch import Tensor

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import EngineError
from prunebench.evaluation.generation.proof import Proof
from prunebench.models.checkpoint import DTYPES, Checkpoint, tensor_name
from prunebench.models.load import FLOATS
from prunebench.models.view import Read, block_tensors, check_plan

Module: TypeAlias = tuple[int, str]
"""Dense layer and linear module, such as (3, "self_attn.o_proj")."""

STACKED: Final = {"self_attn.qkv_proj": ("q", "k", "v"), "mlp.gate_up_proj": ("gate", "up")}
"""Modules into which vLLM stacks projections, by rows."""
EMPTY: Final = hashlib.sha256(b"").hexdigest()


class Swappable(Protocol):
    """The running engine, as far as a swap needs it."""

    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take tensors under their names in the checkpoint, and forget what was computed with others."""

    def digests(self) -> Mapping[str, str]:
        """sha256 of the bytes of each parameter as the engine holds it; empty where they cannot be told."""


class PaddedModel:
    """Shows one engine's model as the pruned models that plans describe."""

    def __init__(self, engine: Swappable, checkpoint: Checkpoint, dtype: str, proof: Proof) -> None:
        """Verify the dense model, then show a known plan and the dense model again.

        Raises:
            EngineError: any of the three is not what it should be.
        """
        self._engine, self._checkpoint, self._proof = engine, checkpoint, proof
        self._read = reader(checkpoint, dtype)
        self._modules: set[Module] = set()
        """What differs from the dense model now."""
        shape = checkpoint.shape
        dense = PruningPlan.dense(shape.num_layers)
        self._dense = self._readable(engine.digests())
        """Digest of each parameter that the engine holds as the checkpoint does."""
        proof.check(dense)
        if shape.num_layers > 1:
            known = PruningPlan.without([shape.num_layers // 2], shape.num_layers)
            proof.must_differ(dense, known)
            self.show(known)
            self.show(dense)

    def show(self, plan: PruningPlan) -> None:
        """Make the engine's model that of `plan`; nothing is done where it is already.

        Raises:
            EngineError: the engine holds something else afterwards.
        """
        changed = padded_tensors(plan, self._checkpoint, self._read)
        sent = dict(changed)
        for layer, module in sorted(self._modules - {module_of(name) for name in changed}):
            sent |= {name: self._read(*place) for name, place in self._places(layer, module)}
        self._modules = {module_of(name) for name in changed}
        if sent:
            self._engine.load(sorted(sent.items(), key=lambda pair: module_of(pair[0])))
        self._check_digests(changed)
        self._proof.check(plan)

    def _places(self, layer: int, module: str) -> Iterator[tuple[str, tuple[int, str]]]:
        for inside in tensors_of(self._checkpoint, module):
            yield tensor_name(layer, inside), (layer, inside)

    def _readable(self, held: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for name, parts in engine_parameters(self._checkpoint).items():
            if held.get(name, EMPTY) == EMPTY:
                continue
            digest = digest_of(self._read(*split_name(part)) for part in parts)
            if digest == held[name]:
                found[name] = digest
        return found

    def _check_digests(self, changed: Mapping[str, Tensor]) -> None:
        if not self._dense:
            return
        held = self._engine.digests()
        for name, parts in engine_parameters(self._checkpoint).items():
            if name not in self._dense:
                continue
            expected = self._dense[name]
            if any(part in changed for part in parts):
                expected = digest_of(
                    changed[part] if part in changed else self._read(*split_name(part)) for part in parts
                )
            if held.get(name) != expected:
                raise EngineError(
                    f"the engine holds another {name} than checkpoint and plan say (sha256 "
                    f"{held.get(name, 'none')[:8]} instead of {expected[:8]}): its texts would be those of "
                    "another model"
                )


def padded_tensors(plan: PruningPlan, checkpoint: Checkpoint, read: Read) -> dict[str, Tensor]:
    """The tensors in which a plan in the dense shape differs from the dense model, by name in the checkpoint.

    Modules are whole: an engine that gets a weight without its bias, or q without k and v, where it stacks
    them, takes the rest from memory that holds nothing.

    Raises:
        InputError: a plan for a model of other sizes.
    """
    check_plan(plan, checkpoint.shape)
    kept = {spec.base: spec for spec in plan.layers}
    found: dict[str, Tensor] = {}
    for layer in range(plan.num_layers):
        spec = kept.get(layer, LayerSpec(base=layer, drop=("attention", "mlp")))
        changed = block_tensors(spec, checkpoint, read)
        for module in dict.fromkeys(name.rpartition(".")[0] for name in changed):
            for inside in tensors_of(checkpoint, module):
                found[tensor_name(layer, inside)] = (
                    changed[inside] if inside in changed else read(layer, inside)
                )
    return found


def reader(checkpoint: Checkpoint, dtype: str) -> Read:
    """Gives tensors of dense layers from the checkpoint's files, in `dtype`."""

    def read(layer: int, inside: str) -> Tensor:
        entry = checkpoint.tensors[tensor_name(layer, inside)]
        data = bytearray().join(entry.chunks())
        return (
            torch.frombuffer(data, dtype=FLOATS[DTYPES[entry.dtype]]).reshape(entry.shape).to(FLOATS[dtype])
        )

    return read


def tensors_of(checkpoint: Checkpoint, module: str) -> tuple[str, ...]:
    """Names inside a block of the tensors of a linear module, with those that an engine stacks with it."""
    family = checkpoint.family
    together = {module}
    for roles in STACKED.values():
        modules = {family.projection(role).module for role in roles}
        together |= modules if module in modules else set()
    inside = family.block_tensors(checkpoint.config)
    return tuple(name for name in inside if name.rpartition(".")[0] in together)


def module_of(name: str) -> Module:
    """Layer and module of a tensor of a block, by its name in the checkpoint."""
    layer, inside = split_name(name)
    return layer, inside.rpartition(".")[0]


def split_name(name: str) -> tuple[int, str]:
    """Layer and name inside the block: the inverse of `tensor_name`."""
    layer, _, inside = name.removeprefix("model.layers.").partition(".")
    return int(layer), inside


def engine_parameters(checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """Each parameter of the engine's blocks, and the checkpoint's tensors that it stacks by rows."""
    family = checkpoint.family
    stacked = {family.projection(role).module: module for module, roles in STACKED.items() for role in roles}
    parts: dict[str, tuple[str, ...]] = {}
    for layer in range(checkpoint.shape.num_layers):
        for inside in family.block_tensors(checkpoint.config):
            module, _, kind = inside.rpartition(".")
            name = tensor_name(layer, f"{stacked.get(module, module)}.{kind}")
            parts[name] = (*parts.get(name, ()), tensor_name(layer, inside))
    return parts


def digest_of(tensors: Iterable[Tensor]) -> str:
    """sha256 of the bytes of tensors one after the other."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
