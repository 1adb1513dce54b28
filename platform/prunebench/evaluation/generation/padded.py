"""Every plan of a model in one engine of the dense shape: what travels, and how it is proven to have arrived.

A removed block is one whose o_proj and down_proj (and their biases) are zero; blends and trims have the dense
shapes. Between two plans only the modules travel that either changes. An engine answers a reload with
nothing, so what it then holds is verified from outside, and an engine that fails once is not asked again.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import torch
from torch import Tensor

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import EngineError
from prunebench.evaluation.generation.proof import Proof
from prunebench.models.checkpoint import DTYPES, Checkpoint, tensor_name
from prunebench.models.load import FLOATS
from prunebench.models.view import Read, block_tensors, check_plan

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
        self._engine, self._checkpoint, self.proof = engine, checkpoint, proof
        self._read = reader(checkpoint, dtype)
        self._blocks: dict[int, LayerSpec] = {}
        """The blocks that are not the dense ones now."""
        self._modules: dict[int, frozenset[str]] = {}
        """Their modules that differ."""
        self._parameters = engine_parameters(checkpoint)
        self.checksums = self._readable(engine.digests())
        """What each parameter has to be now, of those that the engine holds as the checkpoint does."""
        shape = checkpoint.shape
        dense = PruningPlan.dense(shape.num_layers)
        proof.check(dense)
        if shape.num_layers > 1:
            known = PruningPlan.without([shape.num_layers // 2], shape.num_layers)
            proof.must_differ(dense, known)
            self.show(known)
            self.show(dense)

    def show(self, plan: PruningPlan) -> None:
        """Make the engine's model that of `plan`, and verify that it is.

        Raises:
            InputError: a plan for a model of other sizes.
            EngineError: the engine holds something else afterwards.
            NonFiniteError: the pruned model has logits that are not finite.
        """
        if sent := self._difference(plan):
            self._engine.load(sent.items())
            self._check_digests(sent)
        self.proof.check(plan)

    def _difference(self, plan: PruningPlan) -> dict[str, Tensor]:
        """The tensors that lead from what is shown to `plan`, layer by layer and module by module."""
        wanted = padded_blocks(plan, self._checkpoint)
        sent: dict[str, Tensor] = {}
        for layer in sorted(self._blocks.keys() | wanted.keys()):
            if self._blocks.get(layer) == wanted.get(layer):
                continue
            block = wanted.get(layer, LayerSpec(base=layer))
            changed = block_tensors(block, self._checkpoint, self._read)
            modules = frozenset(name.rpartition(".")[0] for name in changed)
            for module in sorted(modules | self._modules.get(layer, frozenset())):
                for inside in tensors_of(self._checkpoint, module):
                    tensor = changed[inside] if inside in changed else self._read(layer, inside)
                    sent[tensor_name(layer, inside)] = tensor
            self._modules[layer] = modules
        self._blocks = wanted
        return sent

    def _readable(self, held: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for name, parts in self._parameters.items():
            if held.get(name, EMPTY) == EMPTY:
                continue
            digest = digest_of(self._read(*split_name(part)) for part in parts)
            if digest == held[name]:
                found[name] = digest
        return found

    def _check_digests(self, sent: Mapping[str, Tensor]) -> None:
        """Compare every parameter that can be read with checkpoint and plan."""
        if not self.checksums:
            return
        for name in self.checksums:
            parts = self._parameters[name]
            if parts[0] in sent:
                self.checksums[name] = digest_of(sent[part] for part in parts)
        held = self._engine.digests()
        for name, expected in self.checksums.items():
            if held.get(name) != expected:
                raise EngineError(
                    f"the engine holds another {name} than checkpoint and plan say (sha256 "
                    f"{held.get(name, 'none')[:8]} instead of {expected[:8]}): its texts would be those of "
                    "another model"
                )


def padded_blocks(plan: PruningPlan, checkpoint: Checkpoint) -> dict[int, LayerSpec]:
    """The blocks of a plan in the dense shape that are not the dense ones, by layer.

    A removed block is one without its two sublayers.

    Raises:
        InputError: a plan for a model of other sizes.
    """
    check_plan(plan, checkpoint.shape)
    kept = {spec.base: spec for spec in plan.layers}
    blocks = {
        layer: kept.get(layer, LayerSpec(base=layer, drop=("attention", "mlp")))
        for layer in range(plan.num_layers)
    }
    return {layer: spec for layer, spec in blocks.items() if spec != LayerSpec(base=layer)}


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
    """Names inside a block of the tensors of a linear module, with those that an engine stacks with it.

    An engine that gets a weight without its bias, or q without k and v, takes the rest from memory that holds
    nothing.
    """
    family = checkpoint.family
    together = {module}
    for roles in STACKED.values():
        modules = {family.projection(role).module for role in roles}
        together |= modules if module in modules else set()
    inside = family.block_tensors(checkpoint.config)
    return tuple(name for name in inside if name.rpartition(".")[0] in together)


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
