"""The family table against the classes of Transformers and facts from papers."""

import pytest
from transformers import AutoConfig

from prunebench.core.stats import PROJECTIONS
from prunebench.errors import InputError, UnsupportedError
from prunebench.models.family import FAMILIES, family_of, num_columns, num_rows, shape_of

MODEL_TYPES = [model_type for family in FAMILIES for model_type in family.model_types]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_what_a_config_leaves_out_is_what_transformers_fills_in(model_type):
    theirs, ours = AutoConfig.for_model(model_type), shape_of({"model_type": model_type})
    assert ours.num_layers == theirs.num_hidden_layers
    assert ours.hidden_size == theirs.hidden_size
    assert ours.intermediate_size == theirs.intermediate_size
    assert (ours.num_heads, ours.num_kv_heads) == (theirs.num_attention_heads, theirs.num_key_value_heads)
    head_dim = vars(theirs).get("head_dim") or theirs.hidden_size // theirs.num_attention_heads
    assert ours.head_dim == head_dim
    family = family_of({"model_type": model_type})
    assert family.is_tied({"model_type": model_type}) == theirs.tie_word_embeddings


@pytest.mark.parametrize(
    "config",
    [
        *({"model_type": model_type, "num_hidden_layers": 13} for model_type in MODEL_TYPES),
        {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 5, "num_hidden_layers": 8},
        {"model_type": "qwen3", "use_sliding_window": True, "num_hidden_layers": 30},
        {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": None, "max_window_layers": 2},
        {"model_type": "gemma3_text", "sliding_window_pattern": 3, "num_hidden_layers": 7},
    ],
    ids=str,
)
def test_layer_types_follow_from_the_config_as_in_transformers(config):
    theirs = AutoConfig.for_model(**config)
    ours = family_of(config).layer_types(config)
    assert vars(theirs).get("layer_types") == (None if ours is None else list(ours))


def test_block_tensors_are_the_parameters_of_the_real_block(family_dense):
    checkpoint, block = family_dense.checkpoint, family_dense.model.model.layers[0]
    expected = {name: tuple(parameter.shape) for name, parameter in block.named_parameters()}
    assert checkpoint.family.block_tensors(checkpoint.config) == expected


def test_slots_give_the_rows_of_each_projection(family_dense):
    checkpoint, block = family_dense.checkpoint, family_dense.model.model.layers[2]
    for role in PROJECTIONS:
        slot = checkpoint.family.projection(role)
        rows = block.get_submodule(slot.module).weight[slot.rows(checkpoint.shape)]
        assert rows.shape == (num_rows(role, checkpoint.shape), num_columns(role, checkpoint.shape))


def test_fused_rows_are_split_where_phi3_splits_them(load_tiny):
    shape = load_tiny("phi3").checkpoint.shape
    phi3 = load_tiny("phi3").checkpoint.family
    assert [phi3.projection(role).rows(shape) for role in ("q", "k", "v")] == [
        slice(0, 32),
        slice(32, 48),
        slice(48, 64),
    ]
    assert phi3.projection("gate").rows(shape) == slice(0, 44)
    assert phi3.projection("up").rows(shape) == slice(44, 88)
    assert phi3.projection("up").is_fused
    assert not phi3.projection("down").is_fused
    assert phi3.linears == ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")


def test_p_layer_of_qwen3_14b_is_that_of_the_paper():
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    }
    assert shape_of(config).params_per_layer == 330_301_440


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts.*no single MLP"),
        ({"model_type": "qwen3_moe"}, "'qwen3_moe' is a mixture of experts"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, "quantised weights"),
        ({"model_type": "llama", "per_layer_config": {"3": {}}}, "unequal sizes"),
        ({"model_type": "gemma3", "text_config": {"num_hidden_layers": 2}}, "multimodal"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "bidirectional"),
        ({"model_type": "mamba"}, "'mamba' is not supported; supported: llama, mistral, qwen2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_models_are_refused_by_name(config, sentence):
    with pytest.raises(UnsupportedError, match=sentence):
        family_of(config)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "model_type has to be a name, not None"),
        (
            {"model_type": "llama", "hidden_size": "4096"},
            "hidden_size has to be a positive integer, not '4096'",
        ),
        ({"model_type": "llama", "num_hidden_layers": 0}, "num_hidden_layers has to be a positive integer"),
        ({"model_type": "qwen3", "num_attention_heads": None}, "num_attention_heads has to be"),
    ],
)
def test_broken_sizes_are_named(config, sentence):
    with pytest.raises(InputError, match=sentence):
        shape_of(config)


def test_a_list_of_layer_types_of_another_length_is_refused():
    config = {"model_type": "qwen3", "num_hidden_layers": 3, "layer_types": ["full_attention"] * 2}
    with pytest.raises(InputError, match="2 layer_types but num_hidden_layers is 3"):
        family_of(config).layer_types(config)


def test_the_pruned_config_rewrites_whatever_depends_on_depth():
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 6,
        "use_sliding_window": True,
        "max_window_layers": 3,
        "auto_map": {"AutoModelForCausalLM": "modeling.Model"},
        "vocab_size": 9,
    }
    assert family_of(config).pruned_config(config, [0, 2, 3, 5]) == {
        "model_type": "qwen2",
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "max_window_layers": 2,
        "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "vocab_size": 9,
    }
    assert config["num_hidden_layers"] == 6


def test_a_pattern_by_position_gives_way_to_explicit_types():
    config = {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window_pattern": 3}
    pruned = family_of(config).pruned_config(config, [1, 2])
    assert pruned == {
        "model_type": "gemma3_text",
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    }


def test_a_family_without_types_keeps_none():
    config = {"model_type": "llama", "num_hidden_layers": 6}
    assert family_of(config).pruned_config(config, [1]) == {"model_type": "llama", "num_hidden_layers": 1}
