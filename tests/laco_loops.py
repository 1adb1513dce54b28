"""LaCo with similarities from a table, and the authors' loop to hold it against."""

from collections import Counter

import numpy as np

from prunebench.core.budget import Budget
from prunebench.methods.base import Measurements
from prunebench.methods.laco import Collapse, LaCo, LaCoParams, MergeRule

RULES: tuple[MergeRule, ...] = ("released", "rdsc", "drop")
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
