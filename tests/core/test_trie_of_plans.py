from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.core.trie import count_nodes, grow

L = 6
REMOVED = st.sets(st.integers(0, L - 1), max_size=L - 1)


def test_plans_share_the_blocks_before_their_first_difference():
    plans = [PruningPlan.without(removed, 4) for removed in ([], [3], [2], [0])]
    # 0123, 012 (inside it), 01-3, 123: four blocks, none more, one more, three more.
    assert count_nodes(plans) == 4 + 0 + 1 + 3


def test_a_changed_block_is_another_block():
    plain = PruningPlan.dense(2)
    dropped = PruningPlan(num_layers=2, layers=(LayerSpec(base=0), LayerSpec(base=1, drop=("mlp",))))
    assert count_nodes([plain, dropped]) == 3


def test_equal_plans_end_at_one_node_once():
    plan = PruningPlan.without([1], 3)
    node = grow([plan, PruningPlan.without([1], 3)])
    for spec in plan.layers:
        node = node.children[spec]
    assert node.plans == [plan]
    assert node.children == {}


@given(st.lists(REMOVED, min_size=1, max_size=6))
def test_the_count_is_that_of_the_distinct_prefixes(sets):
    plans = [PruningPlan.without(removed, L) for removed in sets]
    prefixes = {plan.layers[:i] for plan in plans for i in range(1, len(plan.layers) + 1)}
    assert count_nodes(plans) == len(prefixes)
