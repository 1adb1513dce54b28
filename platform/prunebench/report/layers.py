"""What a plan does to each dense layer, in words, and which plans are nearly the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.report.board import BudgetTable

State: TypeAlias = Literal["kept", "removed", "absorbed", "merged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One dense layer under a plan."""

    number: int
    state: State
    told: str
    """What happened to it, in words."""
    kept_share: float | None = None
    """Share of the MLP features that is kept, where some are trimmed."""
    dropped: tuple[str, ...] = ()
    """Sublayers that are gone: attention, mlp."""


def layers_of(plan: PruningPlan, num_features: int | None) -> list[Layer]:
    """Every dense layer in order; `num_features` is the dense MLP width, where it is known."""
    specs = {spec.base: spec for spec in plan.layers}
    homes: dict[int, list[int]] = {}
    for spec in plan.layers:
        for layer, _ in spec.blend:
            homes.setdefault(layer, []).append(spec.base)
    return [
        _gone(number, homes.get(number, [])) if number not in specs else _kept(specs[number], num_features)
        for number in range(plan.num_layers)
    ]


def _gone(number: int, homes: Sequence[int]) -> Layer:
    if homes:
        into = ", ".join(map(str, homes))
        return Layer(number=number, state="absorbed", told=f"layer {number}: merged into layer {into}")
    return Layer(number=number, state="removed", told=f"layer {number}: removed")


def _kept(spec: LayerSpec, num_features: int | None) -> Layer:
    told, share = [], None
    if spec.blend:
        told.append("weights " + " ".join(f"{coefficient:+g}·L{layer}" for layer, coefficient in spec.blend))
    if spec.features is not None:
        width = num_features or 8 * len(spec.features.packed)
        share = spec.features.count / width
        told.append(f"{spec.features.count} of {width} MLP features kept")
    told += [f"{name} removed" for name in spec.drop]
    return Layer(
        number=spec.base,
        state="merged" if spec.blend else "kept",
        told=f"layer {spec.base}: {', '.join(told) or 'kept'}",
        kept_share=share,
        dropped=spec.drop,
    )


def told_of(plan: PruningPlan, num_features: int | None) -> str:
    """A plan in a sentence: what is removed, merged, trimmed and dropped."""
    layers = layers_of(plan, num_features)
    parts = []
    if removed := [layer.number for layer in layers if layer.state == "removed"]:
        parts.append(f"removes {ranges_of(removed)}")
    for spec in plan.layers:
        if len(spec.blend) > 1 or (spec.blend and spec.blend[0][0] != spec.base):
            parts.append(f"makes {spec.base} of {ranges_of([layer for layer, _ in spec.blend])}")
    trimmed: dict[int, list[int]] = {}
    for spec in plan.layers:
        if spec.features is not None:
            trimmed.setdefault(spec.features.count, []).append(spec.base)
    parts += [f"keeps {count} MLP features of {ranges_of(own)}" for count, own in trimmed.items()]
    for name in ("attention", "mlp"):
        if gone := [layer.number for layer in layers if name in layer.dropped]:
            parts.append(f"drops the {name} of {ranges_of(gone)}")
    return "; ".join(parts) or "removes nothing"


def ranges_of(numbers: Sequence[int]) -> str:
    """Numbers with their runs drawn together, such as `3, 5–8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def twins(table: BudgetTable) -> list[list[str]]:
    """Groups of two or more rows of a table that chose the same plan."""
    groups: dict[str, list[str]] = {}
    for row in table.rows:
        if row.variant["plan_id"] is not None:
            groups.setdefault(row.variant["plan_id"], []).append(row.label.name)
    return [names for names in groups.values() if len(names) > 1]


def near_twins(table: BudgetTable, plans: Mapping[str, PruningPlan]) -> list[str]:
    """Pairs of distinct plans that differ in one or two layers and change at least as many alike."""
    names: dict[str, str] = {}
    for row in table.rows:
        if row.variant["plan_id"] is not None and not row.label.dense:
            names.setdefault(row.variant["plan_id"], row.label.name)
    found = []
    changes = {plan_id: _changes(plans[plan_id]) for plan_id in names}
    for (one, name), (other, other_name) in combinations(names.items(), 2):
        left, right = changes[one], changes[other]
        unlike = sorted(n for n in left.keys() | right.keys() if left.get(n, "") != right.get(n, ""))
        alike = len(left.keys() | right.keys()) - len(unlike)
        if len(unlike) <= 2 and alike >= len(unlike):
            found.append(f"{name} and {other_name} differ in {_layers(unlike)}")
    return found


def _changes(plan: PruningPlan) -> dict[int, LayerSpec | None]:
    """The layers that are not as in the dense model: what they are instead, None for removed."""
    specs: dict[int, LayerSpec | None] = dict.fromkeys(range(plan.num_layers))
    specs.update({spec.base: spec for spec in plan.layers})
    return {number: spec for number, spec in specs.items() if spec != LayerSpec(base=number)}


def _layers(numbers: Sequence[int]) -> str:
    return ("layer " if len(numbers) == 1 else "layers ") + " and ".join(map(str, numbers))
