import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget
from prunebench.errors import InputError
from prunebench.methods.random_drop import RandomDrop, RandomParams


def removed(seen, layers, **params):
    return RandomDrop().plan(seen, Budget(layers), RandomParams(**params)).plan.removed_layers


def test_it_is_a_prefix_of_numpys_permutation(seen):
    assert np.random.default_rng(0).permutation(12).tolist() == [9, 2, 7, 4, 5, 11, 0, 3, 6, 10, 8, 1]
    assert removed(seen, 1) == (9,)
    assert removed(seen, 4) == (2, 4, 7, 9)
    assert removed(seen, 4, seed=0) == (2, 4, 7, 9)
    assert removed(seen, 4, seed=1) == tuple(sorted(np.random.default_rng(1).permutation(12)[:4].tolist()))


def test_protected_layers_are_not_in_the_draw(seen):
    drawn = np.random.default_rng(5).permutation([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert removed(seen, 3, seed=5, protect=(0, -1)) == tuple(sorted(drawn[:3].tolist()))


@given(st.integers(0, 2**32), st.integers(1, 11))
def test_larger_budgets_of_one_seed_are_supersets(seen, seed, layers):
    gone = removed(seen, layers, seed=seed)
    assert len(gone) == layers
    assert set(removed(seen, max(layers - 1, 1), seed=seed)) <= set(gone)


def test_every_layer_is_drawn_about_equally_often(seen):
    counts = np.zeros(12)
    for seed in range(600):
        counts[list(removed(seen, 3, seed=seed))] += 1
    assert counts.sum() == 1800
    assert counts.min() > 105  # 150 expected, standard deviation 10.6
    assert counts.max() < 195


def test_a_negative_seed_is_refused():
    RandomParams(seed=0)
    with pytest.raises(InputError, match=r"^seed -1: has to be at least 0$"):
        RandomParams(seed=-1)
