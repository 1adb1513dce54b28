"""LayerTrim: keep every block and its attention, and trim the MLPs of the least influential blocks.

Algorithm 1 and the variants of Table 2. Its rows of whole-module removal ("removal deletes modules selected
by low Block Influence") are read as: rank blocks as the trimming does, and drop the attention or the MLP of
as many of the lowest as come nearest to the budget, which gives Appendix C's 24 attentions or 6 MLPs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from prunebench.core.budget import Budget
from prunebench.core.plan import LayerSpec, Mask, PruningPlan, Sublayer
from prunebench.core.shape import ModelShape
from prunebench.core.stats import Array
from prunebench.errors import BudgetError, InputError
from prunebench.methods.base import Measurements, Method, Params, Planned, Requirement
from prunebench.methods.depth import Selection, finite, lowest, span_similarity
from prunebench.methods.space import Choices, Distribution, Ints, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTrimParams(Params):
    """Parameters of LayerTrim; no layer is protected by default, as in the paper."""

    score: Literal["energy", "weight", "variance", "energy_weight"] = "energy_weight"
    """With w the column of down_proj: E[phi^2], ||w||^2, Var(phi)·||w||^2 or (eq. 1) E[phi^2]·||w||^2."""
    layer_choice: Literal["block_bi", "mlp_bi", "random", "all"] = "block_bi"
    """Lowest 1 - E[cos] across the block (eq. 2) or across its MLP alone, one random draw, or every layer."""
    k: int | Literal["1.5N", "2N", "3N"] = "2N"
    """K, how many MLPs are trimmed; 1.5N rounds up. Only for `target="features"`, and not with `all`."""
    target: Literal["features", "mlp", "attention"] = "features"
    """Trim features of MLPs, or drop whole MLPs or whole attentions."""
    seed: int = 0
    """Seed of the random draw, at least 0."""

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing together."""
        if not isinstance(self.k, str) and self.k < 1:
            raise InputError(f"k {self.k}: at least one MLP has to be trimmed")
        if self.seed < 0:
            raise InputError(f"seed {self.seed}: has to be at least 0")
        if self.target != "features" and self.layer_choice == "all":
            raise InputError(
                f"layer_choice all would drop every {self.target}: choose block_bi, mlp_bi or random"
            )
        if self.k != "2N" and (self.target != "features" or self.layer_choice == "all"):
            raise InputError("k is given by the budget where whole modules are dropped or all layers trimmed")


def trimmed(shape: ModelShape, budget: Budget, params: LayerTrimParams) -> tuple[int, int]:
    """K, how many MLPs are trimmed, and m, how many features each keeps: m = round(I - N·P_layer / (3·C·K)).

    Halves round up.

    Raises:
        BudgetError: more MLPs than may be changed, or no feature left.
    """
    layers, free = budget.layers, len(params.prunable(shape.num_layers))
    if params.layer_choice == "all":
        count = free
    elif isinstance(params.k, int):
        count = params.k
    else:
        count = {"1.5N": (3 * layers + 1) // 2, "2N": 2 * layers, "3N": 3 * layers}[params.k]
    if count > free:
        raise BudgetError(
            f"LayerTrim at budget {layers} trims {count} MLPs, but only {free} of {shape.num_layers} layers "
            "may be changed: give a smaller budget or k"
        )
    removed = Fraction(budget.params(shape), shape.params_per_feature * count)
    kept = math.floor(shape.intermediate_size - removed + Fraction(1, 2))
    if kept <= 0:
        raise BudgetError(
            f"LayerTrim at budget {layers} would leave m = {kept} of {shape.intermediate_size} features in "
            f"{count} MLPs: give a smaller budget or a larger k"
        )
    return count, kept


def fewest_trimmed(shape: ModelShape, budget: Budget) -> int:
    """The smallest K at which m = round-half-up(I - N·P_layer / (3·C·K)) is at least 1."""
    most_removed = Fraction(2 * shape.intermediate_size - 1, 2)
    return math.ceil(Fraction(budget.params(shape), shape.params_per_feature) / most_removed)


def dropped(shape: ModelShape, budget: Budget, params: LayerTrimParams) -> int:
    """How many whole attentions or MLPs come nearest to N·P_layer parameters (halves up).

    Raises:
        BudgetError: more than may be changed.
    """
    each = shape.attention_params if params.target == "attention" else shape.mlp_params
    count = math.floor(Fraction(budget.params(shape), each) + Fraction(1, 2))
    free = len(params.prunable(shape.num_layers))
    if count > free:
        raise BudgetError(
            f"LayerTrim at budget {budget.layers} drops {count} whole {params.target} modules, but only "
            f"{free} of {shape.num_layers} layers may be changed: give a smaller budget"
        )
    return count


class LayerTrim(Method[LayerTrimParams]):
    """Keep the m most important MLP features in each of the K least influential blocks, and all else."""

    name: ClassVar[str] = "layertrim"
    title: ClassVar[str] = "LayerTrim (Lim et al., 2026)"
    params: ClassVar[type[Params]] = LayerTrimParams
    requires: ClassVar[frozenset[Requirement]] = frozenset({"calibration", "weights"})
    rule: ClassVar[str] = "K = 2N and m by the budget"
    width: ClassVar[bool] = True

    def needs(self, params: LayerTrimParams) -> frozenset[Requirement]:
        """Calibration for influence or activations, weights for the norms of features."""
        features = params.target == "features"
        needed: set[Requirement] = set()
        if params.layer_choice in ("block_bi", "mlp_bi") or (features and params.score != "weight"):
            needed.add("calibration")
        if features and params.score != "energy":
            needed.add("weights")
        return frozenset(needed)

    def space(
        self, shape: ModelShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> Mapping[str, Distribution]:
        """K from the smallest that leaves a feature to min(L, 4N), score of features, choice of layers.

        Whole modules have no K and no features, and where every layer is trimmed K is given.
        """
        fewest = fewest_trimmed(shape, budget)
        space: dict[str, Distribution] = {
            "k": Ints(fewest, max(fewest, min(shape.num_layers, 4 * budget.layers))),
            "score": Choices(("energy_weight", "energy", "weight", "variance")),
            "layer_choice": Choices(("block_bi", "mlp_bi")),
        }
        if fixed.get("target", "features") != "features":
            return {"layer_choice": space["layer_choice"]}
        if fixed.get("layer_choice") == "all":
            return {"score": space["score"]}
        return space

    def start(self, shape: ModelShape, budget: Budget) -> Mapping[str, Scalar]:
        """K = 2N, the paper's score and its choice of layers."""
        return {"k": 2 * budget.layers, "score": "energy_weight", "layer_choice": "block_bi"}

    def check(self, shape: ModelShape, budget: Budget, params: LayerTrimParams) -> None:
        """Refuse budgets that trim more MLPs than there are, or leave an MLP without features."""
        super().check(shape, budget, params)
        if params.target == "features":
            trimmed(shape, budget, params)
        else:
            dropped(shape, budget, params)

    def plan(self, seen: Measurements, budget: Budget, params: LayerTrimParams) -> Planned:
        """Trim features, or drop whole modules, of the chosen layers."""
        self.check(seen.shape, budget, params)
        if params.target != "features":
            return _drop(seen, budget, params, params.target)
        shape = seen.shape
        count, kept = trimmed(shape, budget, params)
        layers, warnings = choose_layers(seen, params, count)
        score_LI = finite(feature_scores(seen, params), "feature scores")
        best_LI = np.argsort(-score_LI, kind="stable")[:, :kept]
        specs = [LayerSpec(base=layer) for layer in range(shape.num_layers)]
        for layer in layers:
            specs[layer] = LayerSpec(base=layer, features=Mask.keep(best_LI[layer], shape.intermediate_size))
        plan = PruningPlan(num_layers=shape.num_layers, layers=tuple(specs))
        return Planned(plan=plan, chosen={"K": count, "m": kept}, warnings=warnings)


def choose_layers(seen: Measurements, params: LayerTrimParams, count: int) -> Selection:
    """The `count` layers to change, by `layer_choice`; ties go to the lower layer."""
    candidates = params.prunable(seen.shape.num_layers)
    if params.layer_choice == "all":
        return Selection(tuple(candidates), ())
    if params.layer_choice == "random":
        order = np.random.default_rng(params.seed).permutation(candidates)
        return Selection(tuple(order[:count].tolist()), ())
    stats = seen.need_calibration()
    if params.layer_choice == "block_bi":
        return lowest(1 - span_similarity(stats, 1, "prenorm"), candidates, count, "Block Influence")
    similarity_L = finite(stats.cosine_mlp_L / stats.tokens, "similarities across MLPs")
    return lowest(1 - similarity_L, candidates, count, "influence of the MLP")


def feature_scores(seen: Measurements, params: LayerTrimParams) -> Array:
    """The importance of every MLP feature, of shape (L, I)."""
    if params.score == "weight":
        return seen.need_weights().column_square_LI
    stats = seen.need_calibration()
    energy_LI = stats.feature_square_LI / stats.tokens
    if params.score == "energy":
        return energy_LI
    if params.score == "variance":
        energy_LI = energy_LI - (stats.feature_sum_LI / stats.tokens) ** 2
    return energy_LI * seen.need_weights().column_square_LI


def _drop(seen: Measurements, budget: Budget, params: LayerTrimParams, module: Sublayer) -> Planned:
    shape = seen.shape
    count = dropped(shape, budget, params)
    layers, warnings = choose_layers(seen, params, count)
    drop = dict.fromkeys(layers, (module,))
    specs = (LayerSpec(base=layer, drop=drop.get(layer, ())) for layer in range(shape.num_layers))
    plan = PruningPlan(num_layers=shape.num_layers, layers=tuple(specs))
    share = plan.removed_params(shape) / budget.params(shape)
    if share != 1:
        warnings = (*warnings, f"LayerTrim: {count} whole {module} modules are {share:.1%} of the budget")
    return Planned(plan=plan, chosen={"K": count}, warnings=warnings)
