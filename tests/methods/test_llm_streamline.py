import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget
from prunebench.errors import BudgetError
from prunebench.methods.llm_streamline import LLMStreamline, LLMStreamlineParams


def planned(seen, layers, **params):
    return LLMStreamline().plan(seen, Budget(layers), LLMStreamlineParams(**params))


def removed(seen, layers, **params):
    return planned(seen, layers, **params).plan.removed_layers


def matrix(spans):
    """A symmetric (B, B) matrix: `spans[n]` are cos(h_j, h_{j+n}) for j = 0 … L-n."""
    B = len(spans[1]) + 1
    S = np.eye(B)
    for span, cosines in spans.items():
        S += np.diag(cosines, span) + np.diag(cosines, -span)
    return S


HAND = matrix({1: [0.1, 0.7, 0.6, 0.5], 2: [0.0, 0.2, 0.4], 3: [-0.5, 0.3]})


def test_worked_by_hand(seen_similarity):
    seen = seen_similarity(HAND, tokens=2)
    assert removed(seen, 1) == (1,)
    assert removed(seen, 2) == (2, 3)
    assert removed(seen, 3) == (1, 2, 3)
    assert planned(seen, 2).chosen == {"start": 2}
    assert planned(seen, 2).warnings == ()


def test_windows_that_touch_a_protected_layer_are_left_out(seen_similarity):
    seen = seen_similarity(HAND)
    assert removed(seen, 1, protect=(1,)) == (2,)
    assert removed(seen, 2, protect=(-1,)) == (1, 2)
    assert removed(seen, 2, protect=(2,)) == (0, 1)


def test_both_ends_are_legal_windows(seen_similarity):
    assert removed(seen_similarity(matrix({1: [0.9, 0.7, 0.6]})), 1) == (0,)
    assert removed(seen_similarity(matrix({1: [0.5, 0.7, 0.9]})), 1) == (2,)


def test_the_last_window_depends_on_the_final_norm_only_if_asked(seen_similarity):
    seen = seen_similarity(HAND, normed_L=[0.9, 0.9, 0.1, 0.9])
    assert removed(seen, 2) == (2, 3)
    assert removed(seen, 2, last_state="hf") == (1, 2)
    assert removed(seen, 1, last_state="hf") == (3,)


def test_ties_go_to_the_first_window_with_a_warning(seen_similarity):
    answer = planned(seen_similarity(matrix({1: [0.5, 0.75, 0.5, 0.75]})), 1)
    assert answer.plan.removed_layers == (1,)
    assert answer.warnings == (
        "similarity of windows: start 1 was preferred to start 3"
        " by a relative margin under 1e-4 (0.875 and 0.875)",
    )


def test_the_score_is_half_plus_half_cosine(seen_similarity):
    # cosines -1 + 1e-5 and -1 + 2e-5 are near in cosine, but their scores differ by a factor of two
    assert planned(seen_similarity(matrix({1: [-0.99999, -0.99998]})), 1).warnings == ()


def test_a_single_legal_window_has_no_rival(seen_similarity):
    answer = planned(seen_similarity(HAND), 2, protect=(0, 3))
    assert answer.plan.removed_layers == (1, 2)
    assert answer.warnings == ()


def test_a_run_between_protected_layers_bounds_the_budget(seen_similarity):
    seen = seen_similarity(np.ones((8, 8)))
    message = (
        r"^cannot remove 4 of 7 layers: at most 3 \(the longest run between the protected layers \[2, 6\]\)$"
    )
    assert len(removed(seen, 3, protect=(2, -1))) == 3
    with pytest.raises(BudgetError, match=message):
        planned(seen, 4, protect=(2, -1))


def test_it_agrees_with_the_authors_code(golden, symmetric, seen_similarity):
    recorded = golden("depth_cosine.json")
    authors, boundaries = recorded["streamline"], symmetric(recorded["boundaries"])
    for span, scores in authors["scores"].items():
        n = int(span)
        np.testing.assert_allclose(0.5 + 0.5 * np.diagonal(boundaries, n)[:-1], scores[:-1], rtol=1e-4)
        normed = np.zeros(30)
        normed[30 - n] = 2 * scores[-1] - 1
        for state in ("hf", "prenorm"):
            answer = planned(seen_similarity(boundaries, normed, tokens=4096), n, last_state=state)
            assert answer.chosen == {"start": authors["start"][span]}
            assert answer.warnings == ()
            if span in authors["removed"]:
                assert list(answer.plan.removed_layers) == authors["removed"][span]


@given(st.integers(0, 10_000), st.integers(1, 7), st.sets(st.integers(0, 7), max_size=2))
def test_it_is_the_brute_force_over_all_windows(make_seen, seed, layers, protect):
    seen = make_seen(num_layers=8, seed=seed % 50)
    total, best = seen.calibration, None
    for start in range(8 - layers + 1):
        window = range(start, start + layers)
        if not set(window) & protect:
            score = total.cosine_BB[start, start + layers] / total.tokens
            best = max(best or (score, start), (score, start))
    params = {"protect": tuple(protect)}
    if best is None:
        with pytest.raises(BudgetError):
            planned(seen, layers, **params)
    else:
        assert removed(seen, layers, **params) == tuple(range(best[1], best[1] + layers))
