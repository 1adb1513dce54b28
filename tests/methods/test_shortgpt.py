import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.methods.shortgpt import ShortGPT, ShortGPTParams


def chain(cosines):
    """A (B, B) matrix with the given cosines between neighbours."""
    return np.eye(len(cosines) + 1) + np.diag(cosines, 1) + np.diag(cosines, -1)


def removed(seen, layers, **params):
    return ShortGPT().plan(seen, Budget(layers), ShortGPTParams(**params)).plan.removed_layers


def test_worked_by_hand(seen_similarity):
    # BI = 1 - cos = 0.9, 0.2, 0.05, 0.1, 0.5
    seen = seen_similarity(chain([0.1, 0.8, 0.95, 0.9, 0.5]), tokens=8)
    assert removed(seen, 1) == (2,)
    assert removed(seen, 2) == (2, 3)
    assert removed(seen, 3) == (1, 2, 3)
    assert removed(seen, 4) == (1, 2, 3, 4)
    assert removed(seen, 2, protect=(2,)) == (1, 3)


def test_the_last_layer_depends_on_the_final_norm_only_if_asked(seen_similarity):
    seen = seen_similarity(chain([0.1, 0.8, 0.5]), normed_L=[0.0, 0.0, 0.9])
    assert removed(seen, 1) == (1,)
    assert removed(seen, 1, last_state="hf") == (2,)


def test_ties_go_to_the_lower_layer_with_a_warning(seen_similarity):
    planned = ShortGPT().plan(seen_similarity(chain([0.5, 0.75, 0.75])), Budget(1), ShortGPTParams())
    assert planned.plan == PruningPlan.without([1], 3)
    assert planned.warnings == (
        "Block Influence: layer 1 was preferred to layer 2 by a relative margin under 1e-4 (0.25 and 0.25)",
    )
    assert (
        ShortGPT().plan(seen_similarity(chain([0.5, 0.75, 0.75])), Budget(2), ShortGPTParams()).warnings == ()
    )


def test_it_refuses_statistics_that_overflowed(seen_similarity):
    with pytest.raises(InputError, match="are not finite"):
        removed(seen_similarity(chain([0.5, np.nan, 0.75])), 1)


@pytest.mark.parametrize("state", ["prenorm", "hf"])
def test_it_agrees_with_the_authors_code(golden, symmetric, seen_similarity, state):
    recorded = golden("depth_cosine.json")
    authors = recorded["shortgpt"]
    influence = np.array(authors["influence_prenorm" if state == "prenorm" else "influence"])
    boundaries = symmetric(recorded["boundaries"])
    own = 1 - np.diagonal(boundaries, 1)
    np.testing.assert_allclose(own[:-1], influence[:-1], rtol=1e-4)
    seen = seen_similarity(boundaries, normed_L=1 - influence, tokens=4096)
    order = authors["order_prenorm" if state == "prenorm" else "order"]
    for layers in range(1, 30):
        assert removed(seen, layers, last_state=state) == tuple(sorted(order[:layers]))
    for layers, expected in authors["removed"].items():
        assert list(removed(seen, int(layers), last_state=state)) == expected


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=10, unique=True), st.data())
def test_every_larger_budget_removes_a_superset_of_lowest_influence(seen_similarity, cosines, data):
    layers = data.draw(st.integers(1, len(cosines) - 1))
    gone = removed(seen_similarity(chain(cosines)), layers)
    brute = sorted(range(len(cosines)), key=lambda i: (1 - cosines[i], i))[:layers]
    assert gone == tuple(sorted(brute))
    if layers > 1:
        assert set(removed(seen_similarity(chain(cosines)), layers - 1)) < set(gone)


def test_it_is_the_brute_force_over_hidden_states(make_seen):
    for seed in range(5):
        seen = make_seen(num_layers=9, seed=seed)
        total = seen.calibration
        influence = [1 - total.cosine_BB[i, i + 1] / total.tokens for i in range(9)]
        for layers in range(1, 9):
            assert removed(seen, layers) == tuple(
                sorted(np.argsort(influence, kind="stable")[:layers].tolist())
            )
