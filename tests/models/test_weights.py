import json
import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from safetensors.torch import save_file

from prunebench.core.shape import ModelShape
from prunebench.core.stats import PROJECTIONS, WeightStats
from prunebench.errors import InputError
from prunebench.methods.wrp import weight_similarity
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.weights import memory_needed, weight_stats

GOLDEN = Path(__file__).parents[1] / "golden"
# Three directions with zero mean; squared cosines: uv 3^2/(2·6), uw 0, vw 3^2/(6·6).
U, V, W = [1, 0, -1], [1, 1, -2], [1, -2, 1]
NOTHING = [0, 0, 0]
CKA_UVW = [[1, 0.75, 0], [0.75, 1, 0.25], [0, 0.25, 1]]


def write_llama(folder, o, down, dtype=torch.float32, split=False, **given):
    """A Llama checkpoint with these o_proj (one head) and down_proj per layer; `given` replaces tensors."""
    o = [torch.as_tensor(matrix, dtype=torch.float64) for matrix in o]
    down = [torch.as_tensor(matrix, dtype=torch.float64) for matrix in down]
    hidden, width, features = len(o[0]), o[0].shape[1], down[0].shape[1]
    generator = torch.Generator().manual_seed(1)

    def noise(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    tensors = {"model.embed_tokens.weight": noise(5, hidden), "model.norm.weight": noise(hidden)}
    for i in range(len(o)):
        inside = {
            "input_layernorm": noise(hidden),
            "post_attention_layernorm": noise(hidden),
            **{f"self_attn.{role}_proj": noise(width, hidden) for role in "qkv"},
            "self_attn.o_proj": o[i],
            "mlp.gate_proj": noise(features, hidden),
            "mlp.up_proj": noise(features, hidden),
            "mlp.down_proj": down[i],
        }
        tensors |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in inside.items()}
    tensors |= {name: torch.as_tensor(tensor) for name, tensor in given.items()}
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
    config = {
        "model_type": "llama",
        "num_hidden_layers": len(o),
        "hidden_size": hidden,
        "intermediate_size": features,
        "num_attention_heads": 1,
        "head_dim": width,
        "vocab_size": 5,
        "tie_word_embeddings": True,
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if split:
        files = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(tensors)}
        for file in sorted(set(files.values())):
            save_file({name: tensors[name] for name in tensors if files[name] == file}, folder / file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    else:
        save_file(tensors, folder / "model.safetensors")
    return Checkpoint.open(folder)


def columns(*listed):
    """A matrix (3, M) from its columns."""
    return np.array(listed, dtype=float).T


def random_matrices(seed, layers, rows, width):
    return list(np.random.default_rng(seed).normal(0.3, 1, (layers, rows, width)))


def numbers(stats: WeightStats):
    """Everything but where it was read from, as bytes."""
    return [
        array.tobytes()
        for array in (stats.norm_L7, stats.column_square_LI, stats.cka_o_LL, stats.cka_down_LL)
    ]


def reference_cka(matrices):
    """Equations 1 and 2 as they are written, in float64."""
    rows = len(matrices[0])
    H = np.eye(rows) - np.ones((rows, rows)) / rows
    grams = [(H @ matrix) @ (H @ matrix).T for matrix in np.asarray(matrices, dtype=np.float64)]
    lengths = [np.sqrt(np.sum(gram * gram)) for gram in grams]
    return [
        [np.sum(grams[i] * grams[j]) / (lengths[i] * lengths[j] + 1e-12) for j in range(len(grams))]
        for i in range(len(grams))
    ]


def reference_projections(folder, config):
    """The seven matrices of every layer, in float64, split by hand where they are fused."""
    tensors = load_file(folder / "model.safetensors")
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    features = config["intermediate_size"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        block = {
            name.removeprefix(prefix).split(".")[1].removesuffix("_proj"): tensor.astype(np.float64)
            for name, tensor in tensors.items()
            if name.startswith(prefix) and name.endswith("_proj.weight")
        }
        if "qkv" in block:
            fused = block.pop("qkv")
            block["q"], block["k"] = fused[:queries], fused[queries : queries + keys]
            block["v"] = fused[queries + keys :]
            assert len(block["v"]) == keys
        if "gate_up" in block:
            fused = block.pop("gate_up")
            block["gate"], block["up"] = fused[:features], fused[features:]
        yield [block[role] for role in ("q", "k", "v", "o", "gate", "up", "down")]


@pytest.fixture(scope="module")
def thin(tmp_path_factory):
    """Seven layers whose o_proj is compared by cross products and whose down_proj by Grams."""
    o, down = random_matrices(2, 7, 8, 2), random_matrices(3, 7, 8, 11)
    return write_llama(tmp_path_factory.mktemp("thin") / "model", o, down)


def test_similarities_of_single_columns_are_squared_cosines(tmp_path):
    # One column a matrix, shifted: centring over rows takes the shift away. G = u u^T, <G, G'> = (u·v)^2.
    shifted = [columns(U) + 5, columns(V) - 2, 3 * columns(W)]
    wide = [columns(d, NOTHING, NOTHING, NOTHING) for d in (U, V, W)]
    stats = weight_stats(write_llama(tmp_path / "m", shifted, wide), cka=True)
    np.testing.assert_allclose(stats.cka_o_LL, CKA_UVW, atol=1e-6)
    np.testing.assert_allclose(stats.cka_down_LL, CKA_UVW, atol=1e-6)


def test_similarities_of_several_columns_worked_by_hand(tmp_path):
    # G_0 = uu^T + ww^T, u and w orthogonal: ||G_0||^2 = 2^2 + 6^2 = 40; G_1 = vv^T; <G_0, G_1> = 3^2 + 3^2.
    down = [columns(U, W, NOTHING, NOTHING), columns(NOTHING, V, NOTHING, NOTHING)]
    stats = weight_stats(write_llama(tmp_path / "m", [columns(U), columns(U)], down), cka=True)
    near = 18 / (6 * math.sqrt(40))
    np.testing.assert_allclose(stats.cka_down_LL, [[1, near], [near, 1]], atol=1e-6)


def test_norms_and_column_squares_worked_by_hand(tmp_path):
    q = [[1.0, 2.0, 2.0]]
    given = {"model.layers.1.self_attn.q_proj.weight": q}
    down = [columns(U, V), columns(W, [0, 3, 4])]
    checkpoint = write_llama(tmp_path / "m", [columns(U), columns(V)], down, **given)
    stats = weight_stats(checkpoint, cka=False)
    assert stats.norm_L7[1, PROJECTIONS.index("q")] == 3
    np.testing.assert_allclose(stats.norm_L7[:, PROJECTIONS.index("o")], [math.sqrt(2), math.sqrt(6)])
    np.testing.assert_allclose(stats.norm_L7[:, PROJECTIONS.index("down")], [math.sqrt(8), math.sqrt(31)])
    np.testing.assert_array_equal(stats.column_square_LI, [[2, 6], [6, 25]])
    assert stats.cka_o_LL.shape == stats.cka_down_LL.shape == (0, 0)
    assert stats.source == checkpoint.weights_id


def test_a_matrix_of_equal_rows_is_similar_to_nothing_not_even_itself(tmp_path):
    down = [columns(U, V), columns([2, 2, 2], [3, 3, 3])]
    stats = weight_stats(write_llama(tmp_path / "m", [columns(U)] * 2, down), cka=True)
    np.testing.assert_allclose(stats.cka_down_LL, [[1, 0], [0, 0]], atol=1e-6)


def test_the_guard_against_zero_is_1e_minus_12(tmp_path):
    # ||G||^2 = |u|^4, for u of length 7e-4·sqrt(2): 9.6e-13.
    scale = 7e-4
    square = (2 * scale**2) ** 2
    stats = weight_stats(write_llama(tmp_path / "m", [columns(U)], [scale * columns(U, NOTHING)]), cka=True)
    np.testing.assert_allclose(stats.cka_down_LL, [[square / (square + 1e-12)]], rtol=1e-5)


def test_every_family_agrees_with_the_equations_in_float64(family_path):
    checkpoint = Checkpoint.open(family_path)
    shape = checkpoint.shape
    config = {
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": shape.head_dim,
        "intermediate_size": 44,
    }
    layers = list(reference_projections(family_path, config))
    reads = Counter()
    stats = weight_stats(checkpoint, cka=True, reads=reads)
    norms = [[np.sqrt(np.sum(matrix**2)) for matrix in layer] for layer in layers]
    np.testing.assert_allclose(stats.norm_L7, norms, rtol=1e-12)
    np.testing.assert_allclose(
        stats.column_square_LI, [np.sum(layer[6] ** 2, axis=0) for layer in layers], rtol=1e-12
    )
    np.testing.assert_allclose(stats.cka_o_LL, reference_cka([layer[3] for layer in layers]), rtol=2e-6)
    np.testing.assert_allclose(stats.cka_down_LL, reference_cka([layer[6] for layer in layers]), rtol=2e-6)
    assert reads == {
        f"model.layers.{i}.{module}.weight": 1 for i in range(6) for module in checkpoint.family.linears
    }


def test_thin_and_wide_matrices_agree_with_the_equations_in_float64(thin):
    stats = weight_stats(thin, cka=True)
    o, down = random_matrices(2, 7, 8, 2), random_matrices(3, 7, 8, 11)
    np.testing.assert_allclose(stats.cka_o_LL, reference_cka(o), rtol=2e-6)
    np.testing.assert_allclose(stats.cka_down_LL, reference_cka(down), rtol=2e-6)


def test_matrices_larger_than_a_chunk_agree_with_the_equations_in_float64(tmp_path):
    # 430 x 1000 elements are read in four chunks, the last of another size; the Gram is summed in six.
    o, down = random_matrices(4, 3, 430, 10), random_matrices(5, 3, 430, 1000)
    checkpoint = write_llama(tmp_path / "m", o, down)
    stats = weight_stats(checkpoint, cka=True)
    np.testing.assert_allclose(stats.cka_o_LL, reference_cka(o), rtol=1e-5)
    np.testing.assert_allclose(stats.cka_down_LL, reference_cka(down), rtol=1e-5)
    # The checkpoint holds the matrices in float32.
    stored = np.array(down, dtype=np.float32).astype(np.float64)
    np.testing.assert_allclose(stats.column_square_LI, np.sum(stored**2, axis=1), rtol=1e-12)
    np.testing.assert_allclose(stats.norm_L7[:, 6], np.linalg.norm(stored, axis=(1, 2)), rtol=1e-12)


@pytest.mark.parametrize(("role", "o_width", "down_width"), [("o", 3, 1), ("down", 2, 11)])
@pytest.mark.parametrize("held", range(1, 6))
def test_tiles_give_the_same_bits_and_read_again_what_passes_by(tmp_path, role, o_width, down_width, held):
    # Cross products for o_proj, Grams for down_proj; each has to be the one that takes more memory.
    o, down = random_matrices(2, 7, 8, o_width), random_matrices(3, 7, 8, down_width)
    checkpoint = write_llama(tmp_path / "m", o, down)
    reads = Counter()
    memory = memory_needed(checkpoint.shape, role, held)
    bounded = weight_stats(checkpoint, cka=True, memory=memory, reads=reads)
    assert numbers(bounded) == numbers(weight_stats(checkpoint, cka=True))
    module = "self_attn.o_proj" if role == "o" else "mlp.down_proj"
    assert [reads[f"model.layers.{i}.{module}.weight"] for i in range(7)] == [i // held + 1 for i in range(7)]
    assert [reads[f"model.layers.{i}.self_attn.q_proj.weight"] for i in range(7)] == [1] * 7


def test_the_layer_that_passes_by_last_costs_no_second_tile(thin):
    # Six held and one passing take what all seven take.
    assert memory_needed(thin.shape, "down", 6) == memory_needed(thin.shape, "down", 7)
    assert memory_needed(thin.shape, "down", 5) < memory_needed(thin.shape, "down", 6)


def test_what_is_held_of_a_layer_is_what_costs_fewer_multiplications():
    # 4096 x 64: 32 thin matrices take less than one Gram. 4096 x 14336: 32 Grams, not 32 matrices.
    shape = ModelShape(
        num_layers=32, hidden_size=4096, intermediate_size=14336, num_heads=1, num_kv_heads=1, head_dim=64
    )
    gram, matrix = 4 * 4096**2, 4 * 4096 * 14336
    assert memory_needed(shape, "o", 32) - memory_needed(shape, "o", 30) == 4 * 4096 * 64
    assert memory_needed(shape, "o", 32) < 2 * gram
    assert 32 * gram + matrix < memory_needed(shape, "down", 32) < 33 * gram + matrix


def test_a_bound_that_holds_everything_reads_every_tensor_once(thin):
    reads = Counter()
    memory = max(memory_needed(thin.shape, role, 7) for role in ("o", "down"))
    weight_stats(thin, cka=True, memory=memory, reads=reads)
    assert set(reads.values()) == {1}
    assert len(reads) == 49


def test_a_bound_too_small_for_two_layers_is_refused_with_the_smallest_that_works(thin):
    smallest = max(memory_needed(thin.shape, role, 1) for role in ("o", "down"))
    reads = Counter()
    with pytest.raises(
        InputError, match=rf"^{smallest - 1} bytes .* two layers: give at least {smallest} bytes$"
    ):
        weight_stats(thin, cka=True, memory=smallest - 1, reads=reads)
    assert not reads
    assert numbers(weight_stats(thin, cka=True, memory=smallest)) == numbers(weight_stats(thin, cka=True))


def test_norms_alone_need_no_memory_for_layers(thin):
    assert weight_stats(thin, cka=False, memory=1).norm_L7.shape == (7, 7)


def test_one_layer_is_compared_with_itself(tmp_path):
    checkpoint = write_llama(tmp_path / "m", [columns(U)], [columns(U, V)])
    memory = max(memory_needed(checkpoint.shape, role, 1) for role in ("o", "down"))
    stats = weight_stats(checkpoint, cka=True, memory=memory)
    np.testing.assert_allclose(stats.cka_o_LL, [[1]], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_stored_dtype_gives_what_its_values_in_float32_give(tmp_path, dtype):
    o = [torch.tensor(matrix).to(dtype).float() for matrix in random_matrices(6, 4, 8, 2)]
    down = [torch.tensor(matrix).to(dtype).float() for matrix in random_matrices(7, 4, 8, 11)]
    names = [f"model.layers.{i}.{module}_proj.weight" for i in range(4) for module in ("mlp.gate", "mlp.up")]
    names += [f"model.layers.{i}.self_attn.{role}_proj.weight" for i in range(4) for role in "qkv"]
    given = {name: torch.ones(11 if "mlp" in name else 2, 8) / 4 for name in names}
    stored = write_llama(tmp_path / "stored", o, down, dtype=dtype, **given)
    widened = write_llama(tmp_path / "widened", o, down, **given)
    assert stored.dtype == str(dtype).removeprefix("torch.")
    assert numbers(weight_stats(stored, cka=True)) == numbers(weight_stats(widened, cka=True))


def test_a_checkpoint_in_several_files_gives_the_same_bits(tmp_path):
    o, down = random_matrices(8, 4, 8, 2), random_matrices(9, 4, 8, 11)
    whole = weight_stats(write_llama(tmp_path / "whole", o, down), cka=True)
    parts = weight_stats(write_llama(tmp_path / "parts", o, down, split=True), cka=True)
    assert whole.to_bytes() == parts.to_bytes()


@given(
    order=st.permutations(range(11)),
    scale=st.floats(0.01, 100),
    sign=st.sampled_from([1, -1]),
    shift=st.floats(-3, 3),
)
@settings(max_examples=25)
def test_similarities_ignore_the_order_scale_and_common_shift_of_columns(thin, order, scale, sign, shift):
    o, down = random_matrices(2, 7, 8, 2), random_matrices(3, 7, 8, 11)
    down[3] = sign * scale * (down[3][:, order] + shift)
    o[5] = sign * scale * (o[5][:, ::-1] + shift)
    with TemporaryDirectory() as folder:
        changed = weight_stats(write_llama(Path(folder) / "m", o, down), cka=True)
    dense = weight_stats(thin, cka=True)
    np.testing.assert_allclose(changed.cka_o_LL, dense.cka_o_LL, atol=1e-4)
    np.testing.assert_allclose(changed.cka_down_LL, dense.cka_down_LL, atol=1e-4)


@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 5), width=st.integers(1, 9))
@settings(max_examples=25)
def test_similarities_are_symmetric_between_zero_and_one(seed, layers, width):
    o, down = random_matrices(seed, layers, 6, width), random_matrices(seed + 1, layers, 6, width)
    with TemporaryDirectory() as folder:
        stats = weight_stats(write_llama(Path(folder) / "m", o, down), cka=True)
    for cka_LL in (stats.cka_o_LL, stats.cka_down_LL):
        np.testing.assert_array_equal(cka_LL, cka_LL.T)
        assert np.all((cka_LL >= 0) & (cka_LL <= 1 + 1e-6))
        np.testing.assert_allclose(np.diagonal(cka_LL), 1, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("module", ["self_attn.v_proj", "mlp.down_proj"])
@pytest.mark.parametrize("cka", [True, False])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, value, module, cka):
    name = f"model.layers.1.{module}.weight"
    bad = torch.ones((3, 2) if "mlp" in module else (1, 3))
    bad[0, 1] = value
    down = [columns(U, V), columns(V, W)]
    checkpoint = write_llama(tmp_path / "m", [columns(U), columns(V)], down, **{name: bad})
    with pytest.raises(
        InputError, match=rf"model\.safetensors: tensor '{name}' has weights that are infinite"
    ):
        weight_stats(checkpoint, cka=cka)


@pytest.mark.parametrize("module", ["self_attn.o_proj", "mlp.down_proj"])
def test_weights_whose_products_overflow_float32_are_refused_by_name(tmp_path, module):
    large = {"self_attn.o_proj": columns(U) * 1e20, "mlp.down_proj": columns(U, V, W, U) * 1e20}
    name = f"model.layers.1.{module}.weight"
    down = [columns(U, V, W, U), columns(V, W, U, V)]
    checkpoint = write_llama(tmp_path / "m", [columns(U)] * 2, down, **{name: large[module]})
    with pytest.raises(InputError, match=rf"^tensor '{name}' has weights too large to compare in float32$"):
        weight_stats(checkpoint, cka=True)
    assert np.isfinite(weight_stats(checkpoint, cka=False).norm_L7).all()


def test_a_file_that_shrinks_after_it_was_checked_is_refused(tmp_path):
    checkpoint = write_llama(tmp_path / "m", [columns(U)] * 2, [columns(U, V)] * 2)
    file = tmp_path / "m" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"was cut short while it was read, in tensor 'model\.layers\.\d"):
        weight_stats(checkpoint, cka=False)


@pytest.mark.real
def test_the_real_model_has_the_recorded_similarities_and_norms(smollm2):
    recorded = json.loads((GOLDEN / "depth_wrp.json").read_text())
    reads = Counter()
    stats = weight_stats(Checkpoint.open(smollm2), cka=True, reads=reads)
    np.testing.assert_allclose(stats.norm_L7, recorded["norms"], rtol=1e-9)
    upper = np.triu_indices(30)
    projections = (stats.cka_o_LL + stats.cka_down_LL) / 2
    np.testing.assert_allclose(projections[upper], np.concatenate(recorded["S_proj"]), atol=1e-6)
    np.testing.assert_allclose(weight_similarity(stats)[upper], np.concatenate(recorded["S"]), atol=1e-6)
    assert set(reads.values()) == {1}
    assert len(reads) == 210
