"""The one calibration pass against statistics computed in float64 from states captured by hand."""

import copy
import dataclasses
import functools
import json
import operator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.stats import CalibrationStats
from prunebench.errors import InputError
from prunebench.models import calibrate as module
from prunebench.models.calibrate import TOKENS_PER_BATCH, batches, calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model

GOLDEN = Path(__file__).parents[1] / "golden"
SUMS = [
    f.name for f in dataclasses.fields(CalibrationStats) if f.name not in ("source", "tokens", "hidden_size")
]
ROWS = [
    np.array([(7 * i + 3 * r + i * i) % 272 for i in range(length)])
    for r, length in enumerate([24, 33, 24, 7, 33, 1, 24])
]
NORM_AFTER_ATTENTION = ("olmo2", "olmo3", "gemma2", "gemma3")


@pytest.fixture
def llama(load_tiny):
    return load_tiny("llama")


def capture(dense, name, row):
    """Float64 states of one row: L + 1 boundaries, L mid states, the normed last, inputs of down and o."""
    body = dense.model.model
    seen = {"inputs": [], "attention": [], "phi": [], "o": []}
    hooks = [body.norm.register_forward_hook(lambda m, a, out: seen["inputs"].append(a[0]))]
    for block in body.layers:
        after = block.post_attention_layernorm if name in NORM_AFTER_ATTENTION else block.self_attn
        hooks += [
            block.register_forward_hook(lambda m, a, out: seen["inputs"].append(a[0])),
            after.register_forward_hook(
                lambda m, a, out: seen["attention"].append(out if isinstance(out, torch.Tensor) else out[0])
            ),
            block.mlp.down_proj.register_forward_hook(lambda m, a, out: seen["phi"].append(a[0])),
            block.self_attn.o_proj.register_forward_hook(lambda m, a, out: seen["o"].append(a[0])),
        ]
    with torch.no_grad():
        normed = body(input_ids=torch.from_numpy(row)[None], use_cache=False).last_hidden_state
    for hook in hooks:
        hook.remove()
    states = torch.stack(seen["inputs"])[:, 0].double()
    mid = states[:-1] + torch.stack(seen["attention"])[:, 0].double()
    phi, o = (torch.stack(seen[kind])[:, 0].double() for kind in ("phi", "o"))
    return states, mid, normed[0].double(), phi, o


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a, b, dim=-1, eps=1e-300)


def reference(dense, name, rows):
    """The sums from their definitions, row by row."""
    total = dict.fromkeys(SUMS, 0)
    for row in rows:
        states, mid, normed, phi, o = capture(dense, name, row)
        change = states[1:] - states[:-1]
        sums = {
            "cosine_BB": cosine(states[:, None], states[None]).sum(-1),
            "cosine_normed_L": cosine(states[:-1], normed).sum(-1),
            "cosine_attention_L": cosine(states[:-1], mid).sum(-1),
            "cosine_mlp_L": cosine(mid, states[1:]).sum(-1),
            "squared_change_L": (change**2).sum((1, 2)),
            "absolute_change_L": change.abs().sum((1, 2)),
            "feature_sum_LI": phi.sum(1),
            "feature_square_LI": (phi**2).sum(1),
            "attention_sum_LA": o.sum(1),
            "attention_square_LA": (o**2).sum(1),
        }
        total = {field: total[field] + value.numpy() for field, value in sums.items()}
    return total


def assert_close(stats, expected, rtol):
    for field in SUMS:
        got, wanted = getattr(stats, field), expected[field]
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max(), err_msg=field)


def test_sums_of_every_family_are_those_of_the_definitions(family_dense, family_name):
    stats = calibrate(family_dense, ROWS, "here")
    assert (stats.source, stats.tokens, stats.hidden_size) == ("here", sum(map(len, ROWS)), 32)
    assert_close(stats, reference(family_dense, family_name, ROWS), 3e-6)


def test_statistics_of_a_bfloat16_model_are_computed_in_float32(tiny):
    dense = load_model(Checkpoint.open(tiny("llama")), dtype="bfloat16")
    states = [capture(dense, "llama", row)[0] for row in ROWS]
    stats = calibrate(dense, ROWS, "")
    expected = np.sum([cosine(state[:, None], state[None]).sum(-1).numpy() for state in states], axis=0)
    np.testing.assert_allclose(stats.cosine_BB, expected, rtol=3e-6, atol=1e-5)


def test_chunks_do_not_change_the_sums(llama, monkeypatch):
    whole = calibrate(llama, ROWS, "")
    monkeypatch.setitem(module._CACHED, "cpu", 170)
    chunked = calibrate(llama, ROWS, "")
    assert_close(chunked, {field: getattr(whole, field) for field in SUMS}, 1e-6)
    assert any(getattr(chunked, field).tobytes() != getattr(whole, field).tobytes() for field in SUMS)


def test_shards_merged_in_order_are_the_same_bytes_in_whatever_order_they_were_computed(llama):
    cuts = [(0, 2), (2, 3), (3, 7)]
    forwards = {cut: calibrate(llama, ROWS[slice(*cut)], "s") for cut in cuts}
    backwards = {cut: calibrate(llama, ROWS[slice(*cut)], "s") for cut in reversed(cuts)}
    merged = [functools.reduce(operator.add, (parts[cut] for cut in cuts)) for parts in (forwards, backwards)]
    assert merged[0].to_bytes() == merged[1].to_bytes()
    whole = calibrate(llama, ROWS, "s")
    assert merged[0].tokens == whole.tokens
    assert_close(merged[0], {field: getattr(whole, field) for field in SUMS}, 1e-6)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
def test_batches_hold_every_row_once_with_equal_lengths_in_order(lengths):
    chosen = batches(lengths)
    assert sorted(row for batch in chosen for row in batch) == list(range(len(lengths)))
    for batch in chosen:
        assert len({lengths[row] for row in batch}) == 1
        assert list(batch) == sorted(batch)
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= TOKENS_PER_BATCH


def test_batches_are_filled():
    assert batches([512] * 5) == [(0, 1), (2, 3), (4,)]
    assert batches([5000, 256, 5000, 256, 256]) == [(0,), (2,), (1, 3, 4)]


def hooks_of(model):
    """How many hooks there are; Transformers itself may have left some for output_hidden_states."""
    return [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]


def test_the_model_is_left_without_hooks_and_with_its_outputs(llama):
    ids = torch.from_numpy(ROWS[0])[None]
    logits, before = llama.model(ids).logits, hooks_of(llama.model)
    calibrate(llama, ROWS, "")
    assert torch.equal(logits, llama.model(ids).logits)
    assert hooks_of(llama.model) == before


def test_a_vector_of_zeros_counts_as_a_cosine_of_zero(llama):
    silent = copy.deepcopy(llama)
    silent.model.model.embed_tokens.weight[5] = 0
    stats = calibrate(silent, [np.array([5])], "")
    assert stats.tokens == 1
    for field in SUMS:
        assert not getattr(stats, field).any(), field


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "the calibration has no rows"),
        ([ROWS[0], np.array([], dtype=np.int64)], "calibration row 1 is empty"),
        ([np.array([3, 272])], r"row 0 has token id 272, but the vocabulary has 272 ids \(0 to 271\)"),
        ([ROWS[0], np.array([-1, 300])], "row 1 has token id -1, but the vocabulary has 272 ids"),
        ([np.array([0.5])], r"row 0 is not a list of token ids: float64 of shape \(1,\)"),
        ([np.array([[1, 2]])], r"row 0 is not a list of token ids: int64 of shape \(1, 2\)"),
    ],
)
def test_bad_rows_are_refused(llama, rows, sentence):
    with pytest.raises(InputError, match=sentence):
        calibrate(llama, rows, "")


def _poison(model, place):
    body = model.model
    weights = {
        "the embeddings": body.embed_tokens.weight[ROWS[0][3]],
        "the output of layer 2": body.layers[2].mlp.down_proj.weight,
        "the final norm": body.norm.weight,
    }
    weights[place][0] = torch.inf


@pytest.mark.parametrize("place", ["the embeddings", "the output of layer 2", "the final norm"])
def test_values_that_are_not_finite_name_their_place_and_leave_no_hook(llama, place):
    broken = copy.deepcopy(llama)
    _poison(broken.model, place)
    before = hooks_of(broken.model)
    with pytest.raises(InputError, match=f"calibration: {place} has values that are not finite in float32"):
        calibrate(broken, ROWS, "")
    assert hooks_of(broken.model) == before


def test_features_too_large_to_square_name_their_layer(llama):
    broken = copy.deepcopy(llama)
    mlp = broken.model.model.layers[1].mlp
    mlp.up_proj.weight[4] *= 1e30
    mlp.down_proj.weight[:, 4] = 0
    with pytest.raises(InputError, match="the input of down_proj in layer 1 has values that are not finite"):
        calibrate(broken, ROWS, "")


@pytest.mark.real
def test_the_real_model_gives_the_recorded_numbers(smollm2):
    golden = json.loads((GOLDEN / "calibration_smollm2.json").read_text())
    rows = list(np.load(GOLDEN / "calibration_tokens_16x256.npy"))
    stats = calibrate(load_model(Checkpoint.open(smollm2), dtype="float32"), rows, "")
    n = stats.tokens
    assert n == 4096
    similarity = stats.similarity_BB
    features, heads = (slice(None, None, golden[f"{kind}_every"]) for kind in ("feature", "attention"))
    for got, name in [
        (1 - np.diag(similarity, 1), "bi_L"),
        (1 - stats.cosine_normed_L[-1] / n, "bi_hf_last"),
        (1 - stats.cosine_mlp_L / n, "bi_mlp_L"),
        (stats.squared_change_L / n, "mssd_L"),
        (stats.absolute_change_L / n / stats.hidden_size, "masd_L"),
        (stats.feature_square_LI[:, features] / n, "feature_square"),
        (stats.feature_square_LI.mean(1) / n, "feature_square_mean_L"),
        (stats.attention_square_LA[:, heads] / n, "attention_square"),
        (stats.attention_square_LA.mean(1) / n, "attention_square_mean_L"),
    ]:
        np.testing.assert_allclose(got, golden[name], rtol=2e-5, err_msg=name)
    np.testing.assert_allclose(similarity[0], golden["similarity_first_row_B"], atol=1e-6)
    np.testing.assert_allclose(similarity[:, -1], golden["similarity_to_last_B"], atol=1e-6)
    scale = np.sqrt(golden["feature_square"])
    assert np.abs((stats.feature_sum_LI[:, features] / n - golden["feature_mean"]) / scale).max() < 1e-5
