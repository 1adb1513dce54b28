"""Rows by name: a plan id, a variant key or method@budget, with the model in front where that is needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from prunebench.errors import InputError
from prunebench.report.board import Record
from prunebench.report.labels import Contender, Label, labels_of

NEAREST = 3
CANDIDATES = 20
"""Rows that an ambiguous name lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRow:
    """One evaluated row of a store."""

    variant: Record
    label: Label
    others: tuple[str, ...]
    """Names of other rows of the same model that have the same plan."""

    @property
    def name(self) -> str:
        """`method@budget`."""
        return _name(self.variant)

    @property
    def title(self) -> str:
        """The label and the budget."""
        layers = f"{self.variant['budget_layers']} of {self.variant['num_layers']} layers"
        return self.label.name if self.label.dense else f"{self.label.name}, {layers}"


def find_row(variants: Sequence[Record], wanted: str) -> NamedRow:
    """The row that `wanted` names: the first of those that are one plan of one model under one arithmetic.

    Args:
        variants: every variant of the store, in its order.
        wanted: plan id, variant key, `method@budget` (budget as asked or in layers) or the name of a method
            with one row; each may follow `MODEL:`.

    Raises:
        InputError: no such row, with the nearest names; several, with each one's key; or a row without a
            plan, with the reason.
    """
    found = [variant for variant in variants if wanted in _names(variant)]
    if not found:
        raise InputError(f"no row of the store is named {wanted!r}{_nearest(variants, wanted)}")
    if len({_evaluated(variant) for variant in found}) > 1:
        candidates = "; ".join(_candidates(found, variants))
        raise InputError(f"{wanted!r} names {len(found)} rows; give one by its key: {candidates}")
    first = found[0]
    if first["status"] != "ok":
        why = f": {first['error']}" if first["error"] else ""
        raise InputError(f"the row {wanted!r} is a hole, with no plan to compare: {first['status']}{why}")
    twins = [one for one in variants if one is not first and _evaluated(one) == _evaluated(first)]
    return NamedRow(
        variant=first,
        label=_labels(variants, first)[Contender.of(first)],
        others=tuple(dict.fromkeys(_name(twin) for twin in twins)),
    )


def _name(variant: Record) -> str:
    return f"{variant['method']}@{variant['budget_layers']}"


def _names(variant: Record) -> set[str]:
    """Every name that a variant answers to."""
    names = {variant["variant_key"], variant["method"], _name(variant)}
    names.add(f"{variant['method']}@{variant['budget']}")
    if variant["plan_id"] is not None:
        names.add(variant["plan_id"])
    return names | {f"{variant['model']}:{name}" for name in names}


def _evaluated(variant: Record) -> tuple[str, ...]:
    """What decides a row's numbers; a hole is like no other row."""
    arithmetic = (variant["model"], variant["weights_id"], variant["dtype"], variant["attention"])
    return (*arithmetic, variant["plan_id"] or variant["variant_key"])


def _nearest(variants: Sequence[Record], wanted: str) -> str:
    names = sorted({name for variant in variants for name in _names(variant) if ":" not in name})
    if any(wanted.startswith(f"{variant['model']}:") for variant in variants):
        names = sorted({f"{variant['model']}:{_name(variant)}" for variant in variants})
    near = get_close_matches(wanted, names, n=NEAREST, cutoff=0.5)
    if near:
        return f": did you mean {' or '.join(near)}?"
    known = sorted({_name(variant) for variant in variants})
    return f"; it has {_cut(known, ', ')}"


def _candidates(found: Sequence[Record], variants: Sequence[Record]) -> Iterator[str]:
    for number, variant in enumerate(found):
        if number == CANDIDATES:
            yield f"and {len(found) - CANDIDATES} more"
            return
        label = _labels(variants, variant)[Contender.of(variant)]
        state = "" if variant["status"] == "ok" else f", {variant['status']}"
        name = f"{variant['model']}:{_name(variant)} {label.name}"
        yield f"{variant['variant_key']} is {name}, {variant['dtype']}, {variant['attention']}{state}"


def _cut(names: Sequence[str], between: str) -> str:
    more = [f"and {len(names) - CANDIDATES} more"] if len(names) > CANDIDATES else []
    return between.join([*names[:CANDIDATES], *more])


def _labels(variants: Sequence[Record], one: Record) -> dict[Contender, Label]:
    """The labels of the model of a variant."""
    own = {"model": one["model"], "weights_id": one["weights_id"]}
    return labels_of(variant for variant in variants if own.items() <= variant.items())
