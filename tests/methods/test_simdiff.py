import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.alpha import (
    AlphaPiece,
    Ranking,
    Scores,
    alpha_pieces,
    nearest_change,
    ternary_search,
)
from prunebench.methods.base import Measurements
from prunebench.methods.simdiff import SimDiffMASD, SimDiffMSSD, SimDiffMSSDParams, SimDiffParams, _exact

NO_NUMBER = "SimDiff: no alpha gave a finite loss on the probe corpus; give alpha as a number"


class TableProbe:
    """Losses by the set of removed layers; counts how often each is asked."""

    def __init__(self, losses):
        self.losses, self.asked = losses, []

    def loss(self, plan):
        self.asked.append(plan.removed_layers)
        return self.losses(plan.removed_layers)

    def output_similarity(self, plan):
        raise AssertionError("SimDiff asks for losses only")


@pytest.fixture(scope="session")
def seen_scores(make_seen):
    """A function of L_sim, both differences and a loss: measurements that hold them."""

    def make(L_sim, mssd=None, masd=None, loss=None, hidden_size=16, tokens=8) -> Measurements:
        layers = len(L_sim)
        template = make_seen(num_layers=layers)
        cosines = np.diag(1 - np.asarray(L_sim), 1)
        zeros = np.zeros(layers)
        calibration = replace(
            template.calibration,
            tokens=tokens,
            hidden_size=hidden_size,
            cosine_BB=(cosines + cosines.T) * tokens,
            squared_change_L=zeros if mssd is None else np.asarray(mssd) * tokens,
            absolute_change_L=zeros if masd is None else np.asarray(masd) * tokens * hidden_size,
        )
        probe = None if loss is None else TableProbe(loss)
        return Measurements(shape=template.shape, calibration=calibration, probe=probe)

    return make


def answer(method, seen, layers, **params):
    return method.plan(seen, Budget(layers), method.params(**params))


def removed(method, seen, layers, **params):
    return answer(method, seen, layers, **params).plan.removed_layers


# I_sim = 0.1, 0.2, 0.3 and sigmoid(-L_diff) = 0.2 (L = ln 4), 0.25 (L = ln 3), 0.5.
HAND = {"L_sim": [0.2, 0.4, 0.6], "masd": [math.log(4), math.log(3), 0.0]}


def test_worked_by_hand(seen_scores):
    # Layer 0: 0.1 - 0.3a, layer 1: 0.2 - 0.45a, layer 2: 0.3 - 0.8a.
    # Crossings: 0 and 1 at 2/3, 0 and 2 at 2/5, 1 and 2 at 2/7.
    seen = seen_scores(**HAND)
    masd = SimDiffMASD()
    assert removed(masd, seen, 1, alpha=0) == (0,)
    assert removed(masd, seen, 1, alpha=0.39) == (0,)
    assert removed(masd, seen, 1, alpha=0.41) == (2,)
    assert removed(masd, seen, 1, alpha=1) == (2,)
    assert removed(masd, seen, 2, alpha=0.28) == (0, 1)
    assert removed(masd, seen, 2, alpha=0.29) == (0, 2)
    assert removed(masd, seen, 2, alpha=0.66) == (0, 2)
    assert removed(masd, seen, 2, alpha=0.67) == (1, 2)
    assert removed(masd, seen, 1, alpha=1.0, protect=(2,)) == (1,)


def test_a_number_needs_no_probe_and_chooses_nothing(seen_scores):
    planned = SimDiffMASD().plan(seen_scores(**HAND), Budget(1), SimDiffParams(alpha=0.5))
    assert planned.chosen == {}
    assert planned.warnings == ()
    assert planned.plan == PruningPlan.without([2], 3)
    assert SimDiffMASD().needs(SimDiffParams(alpha=0.5)) == {"calibration"}
    assert SimDiffMSSD().needs(SimDiffMSSDParams(alpha=0)) == {"calibration"}
    for search in ("ternary", "exact"):
        assert SimDiffMSSD().needs(SimDiffMSSDParams(alpha=search)) == {"calibration", "probe"}
        with pytest.raises(InputError, match="this method needs a probe"):
            SimDiffMASD().plan(seen_scores(**HAND), Budget(1), SimDiffParams(alpha=search))


def test_the_two_differences_are_those_of_equations_3_and_4(seen_scores):
    seen = seen_scores([0.5, 0.25], mssd=[8.0, 1.6], masd=[0.25, 4.0], hidden_size=4, tokens=5)
    stats = seen.need_calibration()
    mssd = SimDiffMSSD().scores(stats, SimDiffMSSDParams())
    np.testing.assert_allclose(mssd.difference_L, [8.0, 1.6], rtol=1e-15)
    np.testing.assert_allclose(mssd.similarity_L, [0.25, 0.125], rtol=1e-15)
    mean = SimDiffMSSD().scores(stats, SimDiffMSSDParams(mssd_reduction="mean"))
    np.testing.assert_allclose(mean.difference_L, [2.0, 0.4], rtol=1e-15)
    masd = SimDiffMASD().scores(stats, SimDiffParams())
    np.testing.assert_allclose(masd.difference_L, [0.25, 4.0], rtol=1e-15)
    np.testing.assert_allclose(masd.tail_L, [1 / (1 + math.exp(0.25)), 1 / (1 + math.exp(4))], rtol=1e-15)


def test_ties_go_to_the_lower_difference_then_to_the_lower_layer(seen_scores):
    assert removed(SimDiffMASD(), seen_scores([0.5, 0.5, 0.5], masd=[3.0, 2.0, 2.0]), 1, alpha=0) == (1,)
    assert removed(SimDiffMASD(), seen_scores([0.5, 0.5, 0.5], masd=[2.0, 3.0, 2.0]), 2, alpha=0) == (0, 2)
    # Past exp's range every sigmoid(-L_diff) is 0: alpha = 1 still ranks by the difference.
    huge = seen_scores([0.1, 0.2, 0.3], mssd=[9e5, 8e5, 1e3])
    assert removed(SimDiffMSSD(), huge, 1, alpha=1) == (2,)
    assert removed(SimDiffMSSD(), huge, 2, alpha=1) == (1, 2)


def test_it_warns_of_a_saturated_sigmoid_and_names_the_remedy(seen_scores):
    # In float64 sigmoid(x) rounds to 1 from x = 36.7368 on.
    seen = seen_scores([0.1, 0.2, 0.3, 0.4], mssd=[36.7, 36.8, 40.0, 1.0], masd=[36.7, 36.8, 1.0, 1.0])
    nothing = "sigmoid(L_diff) is 1 in float64 for {} of 4 layers: their differences count for nothing"
    mssd = SimDiffMSSD().plan(seen, Budget(1), SimDiffMSSDParams(alpha=0.5))
    assert mssd.warnings == (nothing.format(2) + " (try mssd_reduction=mean)",)
    masd = SimDiffMASD().plan(seen, Budget(1), SimDiffParams(alpha=0.5))
    assert masd.warnings == (nothing.format(1),)
    mean = SimDiffMSSDParams(alpha=0.5, mssd_reduction="mean")
    assert SimDiffMSSD().plan(seen, Budget(1), mean).warnings == ()
    still = seen_scores([0.1, 0.2, 0.3, 0.4], mssd=[1e4, 1.0, 1.0, 1.0])
    assert SimDiffMSSD().plan(still, Budget(1), mean).warnings == (nothing.format(1),)


def test_it_refuses_parameters_that_mean_nothing():
    assert SimDiffParams() == SimDiffParams(alpha="ternary", epsilon=0.01, max_iterations=20)
    assert SimDiffMSSDParams().mssd_reduction == "sum"
    assert SimDiffMSSD.requires == SimDiffMASD.requires == {"calibration", "probe"}
    for alpha in (-0.001, 1.001):
        with pytest.raises(InputError, match=rf"^alpha {alpha}: has to lie between 0 and 1$"):
            SimDiffParams(alpha=alpha)
    for epsilon in (0.0, 1.0):
        with pytest.raises(
            InputError, match=rf"^epsilon {epsilon}: has to lie between 0 and 1, both excluded$"
        ):
            SimDiffParams(epsilon=epsilon)
    with pytest.raises(InputError, match=r"^max_iterations 0: has to be at least 1$"):
        SimDiffParams(max_iterations=0)
    SimDiffParams(alpha=0, epsilon=0.999, max_iterations=1)
    SimDiffParams(alpha=1)
    with pytest.raises(ValidationError):
        TypeAdapter(SimDiffParams).validate_python({"alpha": "quaternary"})


def test_it_refuses_statistics_that_overflowed(seen_scores):
    with pytest.raises(InputError, match="1 of 2 differences between blocks are not finite"):
        removed(SimDiffMSSD(), seen_scores([0.1, 0.2], mssd=[math.inf, 1.0]), 1, alpha=0.5)
    with pytest.raises(InputError, match="are not finite"):
        removed(SimDiffMSSD(), seen_scores([0.1, math.nan], mssd=[1.0, 1.0]), 1, alpha=0.5)


def test_the_ternary_search_is_algorithm_1_step_by_step():
    asked = []

    def loss(alpha):
        asked.append(alpha)
        return abs(alpha - 0.4)

    best, value = ternary_search(loss, 0.4, 20)
    # [0, 1]: 1/3 beats 2/3, right = 2/3; [0, 2/3]: 4/9 beats 2/9, left = 2/9; [2/9, 2/3]: 10/27 beats 14/27.
    expected = [1 / 3, 2 / 3, 2 / 9, 4 / 9, 10 / 27, 14 / 27]
    np.testing.assert_allclose(asked, expected, rtol=1e-12)
    assert best == pytest.approx(10 / 27, rel=1e-12)
    assert value == abs(best - 0.4)


@pytest.mark.parametrize(
    ("epsilon", "rounds", "calls"),
    [(0.01, 20, 24), (0.01, 3, 6), (0.7, 9, 2), (1 - 1 / 3, 9, 2), (0.66, 9, 4)],
)
def test_the_ternary_search_stops_by_width_or_rounds(epsilon, rounds, calls):
    asked = []
    ternary_search(lambda alpha: asked.append(alpha) or 1.0, epsilon, rounds)
    assert len(asked) == calls


def test_equal_losses_shrink_to_the_left_and_keep_the_first_best():
    asked: list[float] = []
    best, value = ternary_search(lambda alpha: asked.append(alpha) or 2.0, 0.3, 20)
    np.testing.assert_allclose(asked, [1 / 3, 2 / 3, 2 / 9, 4 / 9, 4 / 27, 8 / 27], rtol=1e-12)
    assert (best, value) == (asked[0], 2.0)


def test_the_best_alpha_seen_is_kept_though_the_interval_left_it():
    # The wells at 2/3 and then worse values: the interval moves right, the first upper point stays the best.
    losses = iter([5.0, 1.0, 4.0, 3.0, 9.0, 8.0])
    best, value = ternary_search(lambda alpha: next(losses), 0.3, 20)
    assert best == pytest.approx(2 / 3)
    assert value == 1.0


def test_a_search_without_any_finite_loss_is_unreachable(seen_scores):
    for loss in (math.inf, math.nan):
        with pytest.raises(UnreachableError, match=NO_NUMBER):
            ternary_search(lambda alpha, loss=loss: loss, 0.01, 20)
        for search in ("ternary", "exact"):
            with pytest.raises(UnreachableError, match=NO_NUMBER):
                removed(
                    SimDiffMASD(), seen_scores(**HAND, loss=lambda gone, loss=loss: loss), 1, alpha=search
                )


def test_the_ternary_plan_asks_each_set_once(seen_scores):
    # {0} goes below alpha = 2/5, {2} above: 1/3 and 2/3 see both, and beyond there is only {2}, the better.
    seen = seen_scores(**HAND, loss={(0,): 3.0, (2,): 2.0}.__getitem__)
    planned = SimDiffMASD().plan(seen, Budget(1), SimDiffParams())
    assert planned.plan.removed_layers == (2,)
    assert planned.chosen == {"alpha": pytest.approx(2 / 3), "loss": 2.0, "evaluated": 2}
    assert seen.probe.asked == [(0,), (2,)]
    strict = SimDiffMASD().plan(seen, Budget(1), SimDiffParams(max_iterations=1))
    assert strict.chosen["alpha"] == planned.chosen["alpha"]
    prefers_first = seen_scores(**HAND, loss={(0,): 1.0, (2,): 2.0}.__getitem__)
    assert SimDiffMASD().plan(prefers_first, Budget(1), SimDiffParams()).chosen["alpha"] == 1 / 3


def test_the_ternary_search_uses_its_parameters(seen_scores):
    seen = seen_scores(**HAND, loss=lambda gone: 2.0 if gone == (0,) else 1.0 if gone == (2,) else 0.5)
    # One round sees alpha 1/3 and 2/3 alone, whose sets of two are {0, 2} and {0, 2} or {1, 2}.
    assert SimDiffMASD().plan(seen, Budget(2), SimDiffParams(max_iterations=1)).chosen["alpha"] == 1 / 3
    wide = SimDiffMASD().plan(seen, Budget(1), SimDiffParams(epsilon=0.9))
    assert seen.probe.asked[-2:] == [(0,), (2,)]
    assert wide.chosen["evaluated"] == 2


def test_pieces_worked_by_hand():
    scores = Scores(np.array([0.25, 0.625, 0.75]), np.array([50.0, 1.0, 0.0]))
    tail = scores.tail_L
    assert tail[2] == 0.5
    pieces = alpha_pieces(scores, range(3), 1)
    # Layers 0 and 2 cross at (0.75 - 0.25) / (0.75 + 0.5 - 0.25 - tail_0); layer 1 is never lowest.
    at = Fraction(1, 2) / (1 - Fraction(float(tail[0])))
    assert pieces == [(0, at, (0,)), (at, 1, (2,))]
    assert not any(p.limit for p in pieces)
    assert pieces[0].alpha == float(at / 2)
    assert pieces[0].bounds == [0.0, float(at)]


def test_a_tie_at_a_breakpoint_goes_to_the_lower_difference():
    # I_sim 0 and 1/4, sigmoid(-L_diff) 1/4 and 1/2: they cross at alpha = 1/4 / (3/4 - 1/4) = 1/2, where
    # layer 1, of difference 0, goes first.
    scores = Scores(np.array([0.0, 0.25]), np.array([math.log(3), 0.0]))
    ranking = Ranking(scores, range(2))
    (point,) = ranking.breakpoints()[1:-1]
    assert float(point) == pytest.approx(0.5)
    assert ranking.lowest(point, 1) == (1,)
    assert ranking.lowest(point - Fraction(1, 10**30), 1) == (0,)
    assert [piece.removed for piece in alpha_pieces(scores, range(2), 1)] == [(0,), (1,)]


def test_breakpoints_worked_by_hand():
    # As integers of scale 4: I_sim 2 and 1, sigmoid(-L_diff) 2 and 0; 2 - 4a and 1 - a cross at 1/3.
    ranking = Ranking(Scores(np.array([0.25, 0.5]), np.array([2000.0, 0.0])), range(2))
    assert ranking.layers == [1, 0]
    assert ranking.lines == [(2, 2), (1, 0)]
    assert ranking.breakpoints() == [0, Fraction(1, 3), 1]
    # Neither parallel lines nor lines that meet at 0, at 1 or outside add one.
    for similarity in ([0.5, 0.25], [0.5, 0.5]):
        ranking = Ranking(Scores(np.array(similarity), np.array([2000.0, 0.0])), range(2))
        assert ranking.breakpoints() == [0, 1]
    assert Ranking(Scores(np.array([0.25, 0.5]), np.ones(2)), range(2)).breakpoints() == [0, 1]


def test_a_piece_may_be_the_point_1_alone():
    # Both sigmoid(-L_diff) are 0: below 1 the similarity decides, at 1 the difference.
    scores = Scores(np.array([0.25, 0.5]), np.array([2000.0, 1000.0]))
    assert alpha_pieces(scores, range(2), 1) == [(0, 1, (0,)), (1, 1, (1,))]
    assert [piece.alpha for piece in alpha_pieces(scores, range(2), 1)] == [0.5, 1.0]
    assert not any(piece.limit for piece in alpha_pieces(scores, range(2), 1))


def test_a_piece_without_room_for_a_float64_is_a_limit():
    third, half, width = Fraction(1, 3), Fraction(1, 2), Fraction(1, 2**53)
    below = width * Fraction(999, 1000)
    assert [AlphaPiece(low, low + width, (0,)).narrow for low in (third, half)] == [False, False]
    assert [AlphaPiece(low, low + below, (0,)).narrow for low in (third, half)] == [True, True]
    assert [AlphaPiece(low, low + width, (0,)).limit for low in (third, half)] == [False, False]
    assert [AlphaPiece(low, low + below, (0,)).limit for low in (third, half)] == [True, False]
    assert AlphaPiece(half, half + below, (0,)).alpha == 0.5
    wide = AlphaPiece(Fraction(1, 4), Fraction(3, 8), (0,))
    assert (wide.alpha, wide.bounds) == (0.3125, [0.25, 0.375])


def test_limits_are_listed_and_not_scored():
    # The lines of layers 0 and 2 cross; that of layer 1 runs below the crossing by at most two units in the
    # last place of its score, so it is lowest over an interval of width about 2^-66.
    similarity, difference = np.array([1e-5, 0.0, 3e-5]), np.array([3.0, 1.5, 0.5])
    tail = [Fraction(float(x)) for x in Scores(similarity, difference).tail_L]
    low, high = Fraction(float(similarity[0])), Fraction(float(similarity[2]))
    alpha = (high - low) / (high + tail[2] - low - tail[0])
    through = (low - alpha * (low + tail[0]) + alpha * tail[1]) / (1 - alpha)
    similarity[1] = np.nextafter(np.nextafter(float(through), 0), 0)
    pieces = alpha_pieces(Scores(similarity, difference), range(3), 1)
    assert [piece.removed for piece in pieces] == [(0,), (1,), (2,)]
    assert [piece.limit for piece in pieces] == [False, True, False]
    asked = []

    def loss(gone):
        asked.append(gone)
        return {(0,): 3.0, (2,): 2.0}[gone]

    gone, chosen = _exact(pieces, loss)
    assert gone == (2,)
    assert set(asked) == {(0,), (2,)}
    assert chosen == {
        "alpha": float((pieces[2].low + 1) / 2),
        "interval": [pytest.approx(float(alpha), rel=1e-12), 1.0],
        "loss": 2.0,
        "distinct_sets": 3,
        "limits": [[pytest.approx(float(alpha)), pytest.approx(float(alpha)), [1]]],
    }


def test_the_exact_policy_scores_every_set_once_and_keeps_the_best(seen_scores):
    # Sets of two over alpha: {0,1} to 2/7, {0,2} to 2/3, {1,2} to 1.
    losses = {(0, 1): 2.5, (0, 2): 2.0, (1, 2): 2.0}
    seen = seen_scores(**HAND, loss=losses.__getitem__)
    planned = SimDiffMASD().plan(seen, Budget(2), SimDiffParams(alpha="exact"))
    assert seen.probe.asked == [(0, 1), (0, 2), (1, 2)]
    assert planned.plan.removed_layers == (0, 2)
    assert planned.chosen == {
        "alpha": pytest.approx((2 / 7 + 2 / 3) / 2),
        "interval": [pytest.approx(2 / 7), pytest.approx(2 / 3)],
        "loss": 2.0,
        "distinct_sets": 3,
        "limits": [],
        "evaluated": 3,
    }
    last = seen_scores(**HAND, loss=(losses | {(1, 2): 1.0}).__getitem__)
    assert removed(SimDiffMASD(), last, 2, alpha="exact") == (1, 2)
    first = seen_scores(**HAND, loss=len)
    assert removed(SimDiffMASD(), first, 1, alpha="exact", protect=(0, 1)) == (2,)
    assert first.probe.asked == [(2,)]


@pytest.mark.parametrize("metric", ["mssd", "masd"])
@pytest.mark.parametrize("alpha", ["0.0000", "0.1000", "0.3333", "0.5000", "0.6667", "0.9000", "1.0000"])
def test_it_agrees_with_the_recorded_ranking(golden, seen_scores, metric, alpha):
    recorded = golden("simdiff.json")
    seen = seen_scores(recorded["L_sim"], recorded["mssd"], recorded["masd"], hidden_size=576, tokens=4096)
    method = {"mssd": SimDiffMSSD(), "masd": SimDiffMASD()}[metric]
    key = f"{metric}|{alpha}"
    value = {"0.3333": 1 / 3, "0.6667": 2 / 3}.get(alpha, float(alpha))
    warnings = answer(method, seen, 5, alpha=value).warnings
    if saturated := recorded["saturated"][key]:
        assert f"for {saturated} of 30 layers" in warnings[0]
    else:
        assert warnings == ()
    if key == "mssd|1.0000":
        # The literal sum is 1 for all layers and removes the first ones; the difference still orders them.
        order = np.argsort(recorded["mssd"], kind="stable").tolist()
    else:
        order = recorded["orders"][key]
        for layers, expected in recorded["removed"][key].items():
            assert list(removed(method, seen, int(layers), alpha=value)) == expected
    for layers in range(1, 30):
        assert removed(method, seen, layers, alpha=value) == tuple(sorted(order[:layers]))


def test_the_recorded_differences_divide_by_the_hidden_size(golden, seen_scores):
    recorded = golden("simdiff.json")
    seen = seen_scores(recorded["L_sim"], recorded["mssd"], recorded["masd"], hidden_size=576, tokens=4096)
    mean = SimDiffMSSD().scores(seen.need_calibration(), SimDiffMSSDParams(mssd_reduction="mean"))
    np.testing.assert_allclose(mean.difference_L, np.array(recorded["mssd"]) / 576, rtol=1e-12)
    # The fact sheet's [3-7, 13, 14] of this reading.
    assert removed(SimDiffMSSD(), seen, 7, alpha=0.9, mssd_reduction="mean") == (3, 4, 5, 6, 7, 13, 14)


def brute_force(L_sim, L_diff, alpha, count):
    """Equations 5 to 9 in exact arithmetic on the float64 scores."""
    scored = []
    for i, (sim, diff) in enumerate(zip(L_sim, L_diff, strict=True)):
        decay = np.exp(-diff)
        tail = Fraction(float(decay / (1 + decay)))
        importance = alpha * (1 - tail) + (1 - alpha) * Fraction(sim)
        scored.append((importance, diff, i))
    return tuple(sorted(i for _, _, i in sorted(scored)[:count]))


layer_scores = st.lists(
    st.tuples(
        st.integers(0, 8).map(lambda n: n / 16), st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0, 40.0, 800.0])
    ),
    min_size=2,
    max_size=8,
)


@given(layer_scores, st.integers(1, 7), st.fractions(0, 1, max_denominator=1000))
def test_pieces_are_the_brute_force_at_every_alpha(lines, count, alpha):
    count = min(count, len(lines) - 1)
    sim, diff = (np.array(column) for column in zip(*lines, strict=True))
    pieces = alpha_pieces(Scores(sim, diff), range(len(lines)), count)
    assert (pieces[0].low, pieces[-1].high) == (0, 1)
    for piece, after in pairwise(pieces):
        assert piece.high == after.low
        assert piece.removed != after.removed
    *_, inside = (piece for piece in pieces if piece.low <= alpha)
    assert brute_force(sim, diff, alpha, count) == inside.removed
    ends = ([] if inside == pieces[0] else [inside.low]) + ([] if inside == pieces[-1] else [inside.high])
    nearest = nearest_change(Ranking(Scores(sim, diff), range(len(lines))), alpha, count)
    assert nearest == min(ends, key=lambda end: abs(end - alpha), default=None)
    for piece in pieces:
        for inside in (piece.low, (piece.low + piece.high) / 2):
            assert piece.removed == brute_force(sim, diff, inside, count)


@given(layer_scores, st.integers(1, 7))
def test_the_alpha_of_a_scored_piece_gives_its_layers(seen_scores, lines, count):
    count = min(count, len(lines) - 1)
    sim, diff = (np.array(column) for column in zip(*lines, strict=True))
    seen = seen_scores(2 * sim, masd=diff)
    for piece in alpha_pieces(
        SimDiffMASD().scores(seen.need_calibration(), SimDiffParams()), range(len(lines)), count
    ):
        if not piece.limit:
            assert removed(SimDiffMASD(), seen, count, alpha=piece.alpha) == piece.removed


@given(layer_scores, st.data())
def test_the_exact_policy_is_never_worse_than_ternary_or_a_number(seen_scores, lines, data):
    count = data.draw(st.integers(1, len(lines) - 1))
    sim, diff = (np.array(column) for column in zip(*lines, strict=True))
    weights = data.draw(st.lists(st.floats(0, 1), min_size=len(lines), max_size=len(lines)))
    seen = seen_scores(2 * sim, masd=diff, loss=lambda gone: 2 + sum(weights[i] for i in gone))
    exact = SimDiffMASD().plan(seen, Budget(count), SimDiffParams(alpha="exact")).chosen["loss"]
    ternary = SimDiffMASD().plan(seen, Budget(count), SimDiffParams()).chosen["loss"]
    alpha = data.draw(st.floats(0, 1))
    assert exact <= ternary
    assert exact <= seen.probe.loss(
        PruningPlan.without(removed(SimDiffMASD(), seen, count, alpha=alpha), len(lines))
    )


def test_it_is_the_brute_force_over_the_sums(make_seen):
    for seed in range(4):
        seen = make_seen(num_layers=9, seed=seed)
        total = seen.calibration
        sim = [(1 - total.cosine_BB[i, i + 1] / total.tokens) / 2 for i in range(9)]
        squared = total.squared_change_L / total.tokens
        absolute = total.absolute_change_L / total.tokens / total.hidden_size
        for alpha in (0.0, 0.25, 0.5, 0.9, 1.0):
            for layers in (1, 4, 8):
                for method, diff in ((SimDiffMSSD(), squared), (SimDiffMASD(), absolute)):
                    gone = removed(method, seen, layers, alpha=alpha)
                    assert gone == brute_force(sim, diff, Fraction(alpha), layers)
