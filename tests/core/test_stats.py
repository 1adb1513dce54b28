import io
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.stats import PROJECTIONS, CalibrationStats, WeightStats
from prunebench.errors import InputError

SHAPES = {
    "cosine_BB": (4, 4),
    "cosine_normed_L": (3,),
    "cosine_attention_L": (3,),
    "cosine_mlp_L": (3,),
    "squared_change_L": (3,),
    "absolute_change_L": (3,),
    "feature_sum_LI": (3, 5),
    "feature_square_LI": (3, 5),
    "attention_sum_LA": (3, 2),
    "attention_square_LA": (3, 2),
}


def shard(seed, tokens=8, source="s"):
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    return CalibrationStats(source=source, tokens=tokens, hidden_size=16, **arrays)


def equal(a, b):
    assert type(a) is type(b)
    for f in fields(a):
        np.testing.assert_array_equal(getattr(a, f.name), getattr(b, f.name))
        assert type(getattr(a, f.name)) is type(getattr(b, f.name))


def test_every_sum_and_the_tokens_add():
    a, b = shard(1, tokens=8), shard(2, tokens=5)
    total = a + b
    assert total.tokens == 13
    assert total.hidden_size == 16
    assert total.source == "s"
    for name in SHAPES:
        np.testing.assert_array_equal(getattr(total, name), getattr(a, name) + getattr(b, name))
    equal(a, shard(1, tokens=8))


def test_other_sources_do_not_add():
    with pytest.raises(InputError, match=r"^statistics of different sources do not add: s and t$"):
        shard(1) + shard(2, source="t")


@given(st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_adding_in_shard_order_gives_the_same_bytes(seeds):
    def total():
        result = shard(seeds[0])
        for seed in seeds[1:]:
            result = result + shard(seed)
        return result

    assert total().to_bytes() == total().to_bytes()
    assert total().tokens == 8 * len(seeds)


def test_the_similarity_is_the_mean_cosine_with_a_unit_diagonal():
    stats = replace(shard(0, tokens=4), cosine_BB=np.array([[3.9, 2.0], [2.0, 4.1]]))
    np.testing.assert_array_equal(stats.similarity_BB, [[1.0, 0.5], [0.5, 1.0]])
    np.testing.assert_array_equal(stats.cosine_BB, [[3.9, 2.0], [2.0, 4.1]])


def test_calibration_statistics_survive_bytes():
    stats = shard(3, source="weights:é tokens:1")
    equal(CalibrationStats.from_bytes(stats.to_bytes()), stats)


def test_weight_statistics_survive_bytes():
    rng = np.random.default_rng(0)
    stats = WeightStats(
        source="w",
        norm_L7=rng.normal(size=(3, len(PROJECTIONS))),
        column_square_LI=rng.normal(size=(3, 5)),
        cka_o_LL=np.zeros((0, 0)),
        cka_down_LL=rng.normal(size=(3, 3)),
    )
    equal(WeightStats.from_bytes(stats.to_bytes()), stats)


def test_pickles_are_neither_written_nor_read():
    poisoned = replace(shard(0), cosine_BB=np.array([[object()]]))
    with pytest.raises(ValueError, match="cannot be saved"):
        poisoned.to_bytes()
    buffer = io.BytesIO()
    np.savez(buffer, cosine_BB=poisoned.cosine_BB)
    with pytest.raises(ValueError, match="cannot be loaded"):
        CalibrationStats.from_bytes(buffer.getvalue())


def test_the_projections_have_one_order():
    assert PROJECTIONS == ("q", "k", "v", "o", "gate", "up", "down")
