"""The recipes against LoRP's own formula, computed here from its description."""

import json
import random
import shutil

import pytest
import torch
from transformers import AutoTokenizer

from mirrors import write_split
from prunebench.core.plan import PruningPlan
from prunebench.data.recipes import RECIPES, recipe_task
from prunebench.evaluation.base import EVALUATORS
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.view import ModelView
from prunebench.pipeline.prepare import text_codec
from prunebench.store.aggregate import aggregate

L = 6
PLANS = [PruningPlan.dense(L), PruningPlan.without([1, 3], L)]


def words(seed: int, size: int) -> str:
    generator = random.Random(seed)
    return "".join(generator.choice("abcdefgh ijkl.") for _ in range(size))


@pytest.fixture(params=[False, True], ids=["plain", "with BOS"])
def checkpoint(request, tiny, tmp_path):
    """The tiny llama, with a tokenizer that starts a text with BOS or does not."""
    folder = tmp_path / "model"
    shutil.copytree(tiny("llama"), folder)
    if request.param:
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        }
        path.write_text(json.dumps(tokenizer))
    return Checkpoint.open(folder)


def joined(tokenizer, texts):
    return tokenizer("\n\n".join(texts), return_tensors="pt").input_ids


def windows_of_c4(tokenizer, texts):
    draw, found = random.Random(0), []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        if ids.shape[1] >= 2048 + 1:
            start = draw.randint(0, ids.shape[1] - 2048 - 1)
            found.append(ids[:, start : start + 2048])
    return torch.hstack(found)


@torch.no_grad()
def released_formula(dense, plan, stream, length):
    """exp(Σ_i (mean loss of the shifted labels of window i · length) / (windows · length))."""
    count = stream.numel() // length
    losses = []
    with ModelView(dense).applied(plan) as model:
        for i in range(count):
            window = stream[:, i * length : (i + 1) * length]
            logits = model(window).logits[:, :-1].float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
            losses.append(loss.double() * length)
    return torch.exp(torch.stack(losses).sum() / (count * length)).item()


@pytest.mark.parametrize(
    ("name", "stream_of"),
    [
        ("lorp_wikitext2", joined),
        ("lorp_ptb", joined),
        ("lorp_c4", windows_of_c4),
        ("flap_wikitext2", joined),
    ],
)
def test_the_aggregate_is_the_released_formula(load_tiny, checkpoint, tmp_path, name, stream_of):
    recipe = RECIPES[name]
    texts = [words(i, 2300) for i in range(2)]
    write_split(tmp_path, recipe.dataset, recipe.split, texts, column=recipe.column)
    windows = 2 if name == "lorp_c4" else None
    task = recipe_task(name, text_codec(checkpoint), name="t", mirror=tmp_path, windows=windows)
    stream = stream_of(AutoTokenizer.from_pretrained(checkpoint.path), texts)
    dense = load_tiny("llama")
    for plan, samples in EVALUATORS["perplexity"].evaluate(dense, PLANS, task.documents):
        assert isinstance(samples, tuple)
        assert {sample.weight for sample in samples} == {recipe.length - 1}
        measured = aggregate("perplexity", sum(s.value for s in samples), sum(s.weight for s in samples))
        assert measured == pytest.approx(released_formula(dense, plan, stream, recipe.length), rel=2e-6)


def test_a_text_starts_as_the_tokenizer_itself_starts_it(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.path)
    assert tokenizer is not None
    called = text_codec(checkpoint).as_called().ids("some text").tolist()
    assert called == tokenizer("some text").input_ids


def test_sentences_of_unequal_length_are_one_mean_over_all_their_tokens(load_tiny, tiny, tmp_path):
    recipe = RECIPES["laco_wikipedia"]
    sentences = ["Mouron is a commune.", "Here is a rather longer sentence about nothing at all."]
    write_split(tmp_path, recipe.dataset, recipe.split, [f"{s} Next one." for s in sentences])
    codec = text_codec(Checkpoint.open(tiny("llama")))
    task = recipe_task("laco_wikipedia", codec, name="t", mirror=tmp_path, windows=2)
    dense = load_tiny("llama")
    ((_, samples),) = EVALUATORS["perplexity"].evaluate(dense, PLANS[:1], task.documents)
    assert isinstance(samples, tuple)
    assert [s.weight for s in samples] == [len(s) - 1 for s in sentences]
    nll = 0.0
    for sentence in sentences:
        ids = torch.tensor([codec.encode(sentence)])
        with torch.no_grad():
            nll += float(dense.model(ids, labels=ids).loss) * (len(sentence) - 1)
    tokens = sum(len(s) - 1 for s in sentences)
    measured = aggregate("perplexity", sum(s.value for s in samples), tokens)
    assert measured == pytest.approx(float(torch.tensor(nll / tokens).exp()), rel=2e-6)
