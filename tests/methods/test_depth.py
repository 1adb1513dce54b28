import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.errors import InputError
from prunebench.methods.depth import Selection, finite, lowest, near, span_similarity, tie_warning


def test_finite_values_pass_through_unchanged():
    values = np.array([1.0, -2.0])
    assert finite(values, "scores") is values


def test_values_that_are_not_finite_are_counted():
    message = "^2 of 4 scores are not finite: measure in float32 or check the weights$"
    with pytest.raises(InputError, match=message):
        finite(np.array([[1.0, np.nan], [np.inf, 0.0]]), "scores")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1.0, 1.0, True),
        (0.0, 0.0, True),
        (1.0, 1.0 - 0.9e-4, True),
        (1.0, 1.0 - 1.1e-4, False),
        (-1e6, -1e6 + 90, True),
        (-1e6, -1e6 + 110, False),
        (1.0, -np.inf, False),
        (-np.inf, -np.inf, True),
    ],
)
def test_near_is_relative_to_the_larger_score(first, second, expected):
    assert near(first, second) is expected
    assert near(second, first) is expected


def test_the_lowest_scores_are_taken_in_order():
    scores = np.array([0.5, 0.1, 0.3, 0.2])
    assert lowest(scores, range(4), 2, "score") == Selection((1, 3), ())
    assert lowest(scores, [0, 2, 3], 2, "score") == Selection((3, 2), ())
    assert lowest(scores, range(4), 4, "score") == Selection((1, 3, 2, 0), ())


def test_ties_break_to_the_lower_layer_and_are_warned_of():
    scores = np.array([0.5, 0.25, 0.25, 0.25])
    removed, warnings = lowest(scores, [3, 2, 1, 0], 2, "score")
    assert removed == (1, 2)
    assert warnings == (
        "score: layer 2 was preferred to layer 3 by a relative margin under 1e-4 (0.25 and 0.25)",
    )


def test_a_tie_away_from_the_cut_is_no_news():
    assert lowest(np.array([0.25, 0.25, 0.5, 0.75]), range(4), 2, "score").warnings == ()
    assert lowest(np.array([0.1, 0.2, 0.5, 0.5]), range(4), 2, "score").warnings == ()


def test_the_warning_names_what_was_compared():
    scores = {7: 1.0000001, 9: 1.0}
    assert tie_warning("mu", 7, 9, scores, "cluster") == (
        "mu: cluster 7 was preferred to cluster 9 by a relative margin under 1e-4 (1 and 1)",
    )
    assert tie_warning("mu", 7, 9, {7: 1.1, 9: 1.0}) == ()


def test_span_similarity_reads_a_diagonal(seen_similarity):
    S = [[1, 0.9, 0.8, 0.7], [0.9, 1, 0.6, 0.5], [0.8, 0.6, 1, 0.4], [0.7, 0.5, 0.4, 1]]
    stats = seen_similarity(S, normed_L=[0.1, 0.2, 0.3], tokens=4).calibration
    before = stats.to_bytes()
    np.testing.assert_allclose(span_similarity(stats, 1, "prenorm"), [0.9, 0.6, 0.4], rtol=1e-15)
    np.testing.assert_allclose(span_similarity(stats, 2, "prenorm"), [0.8, 0.5], rtol=1e-15)
    np.testing.assert_allclose(span_similarity(stats, 3, "prenorm"), [0.7], rtol=1e-15)
    np.testing.assert_allclose(span_similarity(stats, 1, "hf"), [0.9, 0.6, 0.3], rtol=1e-15)
    np.testing.assert_allclose(span_similarity(stats, 2, "hf"), [0.8, 0.2], rtol=1e-15)
    np.testing.assert_allclose(span_similarity(stats, 3, "hf"), [0.1], rtol=1e-15)
    assert stats.to_bytes() == before


def test_span_similarity_refuses_overflowed_statistics(seen_similarity):
    stats = seen_similarity([[1, np.nan, 0], [np.nan, 1, 0.5], [0, 0.5, 1]]).calibration
    with pytest.raises(InputError, match=r"^1 of 2 similarities between block boundaries are not finite"):
        span_similarity(stats, 1, "prenorm")


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.data())
def test_what_is_taken_scores_no_higher_than_what_is_left(scores, data):
    count = data.draw(st.integers(1, len(scores)))
    removed, _ = lowest(np.array(scores), range(len(scores)), count, "score")
    assert len(set(removed)) == count
    left = [s for i, s in enumerate(scores) if i not in removed]
    assert not left or max(scores[i] for i in removed) <= min(left)
