"""vLLM's classes of five families, with MLPs of unequal widths (vllm 0.32; vllm-project/vllm#31454)."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from vllm.config import VllmConfig
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.model_executor.models.mistral import MistralForCausalLM
from vllm.model_executor.models.phi3 import Phi3ForCausalLM
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM
from vllm.model_executor.models.utils import PPMissingLayer, maybe_prefix

from prunebench.models.vllm_plugin import check_tensor_parallel


@contextmanager
def _one_width(config: Any, widths: list[int]) -> Generator[int, None, None]:  # noqa: ANN401
    """For a while the config states the narrowest width for all blocks, which is what vLLM's classes read."""
    config.per_layer_config = None
    dense, config.intermediate_size = config.intermediate_size, min(widths)
    try:
        yield config.intermediate_size
    finally:
        config.intermediate_size = dense
        config.per_layer_config = {i: {"intermediate_size": width} for i, width in enumerate(widths)}


class _UnequalWidths:
    """Builds the stock model in its narrowest width, then the wider MLPs: the dense size is never held."""

    model: Any

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        config = vllm_config.model_config.hf_config
        widths = [block.intermediate_size for block in config.per_layer_config]
        check_tensor_parallel(widths, vllm_config.parallel_config.tensor_parallel_size)
        with _one_width(config, widths) as narrowest:
            super().__init__(vllm_config=vllm_config, prefix=prefix)  # pyrefly: ignore
        layers = f"{maybe_prefix(prefix, 'model')}.layers"
        for i, (layer, width) in enumerate(zip(self.model.layers, widths, strict=True)):
            # Blocks of another pipeline stage are not here.
            if width == narrowest or isinstance(layer, PPMissingLayer):
                continue
            # Not every family's MLP can have biases.
            biases = {} if layer.mlp.gate_up_proj.bias is None else {"bias": True}
            layer.mlp = type(layer.mlp)(
                hidden_size=config.hidden_size,
                intermediate_size=width,
                hidden_act=config.hidden_act,
                quant_config=vllm_config.quant_config,
                prefix=f"{layers}.{i}.mlp",
                **biases,
            )


class PrunebenchLlamaForCausalLM(_UnequalWidths, LlamaForCausalLM):
    """Llama."""


class PrunebenchMistralForCausalLM(_UnequalWidths, MistralForCausalLM):
    """Mistral."""


class PrunebenchQwen2ForCausalLM(_UnequalWidths, Qwen2ForCausalLM):
    """Qwen2."""


class PrunebenchQwen3ForCausalLM(_UnequalWidths, Qwen3ForCausalLM):
    """Qwen3."""


class PrunebenchPhi3ForCausalLM(_UnequalWidths, Phi3ForCausalLM):
    """Phi-3."""
