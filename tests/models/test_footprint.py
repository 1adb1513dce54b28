"""Counted bytes are those of the tensors."""

import pytest
import torch
from transformers import DynamicCache

from prunebench.models.footprint import cache_bytes, weight_bytes, windows_of


def cache_of(dense, tokens):
    cache = DynamicCache(config=dense.model.config)
    with torch.no_grad():
        dense.model(torch.ones((2, tokens), dtype=torch.int64), past_key_values=cache, use_cache=True)
    return sum(vars(layer)[part].nbytes for layer in cache.layers for part in ("keys", "values"))


def check(dense, tokens):
    shape = dense.checkpoint.shape
    assert weight_bytes(shape, dense.dtype) == sum(part.nbytes for part in dense.model.parameters())
    counted = cache_bytes(
        shape, dense.dtype, tokens=tokens, sequences=2, windows=windows_of(dense.checkpoint)
    )
    assert counted == cache_of(dense, tokens)


def test_weights_and_cache_of_every_family_are_counted_to_the_byte(family_dense):
    """20 tokens are more than the windows of 8, of the families that slide."""
    check(family_dense, tokens=20)


@pytest.mark.real
def test_weights_and_cache_of_the_real_model_are_counted_to_the_byte(smollm2):
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.load import load_model

    dense = load_model(Checkpoint.open(smollm2), dtype="bfloat16")
    check(dense, tokens=100)
    assert weight_bytes(dense.checkpoint.shape, "bfloat16") == 269_030_016
    assert cache_bytes(dense.checkpoint.shape, "bfloat16", tokens=1) == 23_040
