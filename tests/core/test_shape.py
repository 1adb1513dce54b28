import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.shape import ModelShape

# Sizes from the models' published configurations; biases are absent, norms are the block's extra parameters.
QWEN3_14B = ModelShape(
    num_layers=40,
    hidden_size=5120,
    intermediate_size=17408,
    num_heads=40,
    num_kv_heads=8,
    head_dim=128,
    block_extra_params=2 * 5120 + 2 * 128,
    other_params=2 * 151936 * 5120 + 5120,
)
LLAMA_31_8B = ModelShape(
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    block_extra_params=2 * 4096,
    other_params=2 * 128256 * 4096 + 4096,
)
SMOLLM2_135M = ModelShape(
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    block_extra_params=2 * 576,
    other_params=49152 * 576 + 576,
)
MISTRAL_NEMO = ModelShape(
    num_layers=40, hidden_size=5120, intermediate_size=14336, num_heads=32, num_kv_heads=8, head_dim=128
)


@pytest.mark.parametrize(
    ("shape", "attention", "mlp", "layer"),
    [
        (QWEN3_14B, 62_914_560, 267_386_880, 330_301_440),
        (LLAMA_31_8B, 41_943_040, 176_160_768, 218_103_808),
        (SMOLLM2_135M, 884_736, 2_654_208, 3_538_944),
        (MISTRAL_NEMO, 52_428_800, 220_200_960, 272_629_760),
    ],
)
def test_the_parameters_of_a_layer(shape, attention, mlp, layer):
    assert shape.attention_params == attention
    assert shape.mlp_params == mlp
    assert shape.params_per_layer == layer
    assert shape.params_per_feature == 3 * shape.hidden_size


def test_the_parameters_of_whole_models():
    assert LLAMA_31_8B.total_params == 8_030_261_248
    assert SMOLLM2_135M.total_params == 134_515_008
    assert round(QWEN3_14B.total_params / 1e9, 2) == 14.77
    assert MISTRAL_NEMO.total_params == 40 * 272_629_760


def test_the_sizes_of_table_7_of_lorp():
    for layers, billions in ((29, 11.13), (27, 10.47), (25, 9.81)):
        kept = QWEN3_14B.total_params - (40 - layers) * (330_301_440 + QWEN3_14B.block_extra_params)
        assert round(kept / 1e9, 2) == billions


@given(*[st.integers(1, 50)] * 6)
def test_a_layer_is_the_sum_of_its_seven_projections(L, C, I, H, KV, hd):  # noqa: E741
    shape = ModelShape(
        num_layers=L, hidden_size=C, intermediate_size=I, num_heads=H, num_kv_heads=KV, head_dim=hd
    )
    q, k, v, o = C * H * hd, C * KV * hd, C * KV * hd, H * hd * C
    gate, up, down = C * I, C * I, I * C
    assert shape.params_per_layer == q + k + v + o + gate + up + down
    assert shape.total_params == L * shape.params_per_layer
