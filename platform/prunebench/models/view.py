"""Pruned models as reversible views of a dense one, and the arithmetic of a kept block's tensors.

A view re-links blocks; only tensors that differ from the dense ones are new, and nothing dense is written to.
"""

import copy
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from prunebench.core.plan import Blend, LayerSpec, PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.errors import InputError, UnsupportedError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.family import BLOCKS
from prunebench.models.load import DenseModel
from prunebench.models.widths import check_attention_kept, mlp_widths

Read: TypeAlias = Callable[[int, str], Tensor]
"""Gives the tensor of a dense layer by its name inside the block, such as "mlp.down_proj.weight"."""


@torch.no_grad()
def block_tensors(
    spec: LayerSpec, checkpoint: Checkpoint, read: Read, *, deployed: bool = False
) -> dict[str, Tensor]:
    """The tensors in which a kept block differs from its base, by name inside the block.

    A blend is summed in float32 over the dense layers in ascending order, on the first one's device, and cast
    once. A blend of one layer with coefficient 1 gives that layer's own tensor, not a copy. What a block
    lacks inside shows as its form:

    - padded: features that are not kept are zero columns of down_proj; a dropped sublayer has a zero o_proj
      or down_proj, and bias. The block keeps its dense shape, and its output is that of the smaller block
      (features: up to rounding).
    - deployed: features that are not kept have no row in gate and up and no column in down_proj; a dropped
      MLP has no features at all. A dropped attention has no deployed form: it stays zero.
    """
    family, biased = checkpoint.family, checkpoint.family.biased(checkpoint.config)
    dropped = tuple(f"{'self_attn' if sublayer == 'attention' else 'mlp'}." for sublayer in spec.drop)
    changed: dict[str, Tensor] = {}
    if spec.blend:
        for linear in family.linears:
            if not linear.startswith(dropped):
                changed[f"{linear}.weight"] = _blended(spec.blend, f"{linear}.weight", read)

    def current(name: str) -> Tensor:
        return changed[name] if name in changed else read(spec.base, name)

    if (kept := _kept_features(spec)) is not None:
        if deployed:
            changed |= _narrowed(kept, checkpoint, current)
        elif "mlp" not in spec.drop:
            down = current("mlp.down_proj.weight")
            gone = torch.ones(checkpoint.shape.intermediate_size, dtype=torch.bool)
            gone[kept] = False
            changed["mlp.down_proj.weight"] = down.masked_fill(gone.to(down.device), 0)
    for sublayer, role in (("attention", "o"), ("mlp", "down")):
        if sublayer in spec.drop:
            module = family.projection(role).module
            for part in ("weight", "bias") if role in biased else ("weight",):
                changed[f"{module}.{part}"] = torch.zeros_like(current(f"{module}.{part}"))
    return changed


def _kept_features(spec: LayerSpec) -> Tensor | None:
    """Indices of the kept MLP features, ascending; None for all."""
    if "mlp" in spec.drop:
        return torch.zeros(0, dtype=torch.int64)
    return None if spec.features is None else torch.from_numpy(spec.features.indices)


def _narrowed(kept: Tensor, checkpoint: Checkpoint, current: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """The MLP's tensors with the kept features alone."""
    family, biased = checkpoint.family, checkpoint.family.biased(checkpoint.config)
    rows: dict[str, Tensor] = {}
    for role in ("gate", "up"):
        slot = family.projection(role)
        # A fused module stacks the rows of both.
        own = kept + (slot.rows(checkpoint.shape).start or 0)
        for part in ("weight", "bias") if role in biased else ("weight",):
            name = f"{slot.module}.{part}"
            rows[name] = torch.cat([rows[name], own]) if name in rows else own
    down = f"{family.projection('down').module}.weight"
    cuts = [(name, 0, index) for name, index in rows.items()] + [(down, 1, kept)]
    narrow = {}
    for name, axis, index in cuts:
        tensor = current(name)
        narrow[name] = tensor.index_select(axis, index.to(tensor.device))
    return narrow


def _blended(blend: Blend, name: str, read: Read) -> Tensor:
    (layer, coefficient), *others = blend
    first = read(layer, name)
    if not others and coefficient == 1:
        return first
    total = first.float() * coefficient
    for layer, coefficient in others:
        total += read(layer, name).to(total.device).float() * coefficient
    return total.to(first.dtype)


def check_plan(plan: PruningPlan, shape: ModelShape) -> None:
    """Refuse a plan for a model of other sizes.

    Raises:
        InputError: another number of layers, or masks of another width.
    """
    if plan.num_layers != shape.num_layers:
        raise InputError(f"the plan is for {plan.num_layers} layers, but the model has {shape.num_layers}")
    for spec in plan.layers:
        if spec.features is not None and (
            len(spec.features.packed) != -(-shape.intermediate_size // 8)
            or spec.features.indices[-1:].max(initial=0) >= shape.intermediate_size
        ):
            width = shape.intermediate_size
            raise InputError(
                f"the feature mask of layer {spec.base} does not fit an intermediate size of {width}"
            )


class ModelView:
    """Shows one dense model as the pruned models that plans describe, one at a time."""

    def __init__(self, dense: DenseModel) -> None:
        """Remember the dense blocks."""
        self._dense = dense
        self._checkpoint = dense.checkpoint
        self._model = dense.model
        self._body = dense.model.model
        self._layers: nn.ModuleList = self._body.layers
        assert len(self._layers) == dense.checkpoint.shape.num_layers
        assert self._body.config is self._model.config

    @contextmanager
    def applied(self, plan: PruningPlan, *, deployed: bool = False) -> Generator[Any, None, None]:
        """The pruned model inside a `with` block; afterwards the dense model is back, whatever happened.

        Args:
            plan: what to keep.
            deployed: whether MLPs are really narrow, as in a deployed checkpoint (see `block_tensors`); else
                blocks keep their dense shape. Where all MLPs are equally wide the config says so; otherwise
                its `intermediate_size` stays the dense one.

        Raises:
            InputError: a plan for a model of other sizes.
            UnsupportedError: a deployed form was asked for that does not exist.
            RuntimeError: another plan is applied to this model.
        """
        check_plan(plan, self._checkpoint.shape)
        if deployed:
            check_attention_kept(plan)
        if self._body.layers is not self._layers:
            raise RuntimeError("another plan is applied to this model: leave its `with` block first")
        blocks = self._blocks(plan, deployed)
        config = self._model.config
        settings: dict[str, Any] = {"num_hidden_layers": len(blocks)}
        if types := vars(config).get("layer_types"):
            settings["layer_types"] = [types[spec.base] for spec in plan.layers]
        if deployed and len(widths := set(mlp_widths(plan, self._checkpoint.shape))) == 1:
            settings["intermediate_size"] = widths.pop()
        dense_settings = {key: vars(config)[key] for key in settings}
        try:
            self._body.layers = nn.ModuleList(blocks)
            _number(blocks)
            vars(config).update(settings)
            yield self._model
        finally:
            self._body.layers = self._layers
            _number(self._layers)
            vars(config).update(dense_settings)

    def block(self, spec: LayerSpec, *, deployed: bool = False) -> nn.Module:
        """One kept block: the dense block where nothing differs, else a new one around shared parameters.

        Its `layer_idx` is the dense one's: without a cache nothing reads it.
        """
        self._dense.need(f"{BLOCKS}.{spec.base}")
        dense = self._layers[spec.base]
        tensors = block_tensors(spec, self._checkpoint, self._read, deployed=deployed)
        return _replaced(dense, tensors) if tensors else dense

    def copied_bytes(self, plan: PruningPlan) -> int:
        """Bytes that `applied` (padded) makes; whole blocks and single-layer blends cost nothing."""
        handed: list[Tensor] = []

        def read(layer: int, name: str) -> Tensor:
            handed.append(self._read(layer, name).to("meta"))
            return handed[-1]

        changed = [
            tensor for spec in plan.layers for tensor in block_tensors(spec, self._checkpoint, read).values()
        ]
        known = {id(tensor) for tensor in handed}
        return sum(tensor.nbytes for tensor in changed if id(tensor) not in known)

    def _read(self, layer: int, name: str) -> Tensor:
        parameter = self._layers[layer].get_parameter(name)
        # Another block of a streamed model: its tensor is read, not the whole block.
        return self._dense.parameter(layer, name) if parameter.is_meta else parameter

    def _blocks(self, plan: PruningPlan, deployed: bool) -> list[nn.Module]:
        blocks: list[nn.Module] = []
        for spec in plan.layers:
            block = self.block(spec, deployed=deployed)
            # A block at two places needs two indices into the cache, so it is two modules.
            blocks.append(_replaced(block, {}) if any(block is other for other in blocks) else block)
        return blocks


def _number(blocks: Iterable[nn.Module]) -> None:
    for position, block in enumerate(blocks):
        for module in block.modules():
            if "layer_idx" in vars(module):
                vars(module)["layer_idx"] = position


def _replaced(block: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A new block that shares every parameter but `tensors` with `block`."""
    clone = _shell(block)
    for name, tensor in tensors.items():
        path, _, parameter = name.rpartition(".")
        # A blend may come from a layer on another device.
        tensor = tensor.to(block.get_parameter(name).device)
        kept = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)
        module = clone.get_submodule(path)
        module.register_parameter(parameter, kept)
        if isinstance(module, nn.Linear) and parameter == "weight":
            module.out_features, module.in_features = kept.shape
    return clone


def _shell(module: nn.Module) -> nn.Module:
    if "forward" in vars(module):
        raise UnsupportedError(
            "a library has replaced the forward pass of the model's blocks (accelerate does, where it moves "
            "or offloads them): blends, trims and repeated blocks need blocks as they were made"
        )
    shell = copy.copy(module)
    vars(shell)["_parameters"] = dict(module._parameters)
    vars(shell)["_modules"] = {
        name: None if child is None else _shell(child) for name, child in module._modules.items()
    }
    return shell
