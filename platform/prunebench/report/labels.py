"""What a row is called: the method, the parameters that set it apart from its sisters, its calibration."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from prunebench.core.fingerprint import canonical_json
from prunebench.methods import METHODS
from prunebench.report.source import parsed
from prunebench.store.record import DENSE

SANITY = frozenset({"last_n", "random"})
"""Rows that a method has to beat, drawn in grey."""

LARGE = 10_000
"""From here on 4 digits would be written as a power."""
FRACTION = re.compile(r"-?\d+\.\d+(e-?\d+)?")


class Contender(NamedTuple):
    """One row over all budgets: a method with its parameters and calibration."""

    method: str
    params_json: str
    calibration: str
    calibration_id: str

    @classmethod
    def of(cls, variant: Mapping[str, Any]) -> "Contender":
        """The contender of a variant."""
        calibration = variant["calibration"] or "", variant["calibration_id"] or ""
        return cls(variant["method"], variant["params_json"], *calibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The printed name of a contender."""

    title: str
    """As papers print it, with the source."""
    short: str
    detail: str = ""
    """Parameters that differ from another row of the same method, such as `merge_rule=rdsc`."""
    brief: str = ""
    """The short name with the values of those parameters, for places with little room."""
    sanity: bool = False
    dense: bool = False

    @property
    def name(self) -> str:
        """The short name with what sets it apart."""
        return f"{self.short} ({self.detail})" if self.detail else self.short


def labels_of(variants: Iterable[Mapping[str, Any]]) -> dict[Contender, Label]:
    """The labels of one model's contenders in the order of rows: the dense model, then the registry's."""
    by_method: dict[str, set[Contender]] = defaultdict(set)
    for variant in variants:
        by_method[variant["method"]].add(Contender.of(variant))
    order = {name: place for place, name in enumerate((DENSE, *METHODS))}
    methods = sorted(by_method, key=lambda name: (order.get(name, len(order)), name))
    titles = {name: _title(name) for name in methods}
    shorts = {name: re.split(r" \(|,", title)[0] for name, title in titles.items()}
    labels = {}
    for method in methods:
        unique = list(shorts.values()).count(shorts[method]) == 1
        sisters = sorted(by_method[method])
        short = shorts[method] if unique else method
        for contender, detail in zip(sisters, _details(sisters), strict=True):
            values = ", ".join(detail.values())
            labels[contender] = Label(
                title=titles[method],
                short=short,
                detail=", ".join(f"{name}={value}" for name, value in detail.items()),
                brief=f"{short} ({values})" if values else short,
                sanity=method in SANITY,
                dense=method == DENSE,
            )
    return labels


def _title(method: str) -> str:
    if method == DENSE:
        return "Dense"
    return METHODS[method].title if method in METHODS else method


def _details(sisters: list[Contender]) -> list[dict[str, str]]:
    """For each contender of one method: the settings in which they differ."""
    settings = [_settings(contender, sisters) for contender in sisters]
    names = dict.fromkeys(name for setting in settings for name in setting)
    values = {name: {setting[name] for setting in settings if name in setting} for name in names}
    differing = [name for name in names if len({setting.get(name) for setting in settings}) > 1]
    shown = {name: _shown(values[name]) for name in differing}
    return [
        {name: shown[name][setting[name]] for name in differing if name in setting} for setting in settings
    ]


def _shown(values: set[str]) -> dict[str, str]:
    """Each value as it is printed: numbers to 4 digits where that keeps the values apart."""
    rounded = {
        value: f"{float(value):.4g}" if FRACTION.fullmatch(value) and abs(float(value)) < LARGE else value
        for value in values
    }
    return rounded if len(set(rounded.values())) == len(values) else {value: value for value in values}


def _settings(contender: Contender, sisters: list[Contender]) -> dict[str, str]:
    params = parsed(contender.params_json)
    settings = {
        name: value if isinstance(value, str) else canonical_json(value) for name, value in params.items()
    }
    calibration = contender.calibration
    ids = {sister.calibration_id for sister in sisters if sister.calibration == calibration}
    if len(ids) > 1:
        calibration = f"{calibration} {contender.calibration_id[:8]}"
    return {**settings, "calibration": calibration}
