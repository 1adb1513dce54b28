"""DenseModel: a checkpoint in memory, complete and in the dtype that was asked for."""

import gc
import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from prunebench.errors import InputError, ResourceError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.spread import follow_devices, free_bytes, gpu_map

FLOATS: Final = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class DenseModel:
    """The unpruned model, in evaluation mode and without gradients."""

    model: Any = field(repr=False)
    """A Transformers `...ForCausalLM`; the blocks are `model.model.layers`."""
    checkpoint: Checkpoint
    dtype: str
    attention: str
    device: str
    """Where token ids go; a model over several GPUs begins there."""
    streamed: ClassVar[bool] = False
    """Whether weights are read part by part (`streamed.StreamedModel`)."""

    @property
    def states_device(self) -> str:
        """Where hidden states wait for the next block."""
        return self.device

    def need(self, part: str) -> None:
        """Have the weights of one part in memory, such as "model.layers.3" or "lm_head"; here all are."""

    def parameter(self, layer: int, name: str) -> Tensor:
        """A tensor of a dense layer, by its name inside the block."""
        return self.model.model.layers[layer].get_parameter(name)


def load_model(
    checkpoint: Checkpoint, *, dtype: str, attention: str = "sdpa", device: str = "cpu", gpus: int = 1
) -> DenseModel:
    """Load every parameter of a checkpoint.

    Args:
        checkpoint: what to load.
        dtype: float64, float32, float16 or bfloat16; never left to the library, whose default has changed.
        attention: Transformers' name of the attention implementation.
        device: "cpu", "cuda" or "cuda:N".
        gpus: over how many visible GPUs "cuda" spreads the model, whole blocks in order.

    Raises:
        InputError: an unknown dtype or attention implementation, or a model that differs from its checkpoint.
        ResourceError: no such device, or too little memory on the GPUs together.
    """
    if dtype not in FLOATS:
        raise InputError(f"dtype '{dtype}' is not one of {', '.join(FLOATS)}")
    check_device(device)
    spread = None
    if device == "cuda" and gpus > 1:
        spread = gpu_map(checkpoint, dtype=dtype, attention=attention, free=free_bytes(gpus))
    progress = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            checkpoint.path,
            dtype=FLOATS[dtype],
            attn_implementation=attention,
            device_map=spread,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=checkpoint.trusted,
            output_loading_info=True,
        )
    except (ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        # Transformers looks names of the config up (activation, RoPE) without checking them first.
        raise InputError(
            f"{checkpoint.name} cannot be loaded with attention '{attention}': {error}; check its config.json"
        ) from error
    except (Exception, SystemExit) as error:
        if not checkpoint.trusted:
            raise
        raise InputError(f"the code of {checkpoint.name} fails: {type(error).__name__}: {error}") from error
    finally:
        if progress:
            transformers_logging.enable_progress_bar()
    for problem in ("missing_keys", "mismatched_keys"):
        if report[problem]:
            raise InputError(f"{checkpoint.name}: {problem.replace('_', ' ')}: {sorted(report[problem])[:3]}")
    counted, stored = sum(part.numel() for part in model.parameters()), checkpoint.shape.total_params
    if counted != stored:
        raise InputError(f"{checkpoint.name} has {counted} parameters in memory, but {stored} in its file")
    if spread:
        follow_devices(model)
    else:
        model.to(device)
    model.eval().requires_grad_(False)
    place = f"{gpus} GPUs" if spread else device
    logger.info("loaded %s, %d parameters, %s, %s on %s", checkpoint.name, counted, dtype, attention, place)
    return DenseModel(model, checkpoint, dtype, attention, device)


def check_device(device: str) -> None:
    """Refuse a device that is not here, before anything is loaded.

    Raises:
        InputError: not a device.
        ResourceError: no such device.
    """
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"'{device}' is not a device: write cpu, cuda or cuda:0") from error
    if wanted.type == "cuda" and (wanted.index or 0) >= (found := torch.cuda.device_count()):
        raise ResourceError(f"device '{device}' was asked for, but this machine shows {found} CUDA devices")


def release_memory() -> None:
    """Give memory of models that nothing refers to any more back to the device."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """The checkpoint's own tokenizer.

    Raises:
        InputError: the folder holds none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint.path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{checkpoint.path} holds no tokenizer that can be read: {error}") from error
    assert tokenizer is not None
    return tokenizer
