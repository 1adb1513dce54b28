r"""SPEC: the one line that names calibration text, probe text or the text of a perplexity task.

`KIND:SOURCE[#COLUMN][?OPTION=VALUE&...]`, with the kinds

- `tokens:FILE.npy`: integer token ids; the rows of a matrix as they are, leading rows first (`length` keeps
  the leading ids of each); a vector is one stream, cut into rows of `length`.
- `text:FILE`: UTF-8 text, one document.
- `jsonl:FILE#column`: one JSON object a line; the column (default `text`) holds a document.
- `traces:FILE`: one JSON object a line with `prompt` and `generation` as text, or `prompt_ids` and
  `generation_ids` as lists of ids. A row is the whole prompt and the first `length` (2,048) ids of the
  generation.
- `mirror:ORG/NAME[/CONFIG]:SPLIT#COLUMN`: `ORG/NAME/CONFIG/SPLIT-*.parquet` below the mirror folder;
  without a CONFIG `default`, or the only one there is.
- `hub:ORG/NAME[/CONFIG]:SPLIT#COLUMN`: the same from the Hugging Face hub, which needs the
  `datasets` package and network; from the mirror where there is one that has it.
- `builtin:pydoc[:split]`: Python's help topics; see `prunebench.data.pydoc` for the splits.

and the options

- `samples`: rows wanted; fewer is an error. Unset: all rows of tokens and traces, else at most 64.
- `length`: tokens a row, 512 unless given.
- `sample`: `first` rows, or `random` ones without replacement, in the text's order.
- `seed`: of the random sample (0).
- `bos`: 1 starts every row with the beginning-of-sequence token, which counts towards `length` (traces: on
  top).
- `join`: what stands between documents before they are cut into rows (`%0A%0A`, a blank line); `none` makes
  one row of each document, with `length` as the upper bound.

The first `?` starts the options and the last `#` the column; `%3F`, `%23` and other URL escapes write these
characters themselves. Relative paths start from the folder the caller names: that of the config file, or the
working directory on the command line.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import unquote

from prunebench.errors import InputError

Kind: TypeAlias = Literal["tokens", "text", "jsonl", "traces", "mirror", "hub", "builtin"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_COLUMN_KINDS = ("jsonl", "mirror", "hub")
_SPLIT_KINDS = ("mirror", "hub", "builtin")
_OPTIONS: dict[Kind, tuple[str, ...]] = {
    "tokens": ("samples", "length", "seed", "sample"),
    "text": ("samples", "length", "seed", "sample", "bos"),
    "traces": ("samples", "length", "seed", "sample", "bos"),
    **dict.fromkeys(
        ("jsonl", "mirror", "hub", "builtin"), ("samples", "length", "seed", "sample", "bos", "join")
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSpec:
    """A parsed SPEC. Nothing of it enters a corpus's identity: only the token ids do."""

    text: str
    """The SPEC as it was written."""
    kind: Kind
    source: str
    """Absolute path of a file, ORG/NAME[/CONFIG] of a dataset, or the name of a built-in text."""
    split: str = ""
    column: str = ""
    samples: int | None = None
    length: int | None = None
    seed: int = 0
    sample: Literal["first", "random"] = "first"
    bos: bool = False
    join: str | None = "\n\n"
    """None: documents are not joined."""


def parse_spec(text: str, base: Path) -> CorpusSpec:
    """Read a SPEC; relative paths start from `base`. Touches no file.

    Raises:
        InputError: an unknown kind or option, a value of the wrong type, or a part that is missing.
    """
    head, _, query = text.partition("?")
    kind = _kind(text, head)
    rest = head.partition(":")[2]
    rest, column, query = _column(text, rest, query)
    if column and kind not in _COLUMN_KINDS:
        raise InputError(f"SPEC '{text}': {kind} has no columns; write %23 for a # in a name")
    source, _, split = rest.partition(":") if kind in _SPLIT_KINDS else (rest, "", "")
    source, split = _decoded(source, text), _decoded(split, text)
    if not source:
        raise InputError(f"SPEC '{text}': nothing follows '{kind}:'")
    if kind in ("mirror", "hub"):
        _check_dataset(text, kind, source, split)
    elif kind != "builtin":
        source = str(base.absolute() / Path(source).expanduser())
    return CorpusSpec(
        text=text,
        kind=kind,
        source=source,
        split=split,
        column=(_decoded(column, text) or "text") if kind in _COLUMN_KINDS else "",
        **_options(text, kind, query),
    )


def nearest(word: str, valid: Iterable[str]) -> str:
    """The end of an error sentence: the nearest valid word, then all of them."""
    names = list(valid)
    close = difflib.get_close_matches(word, names, n=1)
    return (f"did you mean '{close[0]}'? " if close else "") + f"valid: {', '.join(names)}"


def _kind(text: str, head: str) -> Kind:
    name, colon, _ = head.partition(":")
    for kind in KINDS:
        if colon and kind == name:
            return kind
    if not colon or "/" in name:
        raise InputError(
            f"SPEC '{text}' does not say what it is: write for example text:{text} ({', '.join(KINDS)})"
        )
    raise InputError(f"SPEC '{text}': unknown kind '{name}': {nearest(name, KINDS)}")


def _column(text: str, rest: str, query: str) -> tuple[str, str, str]:
    """Split the last # off, before or after the options: (source, column, options)."""
    before, mark, column = rest.rpartition("#")
    if not mark:
        options, mark, column = query.rpartition("#")
        return (rest, column, options) if mark else (rest, "", query)
    if "#" in query:
        raise InputError(f"SPEC '{text}': a second # stands in the options; write %23 for a # that is meant")
    return before, column, query


def _decoded(part: str, text: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise InputError(f"SPEC '{text}': the escapes in '{part}' are not UTF-8") from error


def _check_dataset(text: str, kind: Kind, source: str, split: str) -> None:
    if "\0" in source + split:
        raise InputError(f"SPEC '{text}': no name holds a NUL: leave %00 out")
    parts = source.split("/")
    if len(parts) not in (2, 3) or not all(parts) or ".." in parts or "." in parts:
        raise InputError(f"SPEC '{text}': '{source}' is not ORG/NAME or ORG/NAME/CONFIG")
    if not split or "/" in split:
        raise InputError(
            f"SPEC '{text}' names no split: write {kind}:{source}:SPLIT#COLUMN, for example :train#text"
        )


def _options(text: str, kind: Kind, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in query.split("&") if query else ():
        name, equals, raw = item.partition("=")
        if name not in _OPTIONS[kind]:
            elsewhere = "does not apply to" if name in _OPTIONS["jsonl"] else "is unknown to"
            raise InputError(
                f"SPEC '{text}': option '{name}' {elsewhere} {kind}: {nearest(name, _OPTIONS[kind])}"
            )
        if name in options:
            raise InputError(f"SPEC '{text}': option '{name}' is given twice")
        if not equals:
            raise InputError(f"SPEC '{text}': option '{name}' has no value")
        options[name] = _value(text, name, _decoded(raw, text))
    return options


def _value(text: str, name: str, value: str) -> int | bool | str | None:
    if name == "join":
        return None if value == "none" else value
    if name == "sample":
        return _one_of(text, name, value, ("first", "random"))
    if name == "bos":
        return _one_of(text, name, value, ("0", "1")) == "1"
    least = {"samples": 1, "length": 2, "seed": 0}[name]
    if not re.fullmatch(r"[0-9]{1,18}", value) or int(value) < least:
        raise InputError(f"SPEC '{text}': {name} must be a whole number, at least {least}, not '{value}'")
    return int(value)


def _one_of(text: str, name: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise InputError(f"SPEC '{text}': {name} is '{value}': {nearest(value, valid)}")
    return value
