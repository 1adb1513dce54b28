import base64
import hashlib
import json
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.errors import InputError

# 2·4·2·(3 + 1) = 64 attention, 3·4·10 = 120 MLP, 184 a layer, 12 a feature
SHAPE = ModelShape(
    num_layers=4,
    hidden_size=4,
    intermediate_size=10,
    num_heads=3,
    num_kv_heads=1,
    head_dim=2,
    block_extra_params=8,
    other_params=100,
)


@st.composite
def plans(draw, max_layers=6):
    N = draw(st.integers(1, max_layers))
    bases = draw(st.sets(st.integers(0, N - 1), min_size=1))
    layers = []
    for base in sorted(bases):
        blend = draw(st.dictionaries(st.integers(0, N - 1), st.floats(-2, 2), max_size=3))
        kept = draw(st.none() | st.sets(st.integers(0, 9)))
        layers.append(
            LayerSpec(
                base=base,
                blend=tuple(blend.items()),
                features=None if kept is None else Mask.keep(kept, 10),
                drop=tuple(draw(st.lists(st.sampled_from(["attention", "mlp"]), max_size=2))),
            )
        )
    return PruningPlan(num_layers=N, layers=tuple(layers))


def test_a_mask_is_packed_little_endian_bits():
    mask = Mask.keep([0, 2, 9], 10)
    assert mask is not None
    assert mask == Mask(bytes([0b00000101, 0b00000010]))
    assert mask.indices.tolist() == [0, 2, 9]
    assert mask.count == 3
    assert Mask.keep([], 10) == Mask(b"\x00\x00")
    assert Mask(b"\x00\x00").count == 0


def test_a_full_mask_is_none():
    assert Mask.keep(range(10), 10) is None
    assert Mask.keep([1, 0, 2, 2], 3) is None
    assert Mask.keep(range(9), 10) is not None


@given(st.sets(st.integers(0, 40)), st.integers(41, 60))
def test_a_mask_holds_what_was_kept(kept, width):
    mask = Mask.keep(kept, width)
    assert mask is not None
    assert mask.indices.tolist() == sorted(kept)
    assert mask.count == len(kept)
    assert len(mask.packed) == (width + 7) // 8


def test_equal_blocks_have_one_spelling():
    assert LayerSpec(base=2, blend=((2, 1.0),)) == LayerSpec(base=2)
    assert LayerSpec(base=2, blend=((2, 1), (3, 0.0))) == LayerSpec(base=2)
    assert LayerSpec(base=2, blend=((3, 1), (1, -2))).blend == ((1, -2.0), (3, 1.0))
    assert LayerSpec(base=2, blend=((3, 1.0),)).blend == ((3, 1.0),)
    assert LayerSpec(base=2, blend=((2, 0.5),)).blend == ((2, 0.5),)
    blend: Any = ((np.int64(3), np.float64(0.5)),)  # what arithmetic on statistics gives
    assert LayerSpec(base=2, blend=blend).to_json() == {"base": 2, "blend": [[3, "0.5"]]}
    assert LayerSpec(base=0, drop=("mlp", "attention", "mlp")).drop == ("attention", "mlp")


def test_the_json_of_a_block_leaves_defaults_out():
    assert LayerSpec(base=3).to_json() == {"base": 3}
    full = LayerSpec(base=3, blend=((4, 0.1), (3, -1.0)), features=Mask.keep([0, 9], 10), drop=("mlp",))
    assert full.to_json() == {
        "base": 3,
        "blend": [[3, "-1.0"], [4, "0.1"]],
        "features": base64.b64encode(b"\x01\x02").decode(),
        "drop": ["mlp"],
    }
    assert LayerSpec.from_json(full.to_json()) == full
    assert LayerSpec.from_json({"base": 3}) == LayerSpec(base=3)


def test_a_block_of_a_later_version_is_refused():
    message = "^the plan's block has fields this version does not know: head_dims, kv_groups$"
    with pytest.raises(InputError, match=message):
        LayerSpec.from_json({"base": 0, "kv_groups": "AQ==", "head_dims": "AQ=="})


@pytest.mark.parametrize(
    ("spec", "removed"),
    [
        (LayerSpec(base=0), 0),
        (LayerSpec(base=0, blend=((1, 0.5),)), 0),
        (LayerSpec(base=0, drop=("attention",)), 64),
        (LayerSpec(base=0, drop=("mlp",)), 120),
        (LayerSpec(base=0, drop=("mlp", "attention")), 184),
        (LayerSpec(base=0, features=Mask.keep(range(7), 10)), 36),
        (LayerSpec(base=0, features=Mask.keep([], 10)), 120),
        (LayerSpec(base=0, features=Mask.keep(range(7), 10), drop=("attention",)), 100),
        (LayerSpec(base=0, features=Mask.keep(range(7), 10), drop=("mlp",)), 120),
    ],
)
def test_the_parameters_that_a_block_lacks(spec, removed):
    assert spec.removed_params(SHAPE) == removed


def test_the_parameters_that_a_plan_removes():
    # 4 · (184 + 8) + 100 = 868 in all
    assert PruningPlan.dense(4).removed_params(SHAPE) == 0
    assert PruningPlan.dense(4).total_params(SHAPE) == 868
    assert PruningPlan.without([1, 2], 4).removed_params(SHAPE) == 368
    assert PruningPlan.without([1, 2], 4).total_params(SHAPE) == 484
    trimmed = PruningPlan(
        num_layers=4,
        layers=(
            LayerSpec(base=0),
            LayerSpec(base=1, features=Mask.keep(range(7), 10)),
            LayerSpec(base=3, drop=("mlp",)),
        ),
    )
    assert trimmed.removed_params(SHAPE) == 184 + 36 + 120
    assert trimmed.total_params(SHAPE) == 868 - 340 - 8


def test_what_a_plan_says_of_itself():
    plan = PruningPlan(
        num_layers=5,
        layers=(
            LayerSpec(base=0),
            LayerSpec(base=2, blend=((3, 1.0), (2, 0.5))),
            LayerSpec(base=4, features=Mask.keep([1, 3, 5], 10), drop=("attention",)),
        ),
    )
    assert plan.removed_layers == (1, 3)
    assert plan.merged == {2: ((2, 0.5), (3, 1.0))}
    assert plan.kept_features == {4: 3}
    assert plan.dropped == {4: ("attention",)}
    assert not plan.is_dense


def test_the_dense_plan_removes_nothing():
    dense = PruningPlan.dense(3)
    assert dense == PruningPlan.without([], 3)
    assert dense.is_dense
    assert (dense.removed_layers, dense.merged, dense.kept_features, dense.dropped) == ((), {}, {}, {})
    assert not PruningPlan.without([0], 3).is_dense
    same_blocks = PruningPlan(
        num_layers=3, layers=tuple(LayerSpec(base=i, blend=((i, 1.0),)) for i in range(3))
    )
    assert same_blocks.is_dense


def test_the_canonical_json_and_its_address():
    plan = PruningPlan.without([1], 3)
    text = '{"layers":[{"base":0},{"base":2}],"num_layers":3,"plan_version":1}'
    assert plan.canonical == text
    assert plan.plan_id == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert re.fullmatch("[0-9a-f]{16}", plan.plan_id)


@pytest.mark.parametrize(
    ("layers", "outside"),
    [
        ([LayerSpec(base=3)], 3),
        ([LayerSpec(base=-1)], -1),
        ([LayerSpec(base=0), LayerSpec(base=1, blend=((1, 0.5), (7, 0.5)))], 7),
        ([LayerSpec(base=1, blend=((-2, 0.5),))], -2),
    ],
)
def test_blocks_outside_the_model_are_refused(layers, outside):
    with pytest.raises(InputError, match=rf"^the plan names layer {outside}, but the model has 3 layers$"):
        PruningPlan(num_layers=3, layers=tuple(layers))


def test_an_empty_model_is_refused():
    with pytest.raises(InputError, match=r"^a plan has to keep at least one block$"):
        PruningPlan.without([0, 1], 2)
    assert len(PruningPlan.without([0], 2).layers) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a pruning plan: JSONDecodeError"),
        ("[]", "not a pruning plan: TypeError"),
        ("{}", "not a pruning plan: KeyError\\('plan_version'\\)"),
        ('{"plan_version":1}', "not a pruning plan: KeyError\\('num_layers'\\)"),
        ('{"plan_version":1,"num_layers":2}', "not a pruning plan: KeyError\\('layers'\\)"),
        ('{"plan_version":1,"num_layers":2,"layers":[{}]}', "not a pruning plan: KeyError\\('base'\\)"),
        ('{"plan_version":1,"num_layers":2,"layers":7}', "not a pruning plan: TypeError"),
        ('{"plan_version":2,"num_layers":2}', "the plan has version 2; this program reads version 1$"),
        ('{"plan_version":1,"num_layers":"x","layers":[{"base":0}]}', "not a pruning plan: ValueError"),
        (
            '{"plan_version":1,"num_layers":2,"layers":[{"base":0,"blend":[[0]]}]}',
            "not a pruning plan: ValueError",
        ),
        (
            '{"plan_version":1,"num_layers":2,"layers":[{"base":0,"blend":[[1,"nan"]]}]}',
            "the plan blends with the coefficient nan: it has to be finite$",
        ),
        (
            '{"plan_version":1,"num_layers":2,"layers":[{"base":0,"drop":["nose"]}]}',
            "the plan drops 'nose'; a block has attention and mlp$",
        ),
        (
            '{"plan_version":1,"num_layers":2,"layers":[{"base":0}],"z":1,"payload":{}}',
            "the plan has fields this version does not know: payload, z$",
        ),
    ],
)
def test_what_is_no_plan_is_refused(text, message):
    with pytest.raises(InputError, match=rf"^{message}"):
        PruningPlan.from_json(text)


@given(plans())
def test_plans_survive_json_and_pickling(plan):
    assert PruningPlan.from_json(plan.canonical) == plan
    assert PruningPlan.from_json(json.dumps(plan.to_json(), indent=1)).plan_id == plan.plan_id
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert hash(pickle.loads(pickle.dumps(plan))) == hash(plan)


@given(plans(), plans())
def test_equal_addresses_are_equal_plans(a, b):
    assert (a.plan_id == b.plan_id) == (a == b)


@given(st.integers(2, 12), st.data())
def test_removing_layers_removes_exactly_them(num_layers, data):
    removed = data.draw(st.sets(st.integers(0, num_layers - 1), max_size=num_layers - 1))
    plan = PruningPlan.without(removed, num_layers)
    assert plan.removed_layers == tuple(sorted(removed))
    assert [spec.base for spec in plan.layers] == [i for i in range(num_layers) if i not in removed]
    assert plan == PruningPlan.without(np.array(sorted(removed), dtype=int), num_layers)
    assert plan.removed_params(SHAPE) == len(removed) * SHAPE.params_per_layer
