"""Views against pruned models that this file builds by itself, from configs and state dicts."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.errors import InputError, UnsupportedError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.view import ModelView

L, I = 6, 44  # noqa: E741
IDS = torch.tensor([[(31 * i + 5) % 259 for i in range(24)]])


def plan(*specs: LayerSpec) -> PruningPlan:
    return PruningPlan(num_layers=L, layers=specs)


def kept(base: int, *blend: tuple[int, float], features=None, drop=()) -> LayerSpec:
    mask = None if features is None else Mask.keep(features, I)
    return LayerSpec(base=base, blend=blend, features=mask, drop=drop)


PLANS = {
    "two layers": PruningPlan.without([1, 4], L),
    "first and last": PruningPlan.without([0, 5], L),
    "one block left": plan(kept(2)),
    "laco released": plan(kept(0), kept(1, (3, 1.0)), kept(4), kept(5)),
    "laco paper": plan(kept(0), kept(1, (1, -1.0), (2, 1.0), (3, 1.0)), kept(4), kept(5)),
    "mixture": plan(kept(0, (0, 0.3), (1, 0.7)), kept(2, (5, -0.25), (2, 1.1)), kept(4)),
    "features": plan(kept(0), kept(1, features=range(0, I, 3)), kept(3, features=[]), kept(5, features=[43])),
    "no attention": plan(kept(0), kept(1, drop=("attention",)), kept(2), kept(5, drop=("attention",))),
    "no mlp": plan(kept(0, drop=("mlp",)), kept(2), kept(3), kept(4, drop=("attention", "mlp"))),
    "all at once": plan(
        kept(0),
        kept(1, (1, 0.5), (2, 0.5), features=range(20)),
        kept(3, (4, 2.0), drop=("attention",)),
        kept(5),
    ),
    "repeated and reordered": plan(kept(0), kept(3), kept(3), kept(1, (2, 0.5)), kept(1, (2, 0.5)), kept(0)),
}


def matrices(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith("proj.weight")]


def build_pruned(dense: Any, pruning: PruningPlan) -> Any:
    """The pruned model from scratch: a new config, a new module, a copied and edited state dict."""
    settings = copy.deepcopy(dense.config.to_dict())
    settings["num_hidden_layers"] = len(pruning.layers)
    if "layer_types" in settings and settings["layer_types"] is not None:
        settings["layer_types"] = [settings["layer_types"][spec.base] for spec in pruning.layers]
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    state = dense.state_dict()
    pruned = {name: tensor for name, tensor in state.items() if not name.startswith("model.layers.")}
    for position, spec in enumerate(pruning.layers):
        prefix = f"model.layers.{spec.base}."
        block = {name.removeprefix(prefix): t.numpy() for name, t in state.items() if name.startswith(prefix)}
        for name in matrices(list(block)) if spec.blend else ():
            terms = [np.float32(c) * state[f"model.layers.{j}.{name}"].numpy() for j, c in sorted(spec.blend)]
            block[name] = sum(terms[1:], start=terms[0])
        if spec.features is not None:
            mask = np.isin(np.arange(I), spec.features.indices)
            block["mlp.down_proj.weight"] = np.where(mask, block["mlp.down_proj.weight"], np.float32(0))
        for sublayer in spec.drop:
            output = {"attention": "self_attn.o_proj", "mlp": "mlp.down_proj"}[sublayer]
            block |= {name: 0 * tensor for name, tensor in block.items() if name.startswith(output)}
        pruned |= {f"model.layers.{position}.{name}": torch.tensor(tensor) for name, tensor in block.items()}
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    model.load_state_dict(pruned, strict=True)
    return model.eval()


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(input_ids=IDS, use_cache=False).logits


def generated(model) -> list[int]:
    return model.generate(
        IDS,
        attention_mask=torch.ones_like(IDS),
        max_new_tokens=9,
        min_new_tokens=9,
        do_sample=False,
        use_cache=True,
    )[0].tolist()


def snapshot(model) -> dict:
    """Everything of a model that a view could leave behind: parameters, modules, indices, config."""
    return {
        "parameters": {name: (id(p), p.detach().clone()) for name, p in model.named_parameters()},
        "modules": [(name, id(module)) for name, module in model.named_modules()],
        "indices": [vars(module)["layer_idx"] for module in model.modules() if "layer_idx" in vars(module)],
        "config": copy.deepcopy(model.config.to_dict()),
        "logits": logits(model),
    }


def assert_restored(model, before: dict) -> None:
    after = snapshot(model)
    for key in ("modules", "indices", "config"):
        assert after[key] == before[key]
    assert after["parameters"].keys() == before["parameters"].keys()
    for name, (identity, values) in before["parameters"].items():
        assert after["parameters"][name][0] == identity
        assert torch.equal(after["parameters"][name][1], values)
    assert torch.equal(after["logits"], before["logits"])


@pytest.mark.parametrize("pruning", PLANS.values(), ids=PLANS)
def test_a_view_is_the_pruned_model_bit_for_bit_and_leaves_no_trace(family_dense, pruning):
    dense = family_dense.model
    before = snapshot(dense)
    independent = build_pruned(dense, pruning)
    with ModelView(family_dense).applied(pruning) as model:
        assert model is dense
        assert model.config.num_hidden_layers == len(model.model.layers) == len(pruning.layers)
        seen, tokens = logits(model), generated(model)
    assert torch.equal(seen, logits(independent))
    assert tokens == generated(independent)
    assert not torch.equal(seen, before["logits"])
    assert_restored(dense, before)


def test_the_dense_plan_is_the_dense_model(family_dense):
    before = snapshot(family_dense.model)
    view = ModelView(family_dense)
    with view.applied(PruningPlan.dense(L)) as model:
        assert torch.equal(logits(model), before["logits"])
    assert view.copied_bytes(PruningPlan.dense(L)) == 0
    assert_restored(family_dense.model, before)


def test_an_exception_inside_restores_the_dense_model(family_dense):
    before = snapshot(family_dense.model)
    with pytest.raises(KeyError, match="boom"), ModelView(family_dense).applied(PLANS["all at once"]):
        raise KeyError("boom")
    assert_restored(family_dense.model, before)


def test_narrow_mlps_compute_what_zeroed_columns_do(family_dense):
    """Equal up to rounding: the narrow product sums the same terms in another order."""
    features = range(0, I, 3)
    with ModelView(family_dense).applied(plan(kept(0), kept(1, features=features), kept(5))) as model:
        padded = logits(model)
    narrow = build_pruned(family_dense.model, PruningPlan.without([2, 3, 4], L))
    mlp, keep = narrow.model.layers[1].mlp, torch.tensor(features)
    family = family_dense.checkpoint.family
    with torch.no_grad():
        mlp.down_proj.weight = torch.nn.Parameter(mlp.down_proj.weight[:, keep])
        if family.projection("gate").is_fused:
            mlp.gate_up_proj.weight = torch.nn.Parameter(mlp.gate_up_proj.weight[torch.cat([keep, keep + I])])
        else:
            for linear in (mlp.gate_proj, mlp.up_proj):
                linear.weight = torch.nn.Parameter(linear.weight[keep])
                linear.bias = None if linear.bias is None else torch.nn.Parameter(linear.bias[keep])
    torch.testing.assert_close(logits(narrow), padded, rtol=1e-4, atol=1e-4)


def test_a_dropped_sublayer_adds_nothing_to_the_residual_stream(family_dense):
    dropped = plan(*(kept(i, drop=("attention", "mlp")) for i in range(L)))
    body = family_dense.model.model
    with ModelView(family_dense).applied(dropped) as model, torch.no_grad():
        states = []
        handle = body.layers[0].register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
        seen = logits(model)
        handle.remove()
        expected = model.lm_head(body.norm(states[0]))
        if cap := vars(model.config).get("final_logit_softcapping"):
            expected = torch.tanh(expected / cap) * cap
    assert torch.equal(seen, expected)


def test_views_copy_only_what_they_change(load_tiny):
    dense = load_tiny("llama_biased")
    view, shape = ModelView(dense), dense.checkpoint.shape
    assert view.copied_bytes(PLANS["two layers"]) == 0
    assert view.copied_bytes(PLANS["laco released"]) == 0
    assert view.copied_bytes(PLANS["repeated and reordered"]) == 2 * 4 * shape.params_per_layer
    assert view.copied_bytes(PLANS["laco paper"]) == 4 * shape.params_per_layer
    assert view.copied_bytes(PLANS["features"]) == 3 * 4 * 32 * I
    assert view.copied_bytes(plan(kept(0, drop=("attention",)))) == 4 * (32 * 32 + 32)
    assert view.copied_bytes(plan(kept(0, (1, 1.0), features=[1]))) == 4 * 32 * I
    own = {id(parameter) for parameter in dense.model.parameters()}
    with view.applied(PLANS["features"]) as model:
        new = [parameter for parameter in model.parameters() if id(parameter) not in own]
    assert sum(parameter.nbytes for parameter in new) == view.copied_bytes(PLANS["features"])


def test_a_released_merge_takes_matrices_of_one_layer_and_norms_of_another(load_tiny):
    dense = load_tiny("qwen3")
    layers = dense.model.model.layers
    block = ModelView(dense).block(kept(1, (3, 1.0)))
    for name in ("mlp.up_proj.weight", "self_attn.q_proj.weight"):
        assert block.get_parameter(name) is layers[3].get_parameter(name)
    for name in ("self_attn.q_norm.weight", "input_layernorm.weight"):
        assert block.get_parameter(name) is layers[1].get_parameter(name)
    assert ModelView(dense).block(kept(1)) is layers[1]


def test_blends_in_bfloat16_are_summed_in_float32_and_rounded_once(tiny):
    dense = load_model(Checkpoint.open(tiny("llama")), dtype="bfloat16")
    block = ModelView(dense).block(kept(0, (0, 0.3), (1, 0.3), (2, 0.4)))
    parts = [dense.model.model.layers[i].mlp.up_proj.weight.float() for i in range(3)]
    expected = (parts[0] * 0.3 + parts[1] * 0.3 + parts[2] * 0.4).bfloat16()
    assert torch.equal(block.get_parameter("mlp.up_proj.weight"), expected)


def test_two_plans_at_once_are_refused(load_tiny):
    dense = load_tiny("llama")
    view, other = ModelView(dense), ModelView(dense)
    before = snapshot(dense.model)
    with view.applied(PLANS["two layers"]):
        for second in (view, other):
            with (
                pytest.raises(RuntimeError, match="another plan is applied"),
                second.applied(PLANS["features"]),
            ):
                pass
    assert_restored(dense.model, before)


@pytest.mark.parametrize(
    ("pruning", "sentence"),
    [
        (PruningPlan.without([1], 7), "for 7 layers, but the model has 6"),
        (
            PruningPlan(num_layers=L, layers=(LayerSpec(base=2, features=Mask.keep([1], 64)),)),
            "of layer 2 does not fit",
        ),
        (PruningPlan(num_layers=L, layers=(LayerSpec(base=2, features=Mask.keep([47], 48)),)), "size of 44"),
    ],
)
def test_plans_for_other_models_are_refused(load_tiny, pruning, sentence):
    with pytest.raises(InputError, match=sentence), ModelView(load_tiny("llama")).applied(pruning):
        pass


coefficients = st.sampled_from([-1.0, 0.5, 1.0, 2.0])
specs = st.builds(
    LayerSpec,
    base=st.integers(0, L - 1),
    blend=st.dictionaries(st.integers(0, L - 1), coefficients, max_size=3).map(
        lambda terms: tuple(terms.items())
    ),
    features=st.none() | st.sets(st.integers(0, I - 1)).map(lambda indices: Mask.keep(indices, I)),
    drop=st.sampled_from([(), ("attention",), ("mlp",), ("attention", "mlp")]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layers=st.lists(specs, min_size=1, max_size=8))
def test_any_plan_is_applied_and_taken_back_without_a_trace(load_tiny, layers):
    dense = load_tiny("llama")
    before = snapshot(dense.model)
    view, pruning = ModelView(dense), plan(*layers)
    own = {id(parameter) for parameter in dense.model.parameters()}
    with view.applied(pruning) as model:
        assert [module.layer_idx for module in model.modules() if "layer_idx" in vars(module)] == [
            *range(len(layers))
        ]
        new = {
            id(parameter): parameter.nbytes for parameter in model.parameters() if id(parameter) not in own
        }
        assert sum(new.values()) == view.copied_bytes(pruning)
        seen = logits(model)
    assert torch.equal(seen, logits(build_pruned(dense.model, pruning)))
    assert_restored(dense.model, before)


def test_blocks_whose_forward_pass_is_a_librarys_are_not_cloned(load_tiny):
    """A clone would run the old block's parameters; whole blocks are only re-linked and stay right."""
    dense = load_tiny("llama")
    block = dense.model.model.layers[1].mlp
    vars(block)["forward"] = block.forward
    try:
        with ModelView(dense).applied(PLANS["two layers"]):
            pass
        with pytest.raises(UnsupportedError, match="need blocks as they were made"):
            ModelView(dense).block(kept(1, (2, 0.5)))
    finally:
        del vars(block)["forward"]
