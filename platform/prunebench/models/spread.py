"""One model over several GPUs of a node: accelerate's device map, and states that follow the blocks.

accelerate places whole blocks, and each is loaded straight onto its GPU. Its hooks, which replace the forward
pass of every module, are taken off again: a pruned view copies blocks, and a copied hook would run the dense
block. In their place a pre-hook moves what a block is given to where its parameters are, whoever calls it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import infer_auto_device_map
from accelerate.hooks import remove_hook_from_module
from accelerate.utils import get_balanced_memory
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from prunebench.errors import ResourceError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.footprint import GIB, weight_bytes, work_bytes


def free_bytes(gpus: int) -> tuple[int, ...]:
    """Memory of the first `gpus` visible GPUs that nothing uses now.

    Raises:
        ResourceError: fewer are visible.
    """
    if (found := torch.cuda.device_count()) < gpus:
        raise ResourceError(f"a model was to be spread over {gpus} GPUs, but this worker sees {found}")
    return tuple(torch.cuda.mem_get_info(gpu)[0] for gpu in range(gpus))


def gpu_map(checkpoint: Checkpoint, *, dtype: str, attention: str, free: Sequence[int]) -> dict[str, int]:
    """The GPU of each module, in the order of the blocks, which are never split.

    Args:
        checkpoint: the model.
        dtype: of its parameters.
        attention: Transformers' name; eager attention needs more room.
        free: bytes that are free on each GPU; the tensors of the work come off each.

    Raises:
        ResourceError: the weights do not fit, with the bytes that are missing; nothing is ever offloaded.
    """
    work = work_bytes(checkpoint, dtype, attention)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(
                checkpoint.path, local_files_only=True, trust_remote_code=checkpoint.trusted
            ),
            dtype=getattr(torch, dtype),
            trust_remote_code=checkpoint.trusted,
        )
    whole: list[str] = empty._no_split_modules
    room: dict[int | str, int | str] = {gpu: max(0, bytes_ - work) for gpu, bytes_ in enumerate(free)}
    balanced = get_balanced_memory(empty, max_memory=dict(room), no_split_module_classes=whole)
    placed = infer_auto_device_map(empty, max_memory=balanced, no_split_module_classes=whole)
    if homeless := [name for name, place in placed.items() if not isinstance(place, int)]:
        weights = weight_bytes(checkpoint.shape, dtype)
        raise ResourceError(
            f"{checkpoint.name} has {weights / GIB:.1f} GiB of weights in {dtype} and works with "
            f"{work / GIB:.1f} GiB on each GPU, but {len(free)} GPUs have {sum(free) / GIB:.1f} GiB free: no "
            f"room for {len(homeless)} modules ({homeless[0]} first): raise executor.gpus_per_worker, choose "
            "a narrower dtype, or stream the model (docs/large-models.md)"
        )
    return {str(name): place for name, place in placed.items() if isinstance(place, int)}


def follow_devices(model: Any) -> None:  # noqa: ANN401 (a Transformers ...ForCausalLM)
    """Let embeddings, blocks, final norm and head take their inputs from any device."""
    for module in model.modules():
        remove_hook_from_module(module)
        # What accelerate leaves there is the forward pass that the class has anyway.
        vars(module).pop("forward", None)
    body = model.model
    for module in (body.embed_tokens, *body.layers, body.norm, model.lm_head):
        module.register_forward_pre_hook(_fetch, with_kwargs=True)


def _fetch(
    module: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    device = next(module.parameters()).device
    return _moved(positional, device), {name: _moved(value, device) for name, value in named.items()}


def _moved(value: Any, device: torch.device) -> Any:  # noqa: ANN401 (whatever a block is given)
    """Tensors, and tensors in tuples, on the device; a cache moves its own."""
    if isinstance(value, Tensor):
        return value.to(device)
    return tuple(_moved(part, device) for part in value) if isinstance(value, tuple) else value
