"""A model whose weights stay in their files: one part of it (a block, the embeddings, the head) is in memory.

The modules are built without storage. `need` reads the tensors of one part and drops those of all others, so
whoever runs a model in the order of its blocks reads every block once.
"""

import logging
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint, tensor_name
from prunebench.models.family import BLOCKS, EMBEDDINGS, HEAD
from prunebench.models.load import FLOATS, DenseModel, check_device
from prunebench.models.safetensors_file import TensorEntry

_STORED: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_ALWAYS: Final = "model.norm"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StreamedModel(DenseModel):
    """The unpruned model with at most one part of its weights in memory, besides the final norm."""

    streamed = True
    _held: dict[str, None] = field(default_factory=dict, repr=False)
    """The part that is in memory."""

    @property
    def states_device(self) -> str:
        """Hidden states wait on the CPU, whatever the model runs on."""
        return "cpu"

    def need(self, part: str) -> None:
        """Read a part's weights and drop those of the part before; a part that is there is not read again.

        Raises:
            InputError: a weight file cannot be read any more.
        """
        if part in self._held:
            return
        for held in self._held:
            self._empty(held)
        self._held.clear()
        self._fill(part)
        self._held[part] = None

    def parameter(self, layer: int, name: str) -> Tensor:
        """A tensor of a dense layer: that in memory where the layer is held, else read for the caller."""
        if f"{BLOCKS}.{layer}" in self._held:
            return super().parameter(layer, name)
        return self._read(tensor_name(layer, name))

    def held_bytes(self) -> int:
        """Bytes of all weights in memory now."""
        return sum(p.nbytes for p in self.model.parameters() if not p.is_meta)

    def _fill(self, part: str) -> None:
        for name, _ in self._parameters(part):
            # A tied head has no tensor of its own.
            stored = EMBEDDINGS if name == HEAD and self._is_tied else name
            self._put(name, self._read(stored))

    def _empty(self, part: str) -> None:
        for name, parameter in self._parameters(part):
            self._put(name, parameter.data.to("meta"))

    def _parameters(self, part: str) -> list[tuple[str, nn.Parameter]]:
        return [(f"{part}.{name}", p) for name, p in self.model.get_submodule(part).named_parameters()]

    def _put(self, name: str, tensor: Tensor) -> None:
        path, _, parameter = name.rpartition(".")
        kept = nn.Parameter(tensor, requires_grad=False)
        self.model.get_submodule(path).register_parameter(parameter, kept)

    def _read(self, name: str) -> Tensor:
        return read_tensor(self.checkpoint.tensors[name]).to(FLOATS[self.dtype]).to(self.device)

    @property
    def _is_tied(self) -> bool:
        return self.checkpoint.family.is_tied(self.checkpoint.config)


def stream_model(
    checkpoint: Checkpoint, *, dtype: str, attention: str = "sdpa", device: str = "cpu"
) -> StreamedModel:
    """Open a checkpoint without loading it; arguments and errors as `load_model`."""
    if dtype not in FLOATS:
        raise InputError(f"dtype '{dtype}' is not one of {', '.join(FLOATS)}")
    check_device(device)
    try:
        config = AutoConfig.from_pretrained(checkpoint.path, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=FLOATS[dtype], attn_implementation=attention, trust_remote_code=False
            )
    except (ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        # Transformers looks names of the config up (activation, RoPE) without checking them first.
        raise InputError(
            f"{checkpoint.name} cannot be opened with attention '{attention}': {error}; check its config.json"
        ) from error
    _compute_buffers(model, device)
    model.eval().requires_grad_(False)
    dense = StreamedModel(model, checkpoint, dtype, attention, device)
    dense._fill(_ALWAYS)
    params = checkpoint.shape.total_params
    logger.info("opened %s, %d parameters, %s, %s on %s", checkpoint.name, params, dtype, attention, device)
    return dense


@torch.no_grad()
def _compute_buffers(model: Any, device: str) -> None:  # noqa: ANN401 (a Transformers model)
    """Give the buffers that no file holds (rotary frequencies, scales of embeddings) their values.

    Transformers computes them in `_init_weights`, as it does when it loads a checkpoint.
    """
    owners = {}
    for name, buffer in model.named_non_persistent_buffers():
        path, _, last = name.rpartition(".")
        owners[path] = model.get_submodule(path)
        owners[path].register_buffer(last, torch.empty_like(buffer, device="cpu"), persistent=False)
    for owner in owners.values():
        model._init_weights(owner)
        for last, buffer in list(owner.named_buffers(recurse=False)):
            owner.register_buffer(last, buffer.to(device), persistent=False)


def read_tensor(entry: TensorEntry) -> Tensor:
    """A tensor of a safetensors file in its stored dtype, in memory of its own.

    Raises:
        InputError: the file is gone or shorter than its header said.
    """
    tensor = torch.empty(entry.shape, dtype=_STORED[entry.dtype])
    room = tensor.view(-1).view(torch.uint8).numpy().data
    try:
        with entry.file.open("rb", buffering=0) as stream:
            stream.seek(entry.begin)
            while len(room):
                # One call reads at most 2 GiB.
                if not (count := stream.readinto(room)):
                    raise InputError(f"{entry.file} has become shorter: copy it again")
                room = room[count:]
    except OSError as error:
        raise InputError(f"{entry.file} cannot be read any more: {error.strerror}") from error
    return tensor
