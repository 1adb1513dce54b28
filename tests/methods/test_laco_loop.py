import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laco_loops import (
    FIVE,
    RULES,
    Authors,
    asked_of,
    by_length,
    collapse,
    fused,
    groups_of,
    planned,
    random_similarity,
    seen_with,
)
from prunebench.core.budget import Budget
from prunebench.core.plan import PruningPlan
from prunebench.errors import UnreachableError
from prunebench.methods.laco import LaCoParams, Run, merged


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
