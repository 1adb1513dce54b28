import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laco_loops import (
    FIVE,
    RULES,
    asked_of,
    by_length,
    fused,
    groups_of,
    planned,
    random_similarity,
    seen_with,
)
from prunebench.core.budget import Budget
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.laco import LaCo, LaCoParams, merged


def test_a_merge_takes_the_matrices_of_its_rule_and_the_norms_of_the_first():
    dense = PruningPlan.dense(6)
    assert merged(dense, 1, 3, "released").layers[1] == LayerSpec(base=1, blend=((3, 1.0),))
    # One theta_1, less one for each of theta_2 and theta_3.
    assert merged(dense, 1, 3, "rdsc").layers[1] == LayerSpec(base=1, blend=((1, -1.0), (2, 1.0), (3, 1.0)))
    assert merged(dense, 1, 3, "drop") == PruningPlan.without([2, 3], 6)
    for rule in RULES:
        assert [block.base for block in merged(dense, 1, 3, rule).layers] == [0, 1, 4, 5]
    # Of two blocks theta_l + (theta_{l+1} - theta_l) is the second.
    assert merged(dense, 4, 5, "rdsc") == merged(dense, 4, 5, "released")
    assert merged(dense, 0, 5, "rdsc").layers == (
        LayerSpec(base=0, blend=((0, -4.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0))),
    )


def test_merges_of_merges_are_linear_in_the_dense_layers():
    dense = PruningPlan.dense(6)
    twice = merged(merged(dense, 3, 5, "rdsc"), 1, 3, "rdsc")
    # M = -theta_3 + theta_4 + theta_5; then theta_1 + (theta_2 - theta_1) + (M - theta_1).
    expected = ((1, -1.0), (2, 1.0), (3, -1.0), (4, 1.0), (5, 1.0))
    assert twice.layers == (LayerSpec(base=0), LayerSpec(base=1, blend=expected))
    first = merged(merged(dense, 3, 5, "rdsc"), 3, 3, "rdsc")
    assert first == merged(dense, 3, 5, "rdsc")
    # A merge at the bottom of the window enters with 1 - K.
    bottom = merged(merged(dense, 1, 2, "released"), 1, 3, "rdsc")
    assert bottom.layers[1] == LayerSpec(base=1, blend=((2, -1.0), (3, 1.0), (4, 1.0)))
    released = merged(merged(dense, 3, 5, "released"), 1, 3, "released")
    assert released.merged == {1: ((5, 1.0),)}
    dropped = merged(merged(dense, 3, 5, "drop"), 1, 3, "drop")
    assert dropped == PruningPlan.without([2, 3, 4, 5], 6)


@given(st.integers(2, 8), st.data())
def test_a_merge_is_the_papers_formula_over_the_weights(num_layers, data):
    theta = np.random.default_rng(0).integers(-9, 9, size=(num_layers, 4)).astype(float)

    def weights(block):
        return sum(c * theta[j] for j, c in block.blend or ((block.base, 1.0),))

    plan = PruningPlan.dense(num_layers)
    while len(plan.layers) > 1 and data.draw(st.booleans()):
        first = data.draw(st.integers(0, len(plan.layers) - 2))
        last = data.draw(st.integers(first + 1, len(plan.layers) - 1))
        window = [weights(block) for block in plan.layers[first : last + 1]]
        rdsc = window[0] + sum(other - window[0] for other in window[1:])
        np.testing.assert_array_equal(weights(merged(plan, first, last, "rdsc").layers[first]), rdsc)
        np.testing.assert_array_equal(
            weights(merged(plan, first, last, "released").layers[first]), window[-1]
        )
        np.testing.assert_array_equal(weights(merged(plan, first, last, "drop").layers[first]), window[0])
        plan = merged(plan, first, last, data.draw(st.sampled_from(RULES)))


def test_it_finds_the_largest_threshold_that_removes_exactly_n(make_seen):
    # T falls from 0.7: nothing; T in [0.6, 0.7): (1,2) is merged, one layer.
    seen = seen_with(make_seen, 5, by_length(FIVE))
    answer = planned(seen, 1, merge_layers=2, interval=1)
    assert groups_of(answer.plan) == ((0,), (1, 2), (3,), (4,))
    assert answer.chosen == {
        "merge_layers": 2,
        "interval": 1,
        "threshold": 0.5,
        "threshold_below": 0.7,
        "output_similarity": 0.7,
    }
    again = planned(seen, 1, merge_layers=2, interval=1, threshold=answer.chosen["threshold"])
    assert again == answer
    assert answer.warnings == ()
    assert max(asked_of(seen).values()) == 2  # once for each of the two plans


def test_the_smallest_budget_of_the_search_needs_the_lowest_threshold_when_all_else_overshoots(make_seen):
    # C = 3, I = 1 on 6 layers: pointer 2 merges 2, 3, 4 into one. Everything above the lowest is rejected.
    table = {(1, 1, 3, 1): 0.1, (1, 3, 1, 1): 0.2, (3, 1, 1, 1): 0.3}
    seen = seen_with(make_seen, 6, by_length(table))
    answer = planned(seen, 2, merge_layers=3, interval=1)
    assert groups_of(answer.plan) == ((0, 1, 2), (3,), (4,), (5,))
    assert answer.chosen["threshold"] == 0.2
    # With the order turned around the first window wins at once and nothing is rejected below it.
    seen = seen_with(make_seen, 6, by_length({(1, 1, 3, 1): 0.3, (1, 3, 1, 1): 0.2, (3, 1, 1, 1): 0.1}))
    answer = planned(seen, 2, merge_layers=3, interval=1)
    assert groups_of(answer.plan) == ((0,), (1,), (2, 3, 4), (5,))
    assert answer.chosen["threshold"] == math.nextafter(0.3, 0)
    assert answer.chosen["threshold_below"] == answer.chosen["output_similarity"] == 0.3


def test_every_plan_that_removes_exactly_n_is_named_from_the_highest_threshold_down(make_seen):
    # On 6 layers at T in [0.2, 0.3) the lowest window is merged, below that the one above it, and so on.
    table = {(1, 1, 3, 1): 0.1, (1, 3, 1, 1): 0.2, (3, 1, 1, 1): 0.3}
    setting = {"merge_layers": 3, "interval": 1}
    every = planned(seen_with(make_seen, 6, by_length(table)), 2, hits="all", **setting)
    highest = planned(seen_with(make_seen, 6, by_length(table)), 2, **setting)
    assert every.plan == highest.plan
    hits = every.chosen["hits"]
    assert [(hit["threshold"], hit["threshold_below"]) for hit in hits] == [
        (0.2, 0.3),
        (0.1, 0.2),
        (math.nextafter(0.1, 0), 0.1),
    ]
    assert hits[0]["plan_id"] == every.plan.plan_id
    assert [hit["plan_id"] for hit in hits[1:]] == [plan.plan_id for plan in every.others]
    groups = [groups_of(plan) for plan in every.others]
    assert groups == [((0,), (1, 2, 3), (4,), (5,)), ((0,), (1,), (2, 3, 4), (5,))]
    assert {name: every.chosen[name] for name in highest.chosen} == highest.chosen
    assert highest.others == ()


def test_the_settings_tried_are_the_papers_in_their_order():
    def sizes(layers, **params):
        return list(dict.fromkeys(C for C, _ in LaCoParams(**params).settings(Budget(layers))))

    assert LaCoParams().settings(Budget(9)) == [(C, i) for C in (4, 5, 6, 7, 3) for i in (2, 1, 3)]
    assert sizes(1) == [4, 5, 6, 7, 3, 2]
    assert sizes(3) == sizes(2) == sizes(5) == sizes(8) == [4, 5, 6, 7, 3]
    assert sizes(7) == [4, 5, 6, 7, 3, 8]
    assert LaCoParams(merge_layers=10).settings(Budget(1)) == [(10, 2), (10, 1), (10, 3)]
    assert LaCoParams(interval=4).settings(Budget(8)) == [(4, 4), (5, 4), (6, 4), (7, 4), (3, 4)]
    assert LaCoParams(interval=1, merge_layers=2).settings(Budget(7)) == [(2, 1)]


def test_it_refuses_parameters_that_merge_nothing_or_never_end():
    with pytest.raises(InputError, match=r"^merge_layers 1: a merge takes at least 2 layers$"):
        LaCoParams(merge_layers=1)
    with pytest.raises(InputError, match=r"^merge_layers 0: "):
        LaCoParams(merge_layers=0)
    with pytest.raises(InputError, match=r"^interval 0: has to be at least 1$"):
        LaCoParams(interval=0)
    assert LaCoParams() == LaCoParams(merge_rule="released", threshold=None, merge_layers=None, interval=None)


def test_a_threshold_that_misses_the_count_is_unreachable_with_the_count_it_gives(make_seen):
    seen = seen_with(make_seen, 12, lambda groups: 0.5)
    ending = "choose such a budget, or leave merge_layers, interval and threshold unset"
    with pytest.raises(UnreachableError) as hole:
        planned(seen, 2, threshold=0.4, merge_layers=4, interval=2)
    message = f"LaCo: threshold 0.4 does not remove exactly 2 of 12 layers (nearest: 3): {ending}"
    assert str(hole.value) == message
    with pytest.raises(UnreachableError) as hole:
        planned(seen, 2, threshold=0.5, merge_layers=4, interval=2)
    assert str(hole.value) == message.replace("0.4", "0.5").replace("nearest: 3", "nearest: 0")
    # C = 4 and I = 2 merge 3, 3, 2, 2 ... layers: 7 is out of reach whatever the similarities, and no
    # probe is asked.
    seen = seen_with(make_seen, 30, lambda groups: 0.5)
    with pytest.raises(UnreachableError) as hole:
        planned(seen, 7, merge_layers=4, interval=2)
    assert (
        str(hole.value) == f"LaCo: no threshold removes exactly 7 of 30 layers (nearest: 6 and 8): {ending}"
    )
    assert not asked_of(seen)
    # I = 2 and 3 go on with 3 layers, I = 1 with 2: the nearest count above 4 is of one setting alone.
    with pytest.raises(UnreachableError, match=r"exactly 4 of 30 layers \(nearest: 3 and 5\)"):
        planned(seen, 4, merge_layers=4)


def test_a_window_larger_than_the_model_removes_nothing(make_seen):
    seen = seen_with(make_seen, 5, by_length(FIVE))
    with pytest.raises(UnreachableError, match=r"exactly 3 of 5 layers \(nearest: 0\)"):
        planned(seen, 3, merge_layers=5)
    whole = seen_with(make_seen, 5, lambda groups: 0.5)
    assert groups_of(planned(whole, 3, merge_layers=4).plan) == ((0, 1, 2, 3), (4,))


def test_similarities_that_are_not_numbers_accept_nothing(make_seen):
    seen = seen_with(make_seen, 6, lambda groups: math.nan)
    with pytest.raises(UnreachableError, match=r"no threshold removes exactly 2 of 6 layers \(nearest: 0\)"):
        planned(seen, 2, merge_layers=3)


def test_of_all_settings_the_most_similar_plan_wins_and_the_first_on_ties(make_seen):
    def prefer(*group):
        return lambda groups: 0.9 if tuple(range(*group)) in groups else 0.5

    # C = 4 merges 15 to 18 first, then with I = 2 13 to 19, with I = 3 12 to 18; C = 7 starts with 12 to 18.
    four = planned(seen_with(make_seen, 20, prefer(13, 20)), 6)
    assert (four.chosen["merge_layers"], four.chosen["interval"]) == (4, 2)
    assert four.chosen["output_similarity"] == 0.9
    three = planned(seen_with(make_seen, 20, prefer(12, 19)), 6)
    assert (three.chosen["merge_layers"], three.chosen["interval"]) == (4, 3)
    seven = planned(seen_with(make_seen, 20, prefer(12, 19)), 6, interval=2)
    assert (seven.chosen["merge_layers"], seven.chosen["interval"]) == (7, 2)
    assert groups_of(seven.plan)[12] == tuple(range(12, 19))
    second = seven.chosen["runner_up"]
    assert (second["merge_layers"], second["output_similarity"]) == (4, 0.5)
    tied = planned(seen_with(make_seen, 20, lambda groups: 0.5), 6)
    assert (tied.chosen["merge_layers"], tied.chosen["interval"]) == (4, 2)


def test_protected_layers_are_in_no_merge(make_seen):
    for protect in [(0,), (3, 4), (-1,), (2, 9)]:
        for rule in RULES:
            seen = seen_with(make_seen, 12, random_similarity(5))
            answer = planned(seen, 3, protect=protect, merge_rule=rule)
            kept = {layer % 12 for layer in protect}
            assert not kept & {i for group in fused(answer.plan) for i in group}
            for asked in asked_of(seen):
                assert all((i,) in groups_of(asked) for i in kept)


def test_it_is_the_papers_method_by_default():
    assert LaCo.requires == {"probe"}
    assert LaCo().needs(LaCoParams()) == {"probe"}
    assert not LaCo.width
