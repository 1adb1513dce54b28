"""Method parameters from text: the method's own dataclass is the only list of them."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from prunebench.config.base import explain, nearest
from prunebench.errors import InputError
from prunebench.methods import METHODS
from prunebench.methods.base import AnyMethod, Params


def parse_params(method: AnyMethod, given: Mapping[str, Any]) -> Params:
    """Build the method's parameters from plain values.

    Raises:
        InputError: an unknown name (the nearest valid one is named), a wrong type or a value out of range.
    """
    valid = [field.name for field in dataclasses.fields(method.params)]
    if unknown := [name for name in given if name not in valid]:
        raise InputError(f"{method.name} has no parameter '{unknown[0]}': {nearest(str(unknown[0]), valid)}")
    if flags := [name for name, value in given.items() if isinstance(value, bool)]:
        kinds = {field.name: field.type for field in dataclasses.fields(method.params)}
        if wrong := [name for name in flags if kinds[name] not in (bool, "bool")]:
            raise InputError(f"{method.name}: {wrong[0]} cannot be {given[wrong[0]]}")
    try:
        params = TypeAdapter(method.params).validate_python(dict(given))
    except ValidationError as error:
        raise explain(error, method.name) from error
    for name, value in params_json(params).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{method.name}: {name} cannot be {value}: give a finite number")
    return params


def params_json(params: Params) -> dict[str, Any]:
    """Every parameter with its value, as JSON-ready values in the order of the dataclass."""
    return dataclasses.asdict(params)


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Read `key=value` words of the command line; values are YAML scalars or lists.

    Raises:
        InputError: a word without `=`, or a value that is not YAML.
    """
    given = {}
    for word in assignments:
        key, separator, value = word.partition("=")
        if not separator or not key.strip():
            raise InputError(f"'{word}' is not of the form key=value")
        try:
            given[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"the value of '{key}' cannot be read: {value!r}") from error
    return given


def parse_size(text: str) -> int:
    """Read an amount of memory such as 2GB, 512MiB or 1000000 (bytes).

    Raises:
        InputError: not an amount of memory.
    """
    units = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "b": 1}
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in units:
        raise InputError(f"'{text}' is not an amount of memory: write 2GB or 512MiB")
    return int(float(match[1]) * units[match[2].lower()])


def describe_methods() -> list[dict[str, Any]]:
    """Every method with its title, needs and parameters, in the order of the menu."""
    return [
        {
            "name": method.name,
            "title": method.title,
            "requires": sorted(method.requires),
            "params": params_json(method.params()),
        }
        for method in METHODS.values()
    ]
