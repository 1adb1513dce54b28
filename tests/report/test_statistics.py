import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.report.statistics import (
    BOOTSTRAP,
    MCNEMAR,
    Pairs,
    bootstrap,
    exact_interval,
    holm,
    mcnemar,
    paired_error,
    paired_test,
    smallest_detectable,
)
from prunebench.store.aggregate import standard_error

SCORES = st.floats(-100, 100)
WEIGHTS = st.floats(0.5, 50)
WEIGHTED = st.lists(st.tuples(SCORES, WEIGHTS, SCORES, WEIGHTS), min_size=1, max_size=12)
RIGHT_OR_WRONG = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)
COUNTS = st.integers(0, 60)


def pairs_of(a, b, weight=1.0):
    weights = np.full(len(a), weight)
    return Pairs(np.array(a, dtype=float), weights, np.array(b, dtype=float), weights)


def weighted(rows):
    return Pairs(*np.array(rows).T.copy())


def right_or_wrong(rows):
    return pairs_of(*np.array(rows, dtype=float).T)


def test_mcnemar_is_the_sign_test_worked_out_by_hand():
    assert mcnemar(5, 0) == pytest.approx(2 / 2**5)
    assert mcnemar(2, 10) == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert mcnemar(3, 3) == 1.0


def test_without_a_discordant_pair_p_is_one():
    assert mcnemar(0, 0) == 1.0
    test = paired_test(pairs_of([1, 0, 1], [1, 0, 1]), exact=True)
    assert (test.test, test.p_value, test.difference, test.stderr) == (MCNEMAR, 1.0, 0.0, 0.0)
    assert math.isnan(test.low)
    assert math.isnan(test.detectable)


def test_a_row_against_itself_has_p_one_in_the_bootstrap_too():
    values = np.random.default_rng(0).normal(size=50)
    test = paired_test(pairs_of(values, values), exact=False)
    assert (test.test, test.p_value, test.difference, test.stderr) == (BOOTSTRAP, 1.0, 0.0, 0.0)


def test_holm_is_that_worked_out_by_hand():
    # Sorted .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, and .04 may not fall below .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([0.3]) == pytest.approx([0.3])
    assert holm([]).shape == (0,)


def test_the_paired_error_is_the_sd_of_differences_over_the_root_of_their_number():
    # Differences 1, 1, 0, 0: sd sqrt(1/3), over sqrt(4).
    pairs = pairs_of([1, 1, 0, 0], [0, 0, 0, 0])
    assert paired_error(pairs) == pytest.approx(math.sqrt(1 / 3) / 2)
    assert paired_test(pairs, exact=True).difference == 0.5


def test_against_a_row_of_zeros_the_paired_error_is_the_store_s():
    random = np.random.default_rng(3)
    values, weights = random.normal(size=20), random.uniform(1, 9, size=20)
    pairs = Pairs(values, weights, np.zeros(20), weights)
    assert paired_error(pairs) == pytest.approx(standard_error("other", values, weights))


def test_the_smallest_detectable_difference_is_2_8_errors_and_is_found_four_times_in_five():
    assert smallest_detectable(1.0) == pytest.approx(1.959964 + 0.841621, abs=1e-6)
    assert math.isnan(smallest_detectable(0.0))
    assert math.isnan(smallest_detectable(math.nan))
    shift = smallest_detectable(1 / math.sqrt(100))
    draws = np.random.default_rng(1).normal(shift, 1.0, size=(4000, 100))
    found = np.abs(draws.mean(axis=1)) * math.sqrt(100) > 1.959964
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_the_smallest_detectable_difference_of_right_or_wrong_comes_from_the_discordant_rate():
    pairs = pairs_of([1] * 12 + [0] * 8 + [1] * 80, [0] * 12 + [1] * 8 + [1] * 80)
    test = paired_test(pairs, exact=True)
    assert test.detectable == pytest.approx(2.801585 * math.sqrt(0.2 / 100), rel=1e-6)
    assert test.difference == pytest.approx(0.04)


def test_the_bootstrap_agrees_with_all_resamples_of_four_documents():
    a, b, weights = (np.array(row) for row in ([5.0, 1, 9, 2], [2.0, 4, 1, 1], [1.0, 2, 3, 1]))
    exact = np.array(
        [
            (a - b)[list(rows)].sum() / weights[list(rows)].sum()
            for rows in itertools.product(range(4), repeat=4)
        ]
    )
    low, high, p_value = bootstrap(Pairs(a, weights, b, weights), resamples=40_000)
    assert p_value == pytest.approx(max(2 * (exact <= 0).mean(), 1 / 8), abs=0.01)
    # An end may fall on the neighbour of the exact distribution's step.
    assert np.quantile(exact, 0.015) <= low <= np.quantile(exact, 0.035)
    assert np.quantile(exact, 0.965) <= high <= np.quantile(exact, 0.985)


def test_four_documents_that_all_agree_cannot_give_a_smaller_p_than_four_coins():
    assert bootstrap(pairs_of([3, 4, 5, 6], [1, 1, 1, 1]))[2] == 2 / 2**4
    assert paired_test(pairs_of([3.5], [1.0]), exact=False).p_value == 1.0


def test_one_document_has_no_error_and_no_interval():
    for exact in (True, False):
        test = paired_test(pairs_of([1], [0]), exact=exact)
        assert (test.difference, test.p_value) == (1.0, 1.0)
        assert all(math.isnan(x) for x in (test.stderr, test.low, test.high, test.detectable))


def test_bootstrap_intervals_cover_and_true_null_differences_are_rarely_called():
    random = np.random.default_rng(7)
    covered = called = 0
    for number in range(300):
        a = random.exponential(size=60)
        b = 0.5 * a + random.exponential(size=60) * 0.5
        low, high, p_value = bootstrap(pairs_of(a, b), resamples=1000, seed=number)
        covered += low <= 0 <= high
        called += p_value < 0.05
    assert 0.90 <= covered / 300 <= 0.98
    assert 0.02 <= called / 300 <= 0.10


def test_the_exact_interval_covers_where_one_that_takes_the_discordant_rate_as_known_does_not():
    random = np.random.default_rng(8)
    hits = 0
    for _ in range(300):
        wins = random.binomial(100, 0.2)
        low, high = exact_interval(wins, 0, 100)
        hits += low <= 0.2 <= high
    assert hits >= 285


def test_the_same_scores_under_more_seeds_tell_no_more():
    random = np.random.default_rng(2)
    a, b = random.normal(0.2, 1, size=(2, 40))
    once = paired_test(pairs_of(a, b), exact=False)
    thrice = paired_test(pairs_of(3 * a, 3 * b, weight=3.0), exact=False)
    assert thrice.p_value == once.p_value
    assert (thrice.stderr, thrice.low, thrice.high) == pytest.approx((once.stderr, once.low, once.high))


def test_the_bootstrap_is_the_same_every_time_and_in_blocks_of_any_size():
    random = np.random.default_rng(5)
    pairs = Pairs(*random.uniform(1, 2, size=(4, 33)))
    whole = bootstrap(pairs, resamples=500)
    assert whole == bootstrap(pairs, resamples=500)
    assert whole == bootstrap(pairs, resamples=500, cells=100)
    assert whole != bootstrap(pairs, resamples=500, seed=1)


def test_pairs_refuse_what_cannot_be_tested():
    one = np.ones(2)
    with pytest.raises(ValueError, match="one length"):
        Pairs(one, one, one, np.ones(3))
    with pytest.raises(ValueError, match="one length"):
        Pairs(*[np.ones(0)] * 4)
    with pytest.raises(ValueError, match="finite"):
        Pairs(one, one, np.array([1.0, math.nan]), one)
    with pytest.raises(ValueError, match="positive weight"):
        Pairs(one, one, one, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="right or wrong"):
        paired_test(pairs_of([0.5, 1], [0, 1]), exact=True)


@given(WEIGHTED)
def test_differences_are_antisymmetric_and_p_is_a_probability(rows):
    pairs = weighted(rows)
    test, back = (paired_test(one, exact=False, resamples=200) for one in (pairs, pairs.swapped))
    assert test.difference == -back.difference
    assert test.p_value == back.p_value
    assert 0 <= test.p_value <= 1
    assert (pairs.signs == -pairs.swapped.signs).all()
    assert test.stderr == pytest.approx(back.stderr, nan_ok=True)
    assert (test.low, test.high) == pytest.approx((-back.high, -back.low), nan_ok=True, abs=1e-12)


@given(RIGHT_OR_WRONG)
def test_the_exact_test_is_antisymmetric_and_its_interval_agrees_with_its_p(rows):
    pairs = right_or_wrong(rows)
    test, back = (paired_test(one, exact=True) for one in (pairs, pairs.swapped))
    assert test.difference == -back.difference
    assert test.p_value == back.p_value
    assert 0 <= test.p_value <= 1
    wins, losses = (int((pairs.signs == sign).sum()) for sign in (1, -1))
    assert test.difference == pytest.approx((wins - losses) / len(rows))
    if math.isfinite(test.low):
        assert test.low <= test.difference <= test.high
        assert (test.low, test.high) == pytest.approx((-back.high, -back.low))


@given(COUNTS, COUNTS, COUNTS)
def test_zero_is_outside_the_exact_interval_when_and_only_when_p_is_below_five_percent(wins, losses, ties):
    low, high = exact_interval(wins, losses, wins + losses + ties)
    if math.isfinite(low):
        assert (low <= 0 <= high) == (mcnemar(wins, losses) >= 0.05)


@given(st.lists(st.floats(0, 1), max_size=20), st.randoms())
def test_holm_only_raises_keeps_the_order_and_does_not_depend_on_it(p_values, random):
    adjusted = holm(p_values)
    assert all(raw <= one <= 1 for raw, one in zip(p_values, adjusted, strict=True))
    ranked = [one for _, one in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)
    order = list(range(len(p_values)))
    random.shuffle(order)
    assert holm([p_values[i] for i in order]).tolist() == [adjusted[i] for i in order]
    if p_values:
        assert min(adjusted) == min(1.0, len(p_values) * min(p_values))
