"""Comparing two stores: all their rows, on everything but who computed them and how long it took."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from prunebench.store.read import read_generations, read_results, read_samples

IGNORED = frozenset(
    {"run_id", "wall_seconds", "created_at", "seconds", "peak_rss_mb", "host", "worker", "attempt"}
)
KEYS = {
    "samples": ("unit_id", "doc_id", "metric"),
    "generations": ("generation_id",),
    "results": ("variant_key", "exam_id", "metric"),
}
TOLD = {
    "samples": ("task", "plan_id", "doc_id", "metric", "seed", "unit_id"),
    "generations": ("task", "plan_id", "doc_id", "seed", "generation_id"),
    "results": ("model", "method", "params_json", "budget_layers", "task", "metric", "seed", "status"),
}
"""The columns that say which row it is."""
SHOWN = 5
"""Differing rows that are spelled out for each table and kind of difference."""


def diff(a: Path, b: Path) -> list[str]:
    """How two stores differ, a line a difference; empty when they are equal. NaN equals NaN.

    Raises:
        InputError: one of them is not a store, or holds a torn file.
    """
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "samples": read_samples,
        "generations": read_generations,
        "results": read_results,
    }
    return [line for name, read in readers.items() for line in _differences(name, read(a), read(b), (a, b))]


def _keyed(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame under its key; rows of equal keys are numbered, so that a double shows."""
    keys = list(KEYS[name])
    frame = frame.drop(columns=[column for column in frame.columns if column in IGNORED])
    frame[keys] = frame[keys].astype(object).where(frame[keys].notna(), "")
    frame["copy"] = frame.groupby(keys).cumcount()
    return frame.set_index([*keys, "copy"]).sort_index()


def _differences(name: str, a: pd.DataFrame, b: pd.DataFrame, roots: tuple[Path, Path]) -> list[str]:
    left, right = _keyed(name, a), _keyed(name, b)
    lines: list[str] = []
    for only, other, root in ((left, right, roots[0]), (right, left, roots[1])):
        missing = only.loc[~only.index.isin(other.index)]
        lines += [
            f"{name}: only in {root}: {_spell(name, row)}" for row in missing.iloc[:SHOWN].reset_index().iloc
        ]
        lines += _more(name, len(missing), f"rows only in {root}")
    common = left.index.intersection(right.index)
    left, right = left.loc[common], right.loc[common]
    unequal = ~((left == right) | (left.isna() & right.isna()))
    differing = unequal.any(axis=1)
    for index in common[differing][:SHOWN]:
        columns = unequal.columns[unequal.loc[index]]
        values = ", ".join(
            f"{c}: {_plain(left.at[index, c])} and {_plain(right.at[index, c])}" for c in columns
        )
        lines.append(f"{name}: differs: {_spell(name, left.loc[[index]].reset_index().iloc[0])}: {values}")
    return lines + _more(name, differing.sum(), "rows that differ")


def _plain(value: object) -> str:
    """All digits of a number, and text in quotes."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _more(name: str, count: int, what: str) -> list[str]:
    return [f"{name}: and {count - SHOWN} more {what}"] if count > SHOWN else []


def _spell(name: str, row: pd.Series) -> str:
    """Which row it is, for a person."""
    return ", ".join(f"{column} {row[column]}" for column in TOLD[name])
