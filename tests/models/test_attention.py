"""Observed attention against the weights of eager attention, family by family."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.models.attention import OBSERVER, attention_of
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.trie import Runner, enter
from prunebench.models.view import ModelView

L = 6
IDS = torch.from_numpy(np.random.default_rng(2).integers(0, 260, (1, 24)))


def softmax(attention):
    stop = attention.tokens
    scores = attention.scores(0, stop).masked_fill(~attention.allowed(0, stop), -torch.inf)
    return scores.softmax(-1)


def observed(dense, layers=range(L)):
    runner = Runner(dense, [enter(dense, IDS)])
    states, found = runner.start, {}
    for layer in range(L):
        spec = LayerSpec(base=layer)
        if layer in layers:
            (found[layer],) = attention_of(dense, runner, spec, states)
        states = runner.block(spec, states)
    return found


@pytest.fixture
def eager(family_path):
    return load_model(Checkpoint.open(family_path), dtype="float32", attention="eager")


def test_it_is_what_eager_attention_weighs_with(eager):
    with torch.no_grad():
        expected = eager.model(input_ids=IDS, output_attentions=True).attentions
    for layer, attention in observed(eager).items():
        torch.testing.assert_close(softmax(attention), expected[layer][0], rtol=1e-4, atol=1e-6)


def test_a_fused_kernel_reads_the_same(family_name, family_dense, eager):
    if family_name == "gemma2":
        # Its soft cap exists under eager attention alone, and moves all states after the first layer's.
        eager = replace(eager, attention="sdpa")
        layers = [0]
    else:
        layers = [0, L - 2, L - 1]
    expected = observed(eager, layers)
    for layer, attention in observed(family_dense, layers).items():
        torch.testing.assert_close(softmax(attention), softmax(expected[layer]), rtol=1e-3, atol=1e-5)


def test_the_model_is_as_before(load_tiny):
    dense = load_tiny("qwen3")
    with torch.no_grad():
        before = dense.model(input_ids=IDS).logits
        observed(dense)
        assert torch.equal(dense.model(input_ids=IDS).logits, before)
    assert dense.model.config._attn_implementation == "sdpa" != OBSERVER


def test_a_failing_block_leaves_the_model_as_it_was(load_tiny):
    dense = load_tiny("llama")
    runner = Runner(dense, [enter(dense, IDS)])
    narrow = tuple(state[..., :3] for state in runner.start)
    with pytest.raises(RuntimeError):
        attention_of(dense, runner, LayerSpec(base=0), narrow)
    assert dense.model.config._attn_implementation == "sdpa"
    with ModelView(dense).applied(PruningPlan.without([1], L)) as model, torch.no_grad():
        assert model(input_ids=IDS).logits.isfinite().all()
