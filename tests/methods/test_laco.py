import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import InputError, UnreachableError
from prunebench.methods.base import Measurements
from prunebench.methods.laco import Collapse, LaCo, LaCoParams, MergeRule, Run, merged

RULES: tuple[MergeRule, ...] = ("released", "rdsc", "drop")


def groups_of(plan):
    """The dense layers that each block stands for, as tuples."""
    starts = [block.base for block in plan.layers]
    return tuple(tuple(range(a, b)) for a, b in zip(starts, [*starts[1:], plan.num_layers], strict=True))


def fused(plan):
    return [list(group) for group in groups_of(plan) if len(group) > 1]


class TableProbe:
    """Similarities by groups of layers; counts how often each plan is asked."""

    def __init__(self, similarity):
        self.similarity, self.asked = similarity, Counter()

    def output_similarity(self, plan):
        self.asked[plan] += 1
        return self.similarity(groups_of(plan))

    def loss(self, plan):
        raise AssertionError("LaCo asks for similarities only")


class Authors:
    """The released loop in the paper's terms, on lists of layers; imports nothing of the package."""

    def __init__(self, num_layers, similarity):
        self.num_layers, self.similarity = num_layers, similarity

    def run(self, C, I, T, stop=10**9, protected=()):  # noqa: E741
        groups = [(i,) for i in range(self.num_layers)]
        events = []
        pointer = self.num_layers - 1 - C
        while pointer >= 0 and self.num_layers - len(groups) < stop:
            K = min(C - 1, len(groups) - pointer - 1)
            one = tuple(i for group in groups[pointer : pointer + K + 1] for i in group)
            if set(one) & set(protected):
                pointer -= 1
                continue
            candidate = [*groups[:pointer], one, *groups[pointer + K + 1 :]]
            similarity = self.similarity(tuple(candidate))
            events.append((pointer, len(groups), K, similarity, similarity > T))
            if similarity > T:
                groups = candidate
                pointer -= I
                if pointer >= len(groups):
                    pointer = len(groups) - 1 - C
            else:
                pointer -= 1
        return tuple(groups), events


def random_similarity(seed, digits=3):
    """A fixed random number for each grouping, with few digits so that equal values occur."""

    def similarity(groups):
        rng = np.random.default_rng([seed, *(len(group) for group in groups)])
        return round(float(rng.uniform(-0.2, 1)), digits)

    return similarity


def by_length(lengths):
    """Similarity from a table over the sizes of the groups."""
    return lambda groups: lengths[tuple(len(group) for group in groups)]


def seen_with(make_seen, num_layers, similarity):
    return Measurements(shape=make_seen(num_layers=num_layers).shape, probe=TableProbe(similarity))


def asked_of(seen) -> Counter:
    """How often each plan was asked."""
    return seen.probe.asked


def planned(seen, layers, **params):
    return LaCo().plan(seen, Budget(layers), LaCoParams(**params))


def collapse(num_layers, similarity, *, target, C, step, rule: MergeRule = "released", protected=()):
    return Collapse(
        num_layers=num_layers,
        target=target,
        size=C,
        interval=step,
        rule=rule,
        protected=frozenset(protected),
        similarity=lambda plan: similarity(groups_of(plan)),
    )


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


def replayed(recorded):
    """Similarities by groups, from the events of recorded runs."""
    table = {}
    for run in recorded:
        num_layers = run["events"][0][1]
        groups = [(i,) for i in range(num_layers)]
        for pointer, before, others, similarity, accepted in run["events"]:
            assert len(groups) == before
            one = tuple(i for group in groups[pointer : pointer + others + 1] for i in group)
            candidate = (*groups[:pointer], one, *groups[pointer + others + 1 :])
            assert table.setdefault(candidate, similarity) == similarity
            if accepted:
                groups = list(candidate)
    return table


@pytest.mark.parametrize(
    ("name", "rule", "runs"),
    [
        ("smollm2", "released", 5),
        ("smollm2_rdsc", "rdsc", 1),
        ("tiny", "released", 1),
        ("tiny_rdsc", "rdsc", 1),
    ],
)
def test_every_loop_of_the_authors_code_is_replayed(golden, name, rule, runs):
    recorded = golden("laco.json")[name]
    table = replayed(recorded)
    assert len(recorded) == runs
    for run in recorded:
        num_layers = run["events"][0][1]
        asked = []

        def similarity(groups, asked=asked):
            asked.append(groups)
            return table[groups]

        loop = collapse(num_layers, similarity, target=num_layers, C=run["C"], step=run["I"], rule=rule)
        end = loop.run(run["T"])
        assert [table[groups] for groups in asked] == [event[3] for event in run["events"]]
        assert fused(end.plan) == run["groups"]
        assert len(end.plan.layers) == run["final_layers"]
        assert end.removed == num_layers - run["final_layers"]
        similarities = [event[3] for event in run["events"]]
        assert end.rejected == max(s for s in similarities if s <= run["T"])
        assert end.accepted == min((s for s in similarities if s > run["T"]), default=math.inf)


def test_the_recorded_runs_to_an_exact_count_are_reproduced(golden, make_seen):
    recorded = golden("laco.json")
    table = replayed([*recorded["exact"], *recorded["smollm2"]])
    assert [run["n"] for run in recorded["exact"]] == [5, 7, 7, 9, 9]
    for run in recorded["exact"]:
        seen = seen_with(make_seen, 30, table.__getitem__)
        answer = planned(seen, run["n"], threshold=run["T"], merge_layers=run["C"], interval=run["I"])
        assert fused(answer.plan) == run["groups"]
        assert len(answer.plan.layers) == run["final_layers"]
        last = run["groups"][0]
        assert answer.plan.merged[last[0]] == ((last[-1], 1.0),)
        assert list(asked_of(seen).values()) == [1] * len(run["events"])
        accepted = [event[3] for event in run["events"] if event[4]]
        assert answer.chosen["output_similarity"] == accepted[-1]
        assert answer.chosen["threshold_below"] == min(accepted)


# Five layers, C = 2: the pointer starts at 2, and (2,3), (1,2), (0,1) are the windows of the dense model.
FIVE = {
    (1, 1, 2, 1): 0.5,
    (1, 2, 1, 1): 0.7,
    (2, 1, 1, 1): 0.6,
    (1, 1, 3): 0.1,
    (1, 3, 1): 0.9,
    (2, 2, 1): 0.3,
    (1, 2, 2): 0.05,
}


def test_a_run_worked_by_hand():
    def run(T, target=1, step=1):
        return collapse(5, by_length(FIVE), target=target, C=2, step=step).run(T)

    assert run(0.49) == Run(merged(PruningPlan.dense(5), 2, 3, "released"), -math.inf, 0.5)
    assert run(0.5) == Run(merged(PruningPlan.dense(5), 1, 2, "released"), 0.5, 0.7)
    assert run(0.69).plan == run(0.5).plan
    nothing = run(0.7)
    assert nothing == Run(PruningPlan.dense(5), 0.7, math.inf)
    assert (nothing.removed, run(0.5).removed) == (0, 1)
    # T = 0.2, two layers: (2,3) goes, then the pointer is at 1 and (1, 23) is 0.9.
    two = run(0.2, target=2)
    assert groups_of(two.plan) == ((0,), (1, 2, 3), (4,))
    assert (two.rejected, two.accepted, two.removed) == (-math.inf, 0.5, 2)
    # An interval of 2 passes pointer 1: (0, 1) beside (2, 3) is 0.3.
    assert groups_of(run(0.2, target=2, step=2).plan) == ((0, 1), (2, 3), (4,))
    # At T = 0.5 the merge of (1,2) leaves pointer 0 and nothing known there is above.
    assert run(0.5).threshold == 0.5
    assert run(0.49).threshold == math.nextafter(0.5, 0)


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


def outcome(make_seen, num_layers, similarity, layers, **params):
    """The groups and settings, or None where nothing reaches the budget; and what was asked."""
    seen = seen_with(make_seen, num_layers, similarity)
    try:
        answer = planned(seen, layers, **params)
    except UnreachableError:
        return None, asked_of(seen)
    return (groups_of(answer.plan), answer.chosen), asked_of(seen)


def brute_force(num_layers, similarity, layers, settings, protected=()):
    """The budget rule literally: every similarity that any run meets is tried as T, from the largest down."""
    authors = Authors(num_layers, similarity)
    best = None
    for C, I in settings:  # noqa: E741
        thresholds, fresh = set(), {math.inf, -math.inf}
        while fresh:
            thresholds |= fresh
            runs = [authors.run(C, I, T, layers, protected) for T in fresh]
            fresh = {event[3] for _, events in runs for event in events} - thresholds
        for T in sorted(thresholds, reverse=True):
            groups, _ = authors.run(C, I, T, layers, protected)
            if num_layers - len(groups) == layers:
                if best is None or similarity(groups) > best[1]:
                    best = groups, similarity(groups), C, I
                break
    return best


@given(
    st.integers(5, 13),
    st.integers(1, 6),
    st.integers(0, 10**6),
    st.sets(st.integers(0, 12), max_size=2),
    st.data(),
)
def test_the_search_is_the_budget_rule_by_brute_force(make_seen, num_layers, layers, seed, protect, data):
    protect = tuple(sorted(i for i in protect if i < num_layers))
    layers = min(layers, num_layers - 1 - len(protect))
    similarity = random_similarity(seed, data.draw(st.sampled_from([1, 6])))
    expected = brute_force(num_layers, similarity, layers, LaCoParams().settings(Budget(layers)), protect)
    rule = data.draw(st.sampled_from(RULES))
    found, asked = outcome(make_seen, num_layers, similarity, layers, protect=protect, merge_rule=rule)
    assert max(asked.values(), default=1) == 1
    if expected is None:
        assert found is None
        return
    groups, value, C, step = expected
    assert found is not None
    assert found[0] == groups
    chosen = found[1]
    assert (chosen["merge_layers"], chosen["interval"], chosen["output_similarity"]) == (C, step, value)
    low, high = chosen["threshold"], chosen["threshold_below"]
    for T in (low, min((low + high) / 2, math.nextafter(high, -1)), math.nextafter(high, -1)):
        assert Authors(num_layers, similarity).run(C, step, T, layers, protect)[0] == groups
    assert Authors(num_layers, similarity).run(C, step, high, layers, protect)[0] != groups


@given(st.integers(3, 14), st.integers(2, 9), st.integers(1, 4), st.integers(0, 10**6), st.floats(-0.3, 1.1))
def test_a_run_is_the_released_loop(num_layers, C, step, seed, T):
    similarity = random_similarity(seed)
    groups, events = Authors(num_layers, similarity).run(C, step, T)
    asked = []

    def answer(candidate):
        asked.append(similarity(candidate))
        return asked[-1]

    end = collapse(num_layers, answer, target=num_layers, C=C, step=step).run(T)
    assert groups_of(end.plan) == groups
    assert asked == [event[3] for event in events]
    # The two cases that the loop leaves out never come up.
    assert all(1 <= others <= C - 1 for _, _, others, _, _ in events)
    stopped = collapse(num_layers, similarity, target=2, C=C, step=step)
    assert groups_of(stopped.run(T).plan) == Authors(num_layers, similarity).run(C, step, T, 2)[0]
    assert stopped.run(T).removed in stopped.ends()


@given(st.integers(3, 12), st.integers(2, 6), st.integers(1, 3), st.integers(1, 5), st.data())
def test_the_possible_ends_are_those_of_all_decisions(num_layers, C, step, target, data):
    ends = set()

    def walk(pointer, blocks):
        if num_layers - blocks >= target or pointer < 0:
            ends.add(num_layers - blocks)
            return
        walk(pointer - 1, blocks)
        walk(pointer - step, blocks - min(C - 1, blocks - pointer - 1))

    walk(num_layers - 1 - C, num_layers)
    assert collapse(num_layers, len, target=target, C=C, step=step).ends() == ends


def test_the_search_gives_up_early_where_no_decision_can_reach_the_budget():
    # C = 3, I = 2 merges two layers at a time: for a target of 3 nothing is worth asking.
    loop = collapse(12, random_similarity(1), target=3, C=3, step=2)
    assert 3 not in loop.ends()
    assert [run.removed for run in loop.runs()] == [0]
    reachable = collapse(12, random_similarity(1), target=4, C=3, step=2)
    runs = list(reachable.runs())
    assert len(runs) > 2
    assert all(first.rejected > second.rejected for first, second in pairwise(runs))


def test_it_is_the_papers_method_by_default():
    assert LaCo.requires == {"probe"}
    assert LaCo().needs(LaCoParams()) == {"probe"}
    assert not LaCo.width
