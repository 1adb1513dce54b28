"""A model read block by block gives the bits of the whole model, and holds one part of it at a time."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.errors import InputError, ResourceError
from prunebench.models import streamed_calibration
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.family import EMBEDDINGS
from prunebench.models.load import load_model
from prunebench.models.probe import ModelProbe
from prunebench.models.safetensors_file import TensorEntry
from prunebench.models.scoring import Row, token_logprobs, token_logprobs_together
from prunebench.models.streamed import StreamedModel, read_tensor, stream_model
from prunebench.models.streamed_calibration import calibrate_streamed

L, WIDTH = 6, 44
ROWS = [
    np.array([(7 * i + 3 * r + i * i) % 272 for i in range(length)])
    for r, length in enumerate([24, 33, 24, 7, 33, 2, 24])
]
HALF = Mask.keep(range(0, WIDTH, 2), WIDTH)


def plan(*layers):
    return PruningPlan(num_layers=L, layers=layers)


def kept(base, **changes):
    return LayerSpec(base=base, **changes)


PLANS = {
    "dense": PruningPlan.dense(L),
    "depth": PruningPlan.without([2, 3], L),
    "last": PruningPlan.without([5], L),
    "merged": plan(kept(0), kept(1, blend=((1, -1.0), (2, 1.0), (3, 1.0))), kept(4, blend=((5, 1.0),))),
    "trimmed": plan(*(kept(i, features=HALF if i > 2 else None) for i in range(L))),
    "dropped": plan(*(kept(i, drop=("attention",) if i in (1, 4) else ()) for i in range(L))),
    "in any order": plan(kept(0), kept(0), kept(3), kept(2, drop=("mlp",))),
}


def bits(logprobs):
    return [values.tobytes() for values in logprobs]


@pytest.fixture
def streamed(family_dense) -> StreamedModel:
    return stream_model(family_dense.checkpoint, dtype="float32")


def test_statistics_of_every_family_are_those_of_the_whole_model(family_dense, streamed):
    assert calibrate(streamed, ROWS, "s").to_bytes() == calibrate(family_dense, ROWS, "s").to_bytes()


def test_plans_of_every_family_score_as_with_the_whole_model(family_dense, streamed):
    rows = [Row(ids) for ids in ROWS]
    whole = {plan: bits(found) for plan, found in token_logprobs(family_dense, PLANS.values(), rows)}
    read = {plan: bits(found) for plan, found in token_logprobs(streamed, PLANS.values(), rows)}
    assert read == whole
    assert len(read) == len(PLANS)


def test_shards_and_ranges_that_go_together_keep_their_bits(load_tiny):
    dense = load_tiny("qwen3")
    model = stream_model(dense.checkpoint, dtype="float32")
    shards = [ROWS[:3], ROWS[3:5], ROWS[5:]]
    together = calibrate_streamed(model, shards, "s")
    assert [found.to_bytes() for found in together] == [
        calibrate(dense, rows, "s").to_bytes() for rows in shards
    ]
    work = [
        (list(PLANS.values())[:4], [Row(ids) for ids in ROWS[:2]]),
        (list(PLANS.values())[2:], [Row(ids) for ids in ROWS[2:]]),
    ]
    found = {(place, plan): bits(given) for place, plan, given in token_logprobs_together(model, work)}
    alone = {
        (place, plan): bits(given)
        for place, (plans, rows) in enumerate(work)
        for plan, given in token_logprobs(dense, plans, rows)
    }
    assert found == alone


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes_and_eager_attention_keep_their_bits(load_tiny, dtype):
    checkpoint = load_tiny("gemma3").checkpoint
    both = [load(checkpoint, dtype=dtype, attention="eager") for load in (load_model, stream_model)]
    whole, read = (calibrate(dense, ROWS, "s").to_bytes() for dense in both)
    assert read == whole


def test_a_probe_answers_as_with_the_whole_model(load_tiny):
    dense = load_tiny("llama")
    answers = []
    for model in (dense, stream_model(dense.checkpoint, dtype="float32")):
        probe = ModelProbe(model, ROWS, "corpus", {}, lambda _answer: None)
        answers.append([probe.loss(PLANS["depth"]), probe.output_similarity(PLANS["merged"])])
    assert answers[0] == answers[1]


def test_one_part_is_in_memory_and_every_block_is_read_once(load_tiny, monkeypatch):
    checkpoint = Checkpoint.open(load_tiny("llama").checkpoint.path)
    model = stream_model(checkpoint, dtype="float32")
    parts, held = [], []
    usual = StreamedModel._fill

    def fill(self, part):
        usual(self, part)
        parts.append(part)
        held.append(self.held_bytes())

    monkeypatch.setattr(StreamedModel, "_fill", fill)
    blocks = [f"model.layers.{i}" for i in range(L)]
    calibrate(model, ROWS, "s")
    assert parts == ["model.embed_tokens", *blocks]
    parts.clear()
    for _ in token_logprobs(model, [PLANS["dense"], PLANS["depth"], PLANS["trimmed"]], [Row(ROWS[0])]):
        pass
    assert parts == ["model.embed_tokens", *blocks, "lm_head"]
    shape = checkpoint.shape
    block = 4 * (shape.params_per_layer + shape.block_extra_params)
    embeddings = 4 * checkpoint.tensors[EMBEDDINGS].numel
    assert max(held) <= max(block, embeddings) + 4 * shape.hidden_size


def test_nothing_is_held_before_it_is_needed_and_the_dense_model_stays_empty(load_tiny):
    model = stream_model(load_tiny("phi3").checkpoint, dtype="float32")
    assert model.held_bytes() == 4 * model.checkpoint.shape.hidden_size
    assert all(not buffer.is_meta for buffer in model.model.buffers())


def test_states_that_fit_on_no_disk_are_refused(load_tiny, monkeypatch):
    model = stream_model(load_tiny("llama").checkpoint, dtype="float32")
    monkeypatch.setattr(streamed_calibration.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1000))
    with pytest.raises(ResourceError, match=r"7 block boundaries take 0\.0 GB.*set TMPDIR"):
        calibrate(model, ROWS, "s")


def test_bad_input_is_refused_with_a_sentence(load_tiny, tmp_path):
    checkpoint = load_tiny("llama").checkpoint
    with pytest.raises(InputError, match="dtype 'int8' is not one of"):
        stream_model(checkpoint, dtype="int8")
    with pytest.raises(InputError, match="cannot be opened with attention 'none'"):
        stream_model(checkpoint, dtype="float32", attention="none")
    with pytest.raises(InputError, match="the calibration has no rows"):
        calibrate(stream_model(checkpoint, dtype="float32"), [], "s")
    short = tmp_path / "short"
    short.write_bytes(bytes(10))
    with pytest.raises(InputError, match="has become shorter"):
        read_tensor(TensorEntry(short, "F32", (4,), 0, 16))


def test_a_tensor_is_read_as_it_is_stored(load_tiny):
    dense = load_tiny("llama")
    read = read_tensor(dense.checkpoint.tensors["model.layers.1.mlp.up_proj.weight"])
    assert torch.equal(read, dense.model.model.layers[1].mlp.up_proj.weight)
