"""What holds for every method of the menu: a new method is tested by being in it."""

import json
import pickle
from dataclasses import asdict, fields, is_dataclass, replace
from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter

from prunebench.core.budget import Budget
from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.errors import BudgetError, InputError, UnreachableError
from prunebench.methods import METHODS, method_named
from prunebench.methods.base import AnyMethod, Measurements, Params, Planned, Requirement


@pytest.fixture(params=METHODS.values(), ids=list(METHODS))
def method(request) -> AnyMethod:
    return request.param


def planned(method: AnyMethod, seen: Measurements, layers: int, params: Params | None = None) -> Planned:
    """The method's plan; a test whose random model makes the budget unreachable has nothing to say."""
    try:
        return method.plan(seen, Budget(layers), params or method.params())
    except UnreachableError as hole:
        pytest.skip(str(hole))


def test_the_menu_lists_methods_under_their_own_names():
    assert all(name == method.name for name, method in METHODS.items())
    assert len({method.title for method in METHODS.values()}) == len(METHODS)


def test_it_is_looked_up_by_name():
    assert method_named("lorp") is METHODS["lorp"]
    with pytest.raises(InputError, match=r"there is no method 'lorpp': did you mean 'lorp'\?"):
        method_named("lorpp")
    with pytest.raises(
        InputError, match=r"no method 'qqqqq': choose one of .*shortgpt, llm_streamline, lorp"
    ):
        method_named("qqqqq")


def test_it_states_what_it_requires_and_is_documented(method):
    assert method.requires <= set(get_args(Requirement))
    assert method.title
    assert type(method).__doc__
    assert method.params.__doc__


def test_its_parameters_are_a_frozen_dataclass_whose_defaults_survive_json(method):
    defaults = method.params()
    assert is_dataclass(defaults)
    assert defaults.__dataclass_params__.frozen
    assert {"protect"} <= {f.name for f in fields(defaults)}
    text = json.dumps(asdict(defaults))
    assert TypeAdapter(method.params).validate_python(json.loads(text)) == defaults


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_removes_the_budget(method, make_seen, layers, seed):
    seen = make_seen(seed=seed)
    plan = planned(method, seen, layers).plan
    assert plan.num_layers == seen.shape.num_layers
    allowed = 0.5 * seen.shape.params_per_feature * len(plan.kept_features)
    assert abs(plan.removed_params(seen.shape) - Budget(layers).params(seen.shape)) <= allowed
    if not method.width:
        assert len(plan.removed_layers) == layers
        assert not plan.kept_features


@pytest.mark.parametrize("layers", [1, 4])
def test_equal_inputs_give_equal_plans_and_stay_as_they_were(method, make_seen, layers):
    seen, again = make_seen(seed=3), make_seen(seed=3)
    first = planned(method, seen, layers)
    assert planned(method, seen, layers) == first
    assert planned(type(method)(), again, layers).plan.plan_id == first.plan.plan_id
    assert seen.calibration.to_bytes() == again.calibration.to_bytes()
    assert seen.weights.to_bytes() == again.weights.to_bytes()


def test_it_needs_no_more_than_it_requires(method, seen):
    allowed = {
        "calibration": "calibration" in method.requires,
        "weights": "weights" in method.requires,
        "probe": "probe" in method.requires,
    }
    only = replace(seen, **{name: None for name, given in allowed.items() if not given})
    if only.weights is not None and "cka" not in method.requires:
        nothing = np.zeros((0, 0))
        only = replace(only, weights=replace(only.weights, cka_o_LL=nothing, cka_down_LL=nothing))
    assert planned(method, only, 3).plan == planned(method, seen, 3).plan


def test_it_says_so_when_nothing_was_measured(method, seen):
    if not method.requires:
        pytest.skip("it requires nothing")
    with pytest.raises(InputError, match=r"this method needs .* not measured"):
        method.plan(Measurements(shape=seen.shape), Budget(3), method.params())


def test_it_travels_between_processes(method, seen):
    params, answer = method.params(), planned(method, seen, 3)
    assert pickle.loads(pickle.dumps(params)) == params
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert type(pickle.loads(pickle.dumps(method))) is type(method)


def test_its_answer_survives_json(method, seen):
    answer = planned(method, seen, 3)
    assert PruningPlan.from_json(answer.plan.canonical) == answer.plan
    assert json.loads(canonical_json(answer.chosen)) is not None
    assert all(isinstance(warning, str) for warning in answer.warnings)


@pytest.mark.parametrize("layers", [12, 13, 400])
def test_it_refuses_to_remove_everything(method, seen, layers):
    with pytest.raises(InputError):
        method.check(seen.shape, Budget(layers), method.params())
    with pytest.raises(InputError):
        method.plan(seen, Budget(layers), method.params())


def test_it_refuses_a_budget_that_protected_layers_rule_out(method, seen):
    params = replace(method.params(), protect=tuple(range(2, 12)))
    with pytest.raises(BudgetError, match=r"cannot remove 3 of 12 layers: at most 2 \(layers \[2, 3"):
        method.plan(seen, Budget(3), params)


@pytest.mark.parametrize("layers", [1, 3])
def test_it_leaves_protected_layers_alone(method, make_seen, layers):
    for seed in range(4):
        params = replace(method.params(), protect=(0, 5, -1))
        plan = planned(method, make_seen(seed=seed), layers, params).plan
        kept = {spec.base: spec for spec in plan.layers}
        assert {i: kept.get(i) for i in (0, 5, 11)} == {i: LayerSpec(base=i) for i in (0, 5, 11)}
        assert not any(i in (0, 5, 11) for blend in plan.merged.values() for i, _ in blend)


def test_it_refuses_to_protect_a_layer_that_does_not_exist(method, seen):
    with pytest.raises(InputError, match="protect names layer 12, but the model has layers 0 to 11"):
        method.plan(seen, Budget(3), replace(method.params(), protect=(12,)))
