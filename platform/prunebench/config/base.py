"""Strict pydantic base: unknown keys are errors that name the nearest valid key."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from prunebench.errors import InputError

_PASSWORD = re.compile(
    r"://[^:/@\s]*:[^@\s]+@|[?&](password|passwd|pwd|token|secret|api_?key)=", re.IGNORECASE
)


def holds_password(text: str) -> bool:
    """Whether a URL in the text has a password, before its host or among its options."""
    return _PASSWORD.search(text) is not None


def nearest(word: str, valid: Iterable[str]) -> str:
    """A half sentence naming the valid word nearest to `word`, or all of them."""
    known = sorted(valid)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"valid are: {', '.join(known)}"


class Strict(BaseModel):
    """Base of everything read from a file: frozen, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def known_keys(cls, data: Any) -> Any:  # noqa: ANN401 (pydantic hands over whatever the file holds)
        """Name the nearest valid key of each unknown one."""
        if isinstance(data, dict):
            unknown = [key for key in data if key not in cls.model_fields]
            if unknown:
                hints = "; ".join(
                    f"unknown key '{key}': {nearest(str(key), cls.model_fields)}" for key in unknown
                )
                raise ValueError(hints)
        return data


def explain(error: ValidationError, where: str) -> InputError:
    """One line per wrong setting: where it stands, what is wrong, what was given."""
    faults = error.errors()
    lines = []
    for fault in faults:
        # A list with one wrong entry is also reported as too short: the entry alone says what to mend.
        inside = [other for other in faults if other["loc"][: len(fault["loc"])] == fault["loc"]]
        if fault["type"] == "too_short" and len(inside) > 1:
            continue
        place = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        given = fault["input"]
        shown = (
            "" if isinstance(given, dict | list) or fault["type"] == "value_error" else f" (given: {given!r})"
        )
        lines.append(": ".join(filter(None, (where, place, message + shown))))
    return InputError("\n".join(lines))
