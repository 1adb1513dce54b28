import pytest

from prunebench.core.budget import Budget
from prunebench.methods.base import Params
from prunebench.methods.last_n import LastN


@pytest.mark.parametrize(
    ("layers", "protect", "removed"),
    [
        (1, (), (11,)),
        (3, (), (9, 10, 11)),
        (11, (), tuple(range(1, 12))),
        (3, (-1,), (8, 9, 10)),
        (2, (0, 10), (9, 11)),
    ],
)
def test_the_deepest_layers_go(seen, layers, protect, removed):
    planned = LastN().plan(seen, Budget(layers), Params(protect=protect))
    assert planned.plan.removed_layers == removed
    assert planned.warnings == ()
    assert planned.chosen == {}


def test_it_is_the_brute_force(seen):
    for protect in ((), (0,), (3, 11), (-1, -2, 5)):
        for layers in range(1, 8):
            gone, layer = [], 11
            while len(gone) < layers:
                if layer not in {p % 12 for p in protect}:
                    gone.insert(0, layer)
                layer -= 1
            plan = LastN().plan(seen, Budget(layers), Params(protect=protect)).plan
            assert plan.removed_layers == tuple(gone)
