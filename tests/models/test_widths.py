"""Deployed shapes: MLPs really narrow in memory, and stated in config.json."""

import json
from typing import Any

import pytest
import torch

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.errors import InputError, UnsupportedError
from prunebench.models.family import FAMILIES, family_of, shape_of
from prunebench.models.view import ModelView
from prunebench.models.widths import (
    CLASSES,
    deployed_config,
    layout_of,
    mlp_widths,
    modeling_code,
    vllm_refusal,
)

L, I = 6, 44  # noqa: E741
IDS = torch.tensor([[(31 * i + 5) % 259 for i in range(24)]])
KEPT = [2, 3, 5, 8, 13, 21, 34]


def plan(*specs: LayerSpec) -> PruningPlan:
    return PruningPlan(num_layers=L, layers=specs)


def kept(base: int, features=None, blend=(), drop=()) -> LayerSpec:
    mask = None if features is None else Mask.keep(features, I)
    return LayerSpec(base=base, features=mask, blend=blend, drop=drop)


UNEQUAL = plan(
    kept(0), kept(1, KEPT), kept(3, range(20), blend=((3, 0.5), (4, 0.5))), kept(4, range(7)), kept(5)
)
EQUAL = plan(kept(0, KEPT), kept(2, range(7)), kept(5, range(7, 14)))


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(input_ids=IDS, use_cache=False).logits


def generated(model) -> list[int]:
    mask = torch.ones_like(IDS)
    return model.generate(
        IDS, attention_mask=mask, max_new_tokens=9, min_new_tokens=9, do_sample=False, use_cache=True
    )[0].tolist()


def state(model) -> list:
    tensors = [(name, id(tensor), tensor.shape) for name, tensor in model.named_parameters()]
    return [*tensors, json.dumps(model.config.to_dict(), default=str)]


def test_a_deployed_view_is_as_small_as_the_plan_says_and_computes_what_the_padded_one_does(family_dense):
    """Up to rounding: the narrow product sums the same terms in another order."""
    dense, shape = family_dense.model, family_dense.checkpoint.shape
    view, before = ModelView(family_dense), state(dense)
    with view.applied(UNEQUAL) as model:
        padded, tokens = logits(model), generated(model)
    with view.applied(UNEQUAL, deployed=True) as model:
        torch.testing.assert_close(logits(model), padded, rtol=1e-4, atol=1e-4)
        assert generated(model) == tokens
        widths = [block.mlp.down_proj.in_features for block in model.model.layers]
        assert widths == [block.mlp.down_proj.weight.shape[1] for block in model.model.layers]
        assert tuple(widths) == mlp_widths(UNEQUAL, shape) == (I, 7, 20, 7, I)
        counted = sum(parameter.numel() for parameter in model.parameters())
        assert model.config.intermediate_size == I
    biases = (
        2 * sum(I - width for width in widths)
        if "gate" in family_dense.checkpoint.family.biased(family_dense.checkpoint.config)
        else 0
    )
    assert counted == UNEQUAL.total_params(shape) - biases
    assert state(dense) == before


def test_gate_and_up_keep_the_rows_and_down_the_columns_of_the_kept_features(load_tiny):
    for name in ("llama_biased", "phi3"):
        dense = load_tiny(name)
        mlp = dense.model.model.layers[1].mlp
        narrow: Any = ModelView(dense).block(kept(1, KEPT), deployed=True).mlp
        pairs = [(mlp.down_proj.weight[:, KEPT], narrow.down_proj.weight)]
        if name == "phi3":
            rows = [*KEPT, *(I + feature for feature in KEPT)]
            pairs.append((mlp.gate_up_proj.weight[rows], narrow.gate_up_proj.weight))
        else:
            pairs.append((mlp.down_proj.bias, narrow.down_proj.bias))
            for module in ("gate_proj", "up_proj"):
                for name in (f"{module}.weight", f"{module}.bias"):
                    pairs.append((mlp.get_parameter(name)[KEPT], narrow.get_parameter(name)))
        for expected, found in pairs:
            assert torch.equal(expected, found)


def test_equal_widths_are_the_configs(load_tiny):
    dense = load_tiny("qwen3")
    with ModelView(dense).applied(EQUAL, deployed=True) as model:
        assert model.config.intermediate_size == 7
    assert dense.model.config.intermediate_size == I


@pytest.mark.parametrize("name", ["llama", "llama_biased", "phi3", "gemma3"])
def test_a_dropped_mlp_is_one_without_features(load_tiny, name):
    dense, without = load_tiny(name), plan(kept(0), kept(1, drop=("mlp",)), kept(2, []), kept(5))
    with ModelView(dense).applied(without) as model:
        padded = logits(model)
    with ModelView(dense).applied(without, deployed=True) as model:
        assert model.model.layers[1].mlp.down_proj.weight.shape == (32, 0)
        assert model.model.layers[2].mlp.down_proj.weight.shape == (32, 0)
        assert torch.equal(logits(model), padded)


def test_a_plan_without_attention_has_no_deployed_form(load_tiny):
    dense = load_tiny("llama")
    with (
        pytest.raises(UnsupportedError, match="drops the attention of layer 3"),
        ModelView(dense).applied(plan(kept(0), kept(3, drop=("attention",))), deployed=True),
    ):
        pass


SHAPE = shape_of({"model_type": "llama", "num_hidden_layers": L, "intermediate_size": I})


@pytest.mark.parametrize(
    ("pruning", "asked", "layout"),
    [
        (PruningPlan.without([1], L), "auto", "deployed"),
        (PruningPlan.without([1], L), "padded", "deployed"),
        (UNEQUAL, "auto", "deployed"),
        (UNEQUAL, "padded", "padded"),
        (EQUAL, "deployed", "deployed"),
        (plan(kept(0), kept(1, KEPT), kept(2, drop=("mlp",))), "auto", "padded"),
        (plan(kept(0), kept(1, [])), "auto", "padded"),
    ],
)
def test_a_checkpoint_is_deployed_wherever_its_blocks_are_whole(pruning, asked, layout):
    assert layout_of(pruning, SHAPE, asked) == layout


def test_layouts_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="'narrow' is not one of auto, deployed, padded"):
        layout_of(UNEQUAL, SHAPE, "narrow")
    with pytest.raises(UnsupportedError, match="whole sublayer of layer 2, which no checkpoint format"):
        layout_of(plan(kept(0), kept(2, drop=("attention",))), SHAPE, "deployed")


def test_a_config_states_what_differs_and_no_more():
    config = {"model_type": "llama", "num_hidden_layers": 3, "architectures": ["LlamaForCausalLM"]}
    family = family_of(config)
    assert deployed_config(config, family, SHAPE, [I, I, I]) == config
    assert deployed_config(config, family, SHAPE, [9, 9, 9]) == config | {"intermediate_size": 9}
    assert deployed_config(config, family, SHAPE, [I, 9, I]) == {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "intermediate_size": I,
        "per_layer_config": {"1": {"intermediate_size": 9}},
        "allow_global_per_layer_attribute_access": True,
        "architectures": ["PrunebenchLlamaForCausalLM"],
        "auto_map": {
            "AutoModel": "modeling_prunebench.PrunebenchLlamaModel",
            "AutoModelForCausalLM": "modeling_prunebench.PrunebenchLlamaForCausalLM",
        },
    }


def test_every_family_has_its_classes_and_its_code_imports_nothing_else():
    import transformers

    assert {family.name for family in FAMILIES} == CLASSES.keys()
    for family in FAMILIES:
        assert all(name in dir(transformers) for name in CLASSES[family.name])
        lines = modeling_code(family).splitlines()
        assert [line.split()[1] for line in lines if line.startswith(("import", "from"))] == ["transformers"]


def test_vllm_serves_unequal_widths_of_five_families_and_says_so_of_the_others():
    refused = {family.name for family in FAMILIES if vllm_refusal(family, [I, 9])}
    assert refused == {"OLMo-2", "OLMo-3", "Gemma-2", "Gemma-3"}
    assert not any(vllm_refusal(family, [9, 9]) for family in FAMILIES)
