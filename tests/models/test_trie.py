"""Plans walked as a trie against the model's own forward pass under the plan's view."""

import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.trie import count_nodes
from prunebench.errors import InputError
from prunebench.models.trie import Runner, enter, final_states, walk
from prunebench.models.view import ModelView

L, I = 6, 44  # noqa: E741
BATCHES = [
    torch.tensor([[(7 * i + 3 * r) % 260 for i in range(24)] for r in range(3)]),
    torch.tensor([[(11 * i + 5) % 260 for i in range(40)]]),
]


def plan(*specs):
    return PruningPlan(
        num_layers=L, layers=tuple(s if isinstance(s, LayerSpec) else LayerSpec(base=s) for s in specs)
    )


MERGED = LayerSpec(base=2, blend=((3, 1.0),))
MIXED = LayerSpec(base=1, blend=((1, 0.5), (4, 0.5)))
TRIMMED = LayerSpec(base=3, features=Mask.keep(range(0, I, 3), I))
HALVED = LayerSpec(base=4, drop=("attention",))
PLANS = [
    PruningPlan.dense(L),
    PruningPlan.without([1], L),
    PruningPlan.without([1, 2], L),
    PruningPlan.without([0], L),
    PruningPlan.without([5], L),
    PruningPlan.without([0, 1, 2, 3], L),
    plan(0, 1, MERGED, 4, 5),
    plan(0, 1, MERGED, HALVED),
    plan(0, MIXED, 2, TRIMMED, HALVED),
    plan(3, 3, 0),
    plan(0),
]


def entries(dense):
    return [enter(dense, ids) for ids in BATCHES]


@torch.no_grad()
def alone(dense, pruned, ids):
    with ModelView(dense).applied(pruned) as model:
        return model.model(input_ids=ids, use_cache=False).last_hidden_state


def test_every_familys_states_equal_those_of_the_model_itself_bit_for_bit(family_dense):
    seen = {}
    for pruned, states in final_states(family_dense, PLANS, BATCHES):
        seen[pruned] = [hidden.clone() for hidden in states]
    assert set(seen) == set(PLANS)
    for pruned, states in seen.items():
        for hidden, ids in zip(states, BATCHES, strict=True):
            assert torch.equal(hidden, alone(family_dense, pruned, ids)), pruned


def test_eager_attention_and_bfloat16_are_bit_equal_too(tiny):
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.load import load_model

    dense = load_model(Checkpoint.open(tiny("gemma3")), dtype="bfloat16", attention="eager")
    for pruned, states in final_states(dense, PLANS, BATCHES):
        for hidden, ids in zip(states, BATCHES, strict=True):
            assert hidden.dtype == torch.bfloat16
            assert torch.equal(hidden, alone(dense, pruned, ids)), pruned


def test_exactly_the_nodes_of_the_trie_are_run(load_tiny):
    runner = Runner(load_tiny("llama"), entries(load_tiny("llama")))
    assert len(list(walk(runner, PLANS))) == len(PLANS)
    assert runner.forwards == count_nodes(PLANS) < sum(len(pruned.layers) for pruned in PLANS)


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, MERGED, HALVED]), min_size=1, max_size=5), max_size=8))
def test_the_nodes_are_the_distinct_prefixes(stacks):
    plans = [plan(*specs) for specs in stacks]
    assert count_nodes(plans) == len({p.layers[: n + 1] for p in plans for n in range(len(p.layers))})


def test_four_plans_of_one_method_share_what_comes_before_the_first_difference():
    plans = [PruningPlan.without(removed, L) for removed in ([], [5], [4], [4, 5])]
    assert count_nodes(plans) == 4 + 2 + 1  # 0123, then 4 and 45, then 5


def test_equal_plans_are_run_and_given_once(load_tiny):
    runner = Runner(load_tiny("llama"), entries(load_tiny("llama")))
    twice = [PruningPlan.without([1], L), plan(0, 2, 3, 4, 5)]
    assert [pruned for pruned, _ in walk(runner, twice)] == [twice[0]]
    assert runner.forwards == 5


class Watching(Runner):
    """Counts how many sets of states are alive at once."""

    def __init__(self, dense, entries):
        super().__init__(dense, entries)
        self.made, self.most = [], 0

    def block(self, spec, states):
        after = super().block(spec, states)
        self.made.append(weakref.ref(after[0]))
        self.most = max(self.most, sum(made() is not None for made in self.made))
        return after


def test_states_are_kept_for_open_branches_only(load_tiny):
    chain = Watching(load_tiny("llama"), entries(load_tiny("llama")))
    for _ in walk(chain, [PruningPlan.dense(L)]):
        pass
    assert chain.most == 2  # what goes into a block and what comes out of it

    fan = Watching(load_tiny("llama"), entries(load_tiny("llama")))
    for _ in walk(fan, [PruningPlan.without([i], L) for i in range(2, L)]):
        pass
    assert fan.most <= 4


def test_the_models_blocks_are_back_when_embedding_fails(load_tiny):
    dense = load_tiny("llama")
    blocks = dense.model.model.layers
    with pytest.raises(IndexError):
        enter(dense, torch.tensor([[10_000]]))
    assert dense.model.model.layers is blocks


def test_a_plan_for_a_model_of_other_depth_is_refused(load_tiny):
    with pytest.raises(InputError, match="7 layers, but the model has 6"):
        next(final_states(load_tiny("llama"), [PruningPlan.dense(7)], BATCHES))
