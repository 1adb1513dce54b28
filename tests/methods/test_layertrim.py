import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.errors import BudgetError, InputError
from prunebench.methods.base import Measurements
from prunebench.methods.layertrim import LayerTrim, LayerTrimParams, dropped, feature_scores, trimmed


def model(num_layers, C, I, H, KV, hd):  # noqa: E741
    return ModelShape(
        num_layers=num_layers, hidden_size=C, intermediate_size=I, num_heads=H, num_kv_heads=KV, head_dim=hd
    )


QWEN3_14B = model(40, 5120, 17408, 40, 8, 128)
PHI_4 = model(40, 5120, 17920, 40, 10, 128)
MAGISTRAL = model(40, 5120, 32768, 32, 8, 128)
SMOLLM2 = model(30, 576, 1536, 9, 3, 64)


def planned(seen, layers, **params):
    return LayerTrim().plan(seen, Budget(layers), LayerTrimParams(**params))


def kept(plan):
    """The kept features of each trimmed layer."""
    return {spec.base: spec.features.indices.tolist() for spec in plan.layers if spec.features is not None}


def with_influence(seen, block, mlp=None):
    """The same measurements with the given 1 - E[cos] around blocks and MLPs."""
    stats = seen.need_calibration()
    cosines = np.diag(1 - np.asarray(block, dtype=float), 1) * stats.tokens
    mlp_L = stats.cosine_mlp_L if mlp is None else (1 - np.asarray(mlp)) * stats.tokens
    return replace(seen, calibration=replace(stats, cosine_BB=cosines + cosines.T, cosine_mlp_L=mlp_L))


@pytest.mark.parametrize(
    ("shape", "per_layer", "kept"),
    [
        (QWEN3_14B, 330_301_440, 6656),
        (PHI_4, 340_787_200, 6827),
        (MAGISTRAL, 555_745_280, 14677),
        (SMOLLM2, 3_538_944, 512),
    ],
)
def test_the_papers_models_keep_the_papers_number_of_features(shape, per_layer, kept):
    assert shape.params_per_layer == per_layer
    for layers in (1, 7, 9):
        assert trimmed(shape, Budget(layers), LayerTrimParams()) == (2 * layers, kept)


@pytest.mark.parametrize(
    ("params", "count", "kept"),
    [
        # 17408 - 7·330301440 / (3·5120·K), K = 11, 14, 21 and 40 as in Table 2
        ({"k": "1.5N"}, 11, 3724),
        ({"k": "2N"}, 14, 6656),
        ({"k": "3N"}, 21, 10240),
        ({"layer_choice": "all"}, 40, 13645),
        ({"layer_choice": "all", "protect": (0, -1)}, 38, 13447),
        ({"k": 12}, 12, 4864),
        ({"k": 40}, 40, 13645),
        ({"k": 9}, 9, 683),
    ],
)
def test_the_budget_is_the_same_for_every_number_of_mlps(params, count, kept):
    assert trimmed(QWEN3_14B, Budget(7), LayerTrimParams(**params)) == (count, kept)
    assert kept == math.floor(17408 - 7 * 330301440 / (15360 * count) + 0.5)
    realised = 3 * 5120 * count * (17408 - kept)
    assert abs(realised - 7 * 330301440) <= 0.5 * 15360 * count


def test_one_and_a_half_times_the_budget_rounds_up():
    for layers, count in [(1, 2), (2, 3), (3, 5), (4, 6), (9, 14)]:
        assert trimmed(QWEN3_14B, Budget(layers), LayerTrimParams(k="1.5N"))[0] == count


def test_halves_round_up():
    # P = 2·2·1·(1 + 1) + 3·2·I = 8 + 6·I; m = I - (8 + 6·I)·N / (6·K)
    shape = model(16, 2, 6, 1, 1, 1)
    assert shape.params_per_layer == 44
    assert trimmed(shape, Budget(3), LayerTrimParams(k=4)) == (4, 1)  # 6 - 5.5 = 0.5
    assert trimmed(shape, Budget(3), LayerTrimParams(k=12)) == (12, 4)  # 6 - 1.833
    assert trimmed(shape, Budget(6), LayerTrimParams(k=8)) == (8, 1)  # 6 - 5.5
    with pytest.raises(BudgetError, match="m = 0 of 6"):
        trimmed(shape, Budget(4), LayerTrimParams(k=5))  # 6 - 5.867 = 0.133


def test_it_refuses_more_mlps_than_there_are():
    message = "LayerTrim at budget 16 trims 32 MLPs, but only 30 of 30 layers may be changed: "
    with pytest.raises(BudgetError) as refusal:
        LayerTrim().check(SMOLLM2, Budget(16), LayerTrimParams())
    assert str(refusal.value) == message + "give a smaller budget or k"
    LayerTrim().check(SMOLLM2, Budget(15), LayerTrimParams())
    with pytest.raises(BudgetError, match="budget 15 trims 30 MLPs, but only 29 of 30 layers may be changed"):
        LayerTrim().check(SMOLLM2, Budget(15), LayerTrimParams(protect=(3,)))


def test_it_refuses_to_leave_no_feature():
    # 1536 - 7·3538944 / (3·576·9) = 1536 - 1592.9
    with pytest.raises(BudgetError) as refusal:
        LayerTrim().check(SMOLLM2, Budget(7), LayerTrimParams(k=9))
    assert str(refusal.value) == (
        "LayerTrim at budget 7 would leave m = -57 of 1536 features in 9 MLPs: give a smaller budget or a "
        "larger k"
    )
    assert trimmed(SMOLLM2, Budget(7), LayerTrimParams(k=10)) == (10, 102)
    with pytest.raises(BudgetError, match="m = -57"):
        LayerTrim().plan(Measurements(shape=SMOLLM2), Budget(7), LayerTrimParams(k=9))


@pytest.mark.parametrize("target", ["mlp", "attention"])
def test_whole_modules_come_nearest_to_the_budget(target):
    params = LayerTrimParams(target=target)
    nearest = {n: dropped(QWEN3_14B, Budget(n), params) for n in (1, 4, 5, 7)}
    # P / attention = 5.25, P / MLP = 1.2353
    expected = {
        "attention": {1: 5, 4: 21, 5: 26, 7: 37},
        "mlp": {1: 1, 4: 5, 5: 6, 7: 9},
    }
    assert nearest == expected[target]


def test_appendix_c_follows_from_the_nearest_count():
    attention, mlp = QWEN3_14B.attention_params, QWEN3_14B.mlp_params
    assert (attention, mlp) == (62_914_560, 267_386_880)
    assert [round(count * unit / 1e9, 3) for count, unit in ((24, attention), (6, mlp))] == [1.510, 1.604]
    for unit, count in ((attention, 24), (mlp, 6)):
        assert min(range(41), key=lambda n: abs(n * unit - 1.494e9)) == count


def test_half_a_module_rounds_up():
    # Attention 2·2·1·(2 + 2) = 16, MLP 3·2·4 = 24: P / MLP = 40 / 24 = 1.667, P / attention = 2.5
    shape = model(12, 2, 4, 2, 2, 1)
    assert dropped(shape, Budget(1), LayerTrimParams(target="attention")) == 3
    assert dropped(shape, Budget(2), LayerTrimParams(target="attention")) == 5
    assert dropped(shape, Budget(1), LayerTrimParams(target="mlp")) == 2


def test_it_refuses_to_drop_more_modules_than_there_are():
    # Four attentions of SmolLM2 are one layer.
    assert dropped(SMOLLM2, Budget(7), LayerTrimParams(target="attention")) == 28
    with pytest.raises(BudgetError) as refusal:
        LayerTrim().check(SMOLLM2, Budget(8), LayerTrimParams(target="attention"))
    assert str(refusal.value) == (
        "LayerTrim at budget 8 drops 32 whole attention modules, but only 30 of 30 layers may be changed: "
        "give a smaller budget"
    )
    with pytest.raises(BudgetError, match="drops 28 whole attention modules, but only 27 of 30 layers"):
        LayerTrim().check(SMOLLM2, Budget(7), LayerTrimParams(target="attention", protect=(0, 1, 2)))
    LayerTrim().check(SMOLLM2, Budget(7), LayerTrimParams(target="attention", protect=(0, 1)))


def test_it_refuses_settings_that_mean_nothing_together():
    assert LayerTrimParams() == LayerTrimParams(
        score="energy_weight", layer_choice="block_bi", k="2N", target="features", seed=0
    )
    with pytest.raises(InputError, match=r"^k 0: at least one MLP has to be trimmed$"):
        LayerTrimParams(k=0)
    LayerTrimParams(k=1)
    with pytest.raises(InputError, match=r"^seed -1: has to be at least 0$"):
        LayerTrimParams(seed=-1)
    for target in ("mlp", "attention"):
        message = rf"^layer_choice all would drop every {target}: choose block_bi, mlp_bi or random$"
        with pytest.raises(InputError, match=message):
            LayerTrimParams(target=target, layer_choice="all")
        for k in ("1.5N", "3N", 14):
            with pytest.raises(InputError, match=r"^k is given by the budget where "):
                LayerTrimParams(target=target, k=k)
    with pytest.raises(InputError, match=r"^k is given by the budget where "):
        LayerTrimParams(layer_choice="all", k="3N")


def test_it_asks_for_what_its_parameters_need():
    def needs(**params):
        return LayerTrim().needs(LayerTrimParams(**params))

    assert LayerTrim.requires == needs() == {"calibration", "weights"}
    assert needs(score="variance", layer_choice="random") == {"calibration", "weights"}
    assert needs(score="energy") == needs(score="energy", layer_choice="all") == {"calibration"}
    assert needs(score="weight") == needs(score="weight", layer_choice="mlp_bi") == {"calibration", "weights"}
    assert (
        needs(score="weight", layer_choice="random")
        == needs(score="weight", layer_choice="all")
        == {"weights"}
    )
    assert needs(target="mlp") == needs(target="attention", layer_choice="mlp_bi") == {"calibration"}
    assert needs(target="mlp", layer_choice="random") == set()


@pytest.mark.parametrize("score", ["energy", "weight", "variance", "energy_weight"])
@pytest.mark.parametrize("choice", ["block_bi", "mlp_bi", "random", "all"])
@pytest.mark.parametrize("target", ["features", "mlp", "attention"])
def test_it_plans_with_no_more_than_it_asked_for(seen, score, choice, target):
    if target != "features" and choice == "all":
        return
    params = LayerTrimParams(score=score, layer_choice=choice, target=target)
    needs = LayerTrim().needs(params)
    only = Measurements(
        shape=seen.shape,
        calibration=seen.calibration if "calibration" in needs else None,
        weights=seen.weights if "weights" in needs else None,
    )
    budget = Budget(1)
    assert LayerTrim().plan(only, budget, params) == LayerTrim().plan(seen, budget, params)
    if needs:
        with pytest.raises(InputError, match="not measured"):
            LayerTrim().plan(Measurements(shape=seen.shape), budget, params)


def hand(make_seen):
    """Four layers of four features, 16 tokens; m = 1 of K = 2 at budget 1."""
    template = make_seen(num_layers=4)
    # P = 2·1·1·(1 + 1) + 3·4 = 16, so m = 4 - 16 / (3·2) = 1.33.
    shape = model(4, 1, 4, 1, 1, 1)
    mean = np.tile([0.0, 2.0, 1.0, 0.0], (4, 1))
    square = np.tile([4.0, 5.0, 2.0, 1.0], (4, 1))
    stats = replace(
        template.calibration,
        tokens=16,
        hidden_size=1,
        feature_sum_LI=mean * 16,
        feature_square_LI=square * 16,
    )
    weights = replace(template.weights, column_square_LI=np.tile([1.0, 2.0, 6.0, 7.0], (4, 1)))
    seen = Measurements(shape=shape, calibration=stats, weights=weights)
    return with_influence(seen, block=[0.4, 0.1, 0.2, 0.3], mlp=[0.1, 0.2, 0.4, 0.3])


def test_worked_by_hand(make_seen):
    seen = hand(make_seen)
    answer = planned(seen, 1)
    # E[phi^2]·||w||^2 = 4, 10, 12, 7: feature 2 of the two layers of lowest influence.
    assert kept(answer.plan) == {1: [2], 2: [2]}
    assert answer.chosen == {"K": 2, "m": 1}
    assert answer.warnings == ()
    assert answer.plan.removed_layers == ()
    assert answer.plan.layers[0] == LayerSpec(base=0)
    assert answer.plan.removed_params(seen.shape) == 3 * 1 * 2 * 3
    # E[phi^2] = 4, 5, 2, 1; ||w||^2 = 1, 2, 6, 7; (5 - 2^2, 2 - 1^2) Var·||w||^2 = 4, 2, 6, 7
    assert kept(planned(seen, 1, score="energy").plan) == {1: [1], 2: [1]}
    assert kept(planned(seen, 1, score="weight").plan) == {1: [3], 2: [3]}
    assert kept(planned(seen, 1, score="variance").plan) == {1: [3], 2: [3]}
    np.testing.assert_allclose(feature_scores(seen, LayerTrimParams())[0], [4, 10, 12, 7])
    np.testing.assert_allclose(feature_scores(seen, LayerTrimParams(score="variance"))[0], [4, 2, 6, 7])
    np.testing.assert_allclose(feature_scores(seen, LayerTrimParams(score="energy"))[3], [4, 5, 2, 1])
    np.testing.assert_allclose(feature_scores(seen, LayerTrimParams(score="weight"))[3], [1, 2, 6, 7])
    # m = 4 - 16 / 9 = 2.22 of three layers, 4 - 16 / 12 = 2.67 of all.
    assert kept(planned(seen, 1, k="3N").plan) == {1: [1, 2], 2: [1, 2], 3: [1, 2]}
    assert kept(planned(seen, 1, layer_choice="all").plan) == {i: [1, 2, 3] for i in range(4)}
    assert kept(planned(seen, 1, layer_choice="mlp_bi").plan) == {0: [2], 1: [2]}
    assert kept(planned(seen, 1, protect=(1,)).plan) == {2: [2], 3: [2]}
    assert planned(seen, 1, layer_choice="all", protect=(1,)).chosen == {"K": 3, "m": 2}
    assert planned(seen, 1, layer_choice="all").warnings == ()
    assert planned(seen, 1, layer_choice="random").warnings == ()


def test_equal_features_and_layers_go_by_index(make_seen):
    seen = with_influence(hand(make_seen), block=[0.5, 0.25, 0.25, 0.25])
    flat = replace(seen, weights=replace(seen.weights, column_square_LI=np.ones((4, 4))))
    answer = planned(flat, 1, score="weight")
    assert kept(answer.plan) == {1: [0], 2: [0]}
    assert answer.warnings == (
        "Block Influence: layer 2 was preferred to layer 3 by a relative margin under 1e-4 (0.25 and 0.25)",
    )
    tied = with_influence(flat, block=[0.1, 0.2, 0.3, 0.4], mlp=[0.5, 0.5, 0.5, 0.4])
    (warning,) = planned(tied, 1, score="weight", layer_choice="mlp_bi").warnings
    assert warning.startswith("influence of the MLP: layer 0 was preferred to layer 1 by a relative margin")
    assert warning.endswith("(0.5 and 0.5)")
    wide = make_seen()
    even = replace(wide, weights=replace(wide.weights, column_square_LI=np.ones((12, 96))))
    assert set(map(tuple, kept(planned(even, 6, score="weight").plan).values())) == {tuple(range(40))}
    squares = np.random.default_rng(0).integers(1, 4, size=(12, 96)).astype(float)
    coarse = replace(wide, weights=replace(wide.weights, column_square_LI=squares))
    for layer, features in kept(planned(coarse, 6, score="weight").plan).items():
        assert features == sorted(sorted(range(96), key=lambda j, row=squares[layer]: (-row[j], j))[:40])


def test_a_random_choice_is_fixed_by_its_seed(make_seen):
    seen = make_seen()
    drawn = {seed: tuple(kept(planned(seen, 2, layer_choice="random", seed=seed).plan)) for seed in range(20)}
    for seed, layers in drawn.items():
        order = np.random.default_rng(seed).permutation(12)
        assert layers == tuple(sorted(order[:4].tolist()))
    assert len(set(drawn.values())) > 10
    protected = planned(seen, 2, layer_choice="random", protect=(0, 5)).plan
    assert not {0, 5} & set(kept(protected))
    modules = planned(seen, 1, layer_choice="random", target="mlp", seed=3).plan.dropped
    assert modules == {int(np.random.default_rng(3).permutation(12)[0]): ("mlp",)}


def test_whole_modules_are_dropped_from_the_least_influential_blocks(make_seen):
    seen = hand(make_seen)
    # P = 16 = attention 4 + MLP 12; budget 1 is 1.33 MLPs or four attentions.
    mlp = planned(seen, 1, target="mlp")
    assert mlp.plan.dropped == {1: ("mlp",)}
    assert mlp.chosen == {"K": 1}
    assert mlp.warnings == ("LayerTrim: 1 whole mlp modules are 75.0% of the budget",)
    two = planned(seen, 2, target="mlp")
    assert two.plan.dropped == {1: ("mlp",), 2: ("mlp",), 3: ("mlp",)}
    assert two.warnings == ("LayerTrim: 3 whole mlp modules are 112.5% of the budget",)
    attention = planned(seen, 1, target="attention")
    assert attention.plan.dropped == dict.fromkeys(range(4), ("attention",))
    assert attention.warnings == ()
    assert attention.plan.removed_params(seen.shape) == seen.shape.params_per_layer
    assert planned(seen, 1, target="mlp", layer_choice="mlp_bi").plan.dropped == {0: ("mlp",)}
    assert planned(seen, 1, target="mlp", protect=(1,)).plan.dropped == {2: ("mlp",)}
    assert len(attention.plan.layers) == len(mlp.plan.layers) == 4
    assert not attention.plan.kept_features


def test_it_refuses_statistics_that_overflowed(make_seen):
    seen = make_seen()
    stats = seen.need_calibration()
    square = stats.feature_square_LI.copy()
    square[3, 5] = np.inf
    broken = replace(seen, calibration=replace(stats, feature_square_LI=square))
    with pytest.raises(InputError, match="1 of 1152 feature scores are not finite"):
        planned(broken, 1)
    broken = replace(seen, calibration=replace(stats, cosine_mlp_L=stats.cosine_mlp_L * np.nan))
    with pytest.raises(InputError, match="12 of 12 similarities across MLPs are not finite"):
        planned(broken, 1, layer_choice="mlp_bi")


@pytest.fixture
def recorded_seen(golden, make_seen):
    """The recorded model with, of each trimmed MLP, the 16 kept and 32 removed features nearest to the cut.

    48 features and heads of size 2 keep SmolLM2's proportions: m = 48 / 3 as there 1536 / 3.
    """
    recorded = golden("layertrim.json")
    shape = model(30, 16, 48, 9, 3, 2)

    def filled(name):
        rows = np.ones((30, 48))
        for layer, cut in recorded["cut"].items():
            rows[int(layer)] = cut[name]
        return rows

    template = make_seen(num_layers=30)
    stats = replace(
        template.calibration,
        tokens=4096,
        feature_sum_LI=filled("mean") * 4096,
        feature_square_LI=filled("second_moment") * 4096,
    )
    weights = replace(template.weights, column_square_LI=filled("column_square"))
    seen = Measurements(shape=shape, calibration=stats, weights=weights)
    return with_influence(seen, recorded["BI"], recorded["BI_mlp_only"])


@pytest.mark.parametrize("layers", [3, 7])
def test_it_keeps_the_recorded_layers_and_features(golden, recorded_seen, layers):
    recorded = golden("layertrim.json")
    answer = planned(recorded_seen, layers)
    assert answer.chosen == {"K": 2 * layers, "m": 16}
    assert list(kept(answer.plan)) == recorded["selected"][str(layers)]
    assert kept(answer.plan) == {
        i: recorded["cut"][str(i)]["kept"] for i in recorded["selected"][str(layers)]
    }
    assert answer.warnings == ()
    assert trimmed(SMOLLM2, Budget(layers), LayerTrimParams()) == (2 * layers, recorded["m"])
    realised = 3 * 576 * 2 * layers * (1536 - recorded["m"])
    assert realised == recorded["realised"][str(layers)] == Budget(layers).params(SMOLLM2)


def test_the_recorded_influences_are_ranked_in_the_recorded_order(golden, recorded_seen):
    recorded = golden("layertrim.json")
    for layers in range(1, 15):
        chosen = list(kept(planned(recorded_seen, layers).plan))
        assert chosen == sorted(recorded["order"][: 2 * layers])
        by_mlp = list(kept(planned(recorded_seen, layers, layer_choice="mlp_bi").plan))
        assert by_mlp == sorted(np.argsort(recorded["BI_mlp_only"], kind="stable")[: 2 * layers].tolist())


def brute_force(seen, layers, count):
    """Algorithm 1 over the sums, in lists."""
    shape, stats, weights = seen.shape, seen.calibration, seen.weights
    L, I = shape.num_layers, shape.intermediate_size  # noqa: E741
    influence = [(1 - stats.cosine_BB[i, i + 1] / stats.tokens, i) for i in range(L)]
    chosen = sorted(i for _, i in sorted(influence)[:count])
    attention = 2 * shape.hidden_size * shape.head_dim * (shape.num_heads + shape.num_kv_heads)
    removed = Fraction(layers * (attention + 3 * shape.hidden_size * I), 3 * shape.hidden_size * count)
    m = math.floor(I - removed + Fraction(1, 2))
    keep = {}
    for i in chosen:
        score = [
            (-stats.feature_square_LI[i, j] / stats.tokens * weights.column_square_LI[i, j], j)
            for j in range(I)
        ]
        keep[i] = sorted(j for _, j in sorted(score)[:m])
    return keep


def test_it_is_the_brute_force_over_the_sums(make_seen):
    for seed in range(4):
        seen = make_seen(seed=seed)
        for layers, k, count in [
            (1, "2N", 2),
            (3, "2N", 6),
            (6, "2N", 12),
            (3, "1.5N", 5),
            (4, "3N", 12),
            (2, 7, 7),
        ]:
            assert kept(planned(seen, layers, k=k).plan) == brute_force(seen, layers, count)


@given(
    st.builds(
        model,
        st.integers(2, 60),
        st.integers(1, 99),
        st.integers(1, 300),
        st.integers(1, 9),
        st.integers(1, 4),
        st.integers(1, 16),
    ),
    st.integers(1, 30),
    st.sampled_from(["1.5N", "2N", "3N", 3, 10, 40]),
)
def test_the_removed_parameters_meet_the_budget_up_to_half_a_feature_a_layer(shape, layers, k):
    try:
        count, m = trimmed(shape, Budget(layers), LayerTrimParams(k=k))
    except BudgetError:
        wanted = {"1.5N": math.ceil(1.5 * layers), "2N": 2 * layers, "3N": 3 * layers}.get(k, k)
        left = shape.intermediate_size - layers * shape.params_per_layer / (3 * shape.hidden_size * wanted)
        assert wanted > shape.num_layers or left < 0.5
        return
    assert 0 < m <= shape.intermediate_size
    assert count <= shape.num_layers
    removed = shape.params_per_feature * count * (shape.intermediate_size - m)
    assert -1 <= 2 * (removed - Budget(layers).params(shape)) / (shape.params_per_feature * count) < 1 + 1e-9


@given(st.integers(1, 5), st.sampled_from(["mlp", "attention"]), st.integers(1, 12), st.integers(1, 12))
def test_no_other_number_of_modules_is_nearer_to_the_budget(layers, target, heads, features):
    shape = model(200, 4, features, heads, heads, 3)
    params = LayerTrimParams(target=target)
    each = shape.attention_params if target == "attention" else shape.mlp_params
    try:
        count = dropped(shape, Budget(layers), params)
    except BudgetError:
        assert layers * shape.params_per_layer / each > 200
        return
    goal = layers * shape.params_per_layer
    assert abs(count * each - goal) <= min(abs((count - 1) * each - goal), abs((count + 1) * each - goal))
    assert count >= layers


def test_it_reaches_inside_blocks_and_keeps_every_block(make_seen):
    assert LayerTrim.width
    seen = make_seen()
    plan = planned(seen, 3).plan
    assert [spec.base for spec in plan.layers] == list(range(12))
    assert not plan.merged
    assert not plan.dropped
    assert PruningPlan.from_json(plan.canonical) == plan
