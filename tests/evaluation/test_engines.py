"""Prompts, sampling and what engines have in common; Transformers' engine and the one without a model."""

import json
import time
from dataclasses import replace

import pytest
import torch
from transformers import GenerationConfig

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.core.unit import Failed, Generated, Generation, UnitDone
from prunebench.data.tasks import Question
from prunebench.errors import InputError, NonFiniteError
from prunebench.evaluation.generation.base import Request, Sampling, request_seed
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.generation.fake import FakeEngine
from prunebench.evaluation.generation.hf import HfEngine
from prunebench.evaluation.generation.items import Writing
from prunebench.evaluation.generation.template import chat_template, template_hash
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.view import ModelView
from swap import RecordingCodec
from written import UNIT, generation_item, request_for, write_chat_model

DENSE, PRUNED = PruningPlan.dense(6), PruningPlan.without([2, 4], 6)


@pytest.fixture(scope="module")
def checkpoint(tiny, tmp_path_factory):
    return Checkpoint.open(write_chat_model(tiny("llama"), tmp_path_factory.mktemp("chat") / "tiny"))


@pytest.fixture(scope="module")
def codec(checkpoint):
    return Codec(checkpoint)


@pytest.fixture(scope="module")
def dense(checkpoint):
    return load_model(checkpoint, dtype="float32")


@pytest.fixture(scope="module")
def engine(dense, codec):
    return HfEngine(lambda: dense, codec)


def outcomes(engine, plan, requests):
    return [outcome for _, outcome in sorted(engine.generate(plan, requests), key=lambda pair: pair[0])]


def written(engine, plan, requests):
    found = outcomes(engine, plan, requests)
    assert all(isinstance(one, Generation) for one in found)
    return found


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        (Sampling(context=9, max_tokens=5), '{"context":9,"greedy":true,"max_tokens":5}'),
        (
            Sampling(context=9, max_tokens=5, temperature=0.6, top_p=0.95),
            '{"context":9,"max_tokens":5,"temperature":0.6,"top_p":0.95}',
        ),
        (
            Sampling(context=9, max_tokens=5, batch_invariant=True),
            '{"batch_invariant":true,"context":9,"greedy":true,"max_tokens":5}',
        ),
    ],
)
def test_sampling_is_canonical_json_and_comes_back(sampling, text):
    assert sampling.to_json() == text
    assert Sampling.from_json(text) == sampling


def test_seeds_depend_on_document_and_seed_and_on_no_plan():
    seeds = [request_seed(replace(UNIT, seed=seed, document_hash=name)) for seed in range(3) for name in "ab"]
    assert len(set(seeds)) == 6
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert request_seed(UNIT) == request_seed(UNIT.for_plan(PRUNED.plan_id))


def test_a_question_is_put_in_chat_with_reasoning_on_and_a_raw_prompt_is_left_alone(codec):
    question = Question(prompt="Why?", raw=False, grader="integer", reference="1")
    assert codec.decode(codec.encode(question)) == "<s>[user] Why?\n[assistant] <think>"
    assert codec.decode(codec.encode(replace(question, raw=True))) == "Why?"


def test_a_raw_prompt_with_its_own_opening_gets_no_second_one(checkpoint, tmp_path):
    folder = write_chat_model(checkpoint.path, tmp_path / "opening")
    data = json.loads((folder / "tokenizer.json").read_text())
    data["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(data))
    codec = Codec(Checkpoint.open(folder))
    question = Question(prompt="Why?", raw=True, grader="integer", reference="1")
    assert codec.decode(codec.encode(question)) == "<s>Why?"
    assert codec.decode(codec.encode(replace(question, prompt="<s>Why?"))) == "<s>Why?"


def test_a_template_that_asks_for_the_date_gets_the_same_every_day(checkpoint, tmp_path):
    folder = write_chat_model(checkpoint.path, tmp_path / "dated")
    (folder / "chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}")
    question = Question(prompt="Why?", raw=False, grader="integer", reference="1")
    codec = Codec(Checkpoint.open(folder))
    assert codec.decode(codec.encode(question)) == "26 Jul 2024: Why?"


def test_the_template_is_found_in_each_of_its_places_and_is_in_the_key(checkpoint, tiny, tmp_path):
    other = write_chat_model(tiny("llama"), tmp_path / "other")
    text = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").unlink()
    assert chat_template(Checkpoint.open(other)) is None
    with pytest.raises(InputError, match="has no chat template"):
        template_hash(Checkpoint.open(other))
    config = json.loads((other / "tokenizer_config.json").read_text())
    for held in (text, [{"name": "tools", "template": "x"}, {"name": "default", "template": text}]):
        (other / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": held}))
        assert template_hash(Checkpoint.open(other)) == template_hash(checkpoint)
    (other / "chat_template.jinja").write_text(f"{text} ")
    assert template_hash(Checkpoint.open(other)) != template_hash(checkpoint)


def test_greedy_tokens_are_those_of_plain_generation_under_the_view(engine, dense, codec):
    request = request_for(codec, "How many?")
    (found,) = written(engine, PRUNED, [request])
    row = torch.tensor([request.prompt])
    with ModelView(dense).applied(PRUNED) as model:
        ids = model.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=24, do_sample=False)
    assert found.text == codec.decode(ids[0, row.shape[1] :])
    assert (found.num_prompt_tokens, found.num_tokens) == (len(request.prompt), ids.shape[1] - row.shape[1])
    assert found.finish_reason == "length"


def test_what_is_written_depends_on_plan_and_seed_and_not_on_other_prompts(engine, codec):
    requests = [
        request_for(codec, text, seed=seed, temperature=0.9, top_p=0.95)
        for text in ("How many?", "Why?")
        for seed in (1, 2)
    ]
    together = written(engine, PRUNED, requests)
    assert together == [written(engine, PRUNED, [request])[0] for request in requests]
    assert len({one.text for one in together}) == 4
    assert written(engine, DENSE, requests[:1]) != together[:1]


def test_drawing_leaves_other_random_numbers_alone(engine, codec):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = torch.rand(1)
    written(engine, DENSE, [request_for(codec, "Why?", temperature=0.9)])
    assert torch.cat([first, torch.rand(1)]).equal(expected)


def test_what_a_checkpoint_recommends_is_not_read_and_comes_back(engine, dense, codec):
    before = written(engine, DENSE, [request_for(codec, "Why?", temperature=0.9, top_p=0.95)])
    recommended = GenerationConfig(top_k=1, repetition_penalty=9.0, do_sample=True, max_new_tokens=2)
    own, dense.model.generation_config = dense.model.generation_config, recommended
    try:
        assert written(engine, DENSE, [request_for(codec, "Why?", temperature=0.9, top_p=0.95)]) == before
        assert dense.model.generation_config is recommended
    finally:
        dense.model.generation_config = own


def test_an_end_token_ends_the_answer_and_is_counted_but_not_told(engine, dense, codec):
    request = request_for(codec, "Why?")
    recorder = RecordingCodec(dense.checkpoint)
    written(HfEngine(lambda: dense, recorder), DENSE, [request])
    ids = recorder.ids[request.prompt]
    recorder.end_ids = (ids[4],)
    (ended,) = written(HfEngine(lambda: dense, recorder), DENSE, [request])
    first = ids.index(ids[4])
    assert ended.text == codec.decode(ids[:first])
    assert (ended.num_tokens, ended.finish_reason) == (first + 1, "stop")


def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(engine, codec):
    whole = written(engine, DENSE, [request_for(codec, "Why?")])[0]
    stop = next(letter for letter in whole.text[2:] if letter.isascii() and letter.isprintable())
    cut = written(engine, DENSE, [request_for(codec, "Why?", stop=("never there", stop))])[0]
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.num_tokens < whole.num_tokens


def test_the_context_ends_an_answer_too(engine, codec):
    request = request_for(codec, "Why?", context=len(request_for(codec, "Why?").prompt) + 3)
    (found,) = written(engine, DENSE, [request])
    assert (found.num_tokens, found.finish_reason) == (3, "length")


def test_logits_that_are_not_finite_fail_one_plan_and_leave_the_model_whole(engine, codec):
    broken = PruningPlan.dense(6)
    first = LayerSpec(base=0, blend=((0, 1e38), (1, 1e38)))
    broken = replace(broken, layers=(first, *broken.layers[1:]))
    before = written(engine, DENSE, [request_for(codec, "Why?")])
    found = outcomes(engine, broken, [request_for(codec, "Why?"), request_for(codec, "How?")])
    assert all(isinstance(one, NonFiniteError) and broken.plan_id in str(one) for one in found)
    assert written(engine, DENSE, [request_for(codec, "Why?")]) == before


def test_the_fake_engine_writes_by_plan_prompt_and_seed(codec):
    fake = FakeEngine(codec, None)
    drawn = [request_for(codec, "Why?", seed=seed, temperature=0.6, max_tokens=64) for seed in range(3)]
    texts = [one.text for one in written(fake, DENSE, drawn)]
    assert len(set(texts)) == 3
    assert [one.text for one in written(fake, DENSE, drawn)] == texts
    assert [one.text for one in written(fake, PRUNED, drawn)] != texts
    greedy = [request_for(codec, "Why?", seed=seed, max_tokens=64) for seed in range(2)]
    assert len({one.text for one in written(fake, DENSE, greedy)}) == 1


def messages(one, codec, engine):
    writing = Writing(item=one, engine=engine, codec=codec, allow_code_execution=False, threads=1)
    return list(writing.messages())


def test_text_comes_before_its_score_and_both_name_their_unit(codec):
    one = generation_item(("a", "b"), DENSE, "fake")
    found = messages(one, codec, lambda: FakeEngine(codec, None))
    for unit in one.units:
        own = [message for message in found if message.unit == unit]
        assert [type(message) for message in own] == [Generated, UnitDone]
        assert own[1].seconds >= own[0].seconds


def test_what_is_written_already_is_scored_without_an_engine(codec):
    one = generation_item(("a", "b"), DENSE, "fake")
    text = Generation(
        prompt_hash="h", text="\\boxed{1}", num_prompt_tokens=1, num_tokens=3, finish_reason="stop"
    )
    for unit in one.units:
        one = one.with_known(unit.generation_id, text)

    def no_engine():
        raise AssertionError("an engine was asked for")

    found = messages(one, codec, no_engine)
    assert sorted(message.unit.start for message in found) == [0, 1]
    scores = {
        message.unit.start: sample.value
        for message in found
        for sample in message.samples
        if sample.metric == "acc"
    }
    assert scores == {0: 0.0, 1: 1.0}


def test_a_graders_fault_fails_its_own_unit_and_the_rest_goes_on(codec):
    one = generation_item(("a", "b", "c"), DENSE, "fake")
    broken = replace(one.documents[1], payload=replace(one.documents[1].payload, grader="no such grader"))
    one = replace(one, documents=(one.documents[0], broken, one.documents[2]))
    found = messages(one, codec, lambda: FakeEngine(codec, None))
    failed = [message for message in found if isinstance(message, Failed)]
    assert [message.keys for message in failed] == [(one.units[1].unit_id,)]
    assert "Traceback" in failed[0].traceback
    assert [message.unit.start for message in found if isinstance(message, Generated)] == [0, 1, 2]
    assert sorted(message.unit.start for message in found if isinstance(message, UnitDone)) == [0, 2]


def test_a_worker_with_another_version_of_vllm_than_the_driver_writes_nothing(codec):
    one = generation_item(("a", "b"), DENSE, "vllm")
    units = tuple(replace(unit, backend_version="0.0.1") for unit in one.units)
    with pytest.raises(InputError, match=r"planned for vllm 0\.0\.1, but this worker has"):
        messages(replace(one, units=units), codec, lambda: FakeEngine(codec, None))


class _Slow(FakeEngine):
    """Takes its time after the first answer."""

    def generate(self, plan, requests):
        for place, outcome in super().generate(plan, requests):
            yield place, outcome
            time.sleep(0.2)


def test_scores_arrive_while_the_engine_goes_on_writing(codec):
    found = messages(generation_item(("a", "b", "c"), DENSE, "fake"), codec, lambda: _Slow(codec, None))
    kinds = [type(message) for message in found]
    assert kinds.index(UnitDone) < len(kinds) - 1 - kinds[::-1].index(Generated)


def test_an_answer_may_be_as_long_as_the_context_leaves_room():
    assert Request(prompt=(1, 2), sampling=Sampling(context=5, max_tokens=9), seed=0).limit == 3
