"""Seeds: exams that differ in nothing but the seed are one column, with the mean over the seeds.

A cell is the mean of the seeds' values. Its scatter is their standard deviation (ddof 1), as papers print it.
The standard error over documents is that of one seed, the mean over the seeds: with several answers to the
same documents it can only be smaller.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from prunebench.core.fingerprint import canonical_json, sha256_json
from prunebench.core.unit import Unit
from prunebench.store.artifacts import exam_key, load_exam

Record: TypeAlias = Mapping[str, Any]


def seedless_id(unit: Unit) -> str:
    """16 hex digits: the same for units whose exams differ in nothing but the seed."""
    return sha256_json({name: value for name, value in exam_key(unit).items() if name != "seed"})[:16]


def exams_of(store: Path, results: Iterable[Record]) -> dict[str, Unit]:
    """A unit of every exam of the results that the store records."""
    names = sorted({row["exam_id"] for row in results if row["exam_id"] is not None})
    units = {name: load_exam(store, name) for name in names}
    return {name: known[0] for name, known in units.items() if known}


def fold_seeds(results: Sequence[Record], exams: Mapping[str, Unit]) -> tuple[Record, ...]:
    """The results, with one row in place of a row for each seed where there are several.

    Args:
        results: rows as `store.derive` makes them, nulls as None.
        exams: a unit of each exam, by its id; an exam that is not there stays as it is.
    """
    groups = {name: seedless_id(unit) for name, unit in exams.items()}
    seeds: dict[str, set[int]] = defaultdict(set)
    for row in results:
        if row["exam_id"] in groups:
            seeds[groups[row["exam_id"]]].add(row["seed"])
    kept: list[Record] = []
    parts: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in results:
        group = groups.get(row["exam_id"] or "", "")
        if len(seeds[group]) < 2:
            kept.append(row)
        else:
            parts[row["variant_key"], group].append(row)
    return (*kept, *(row for (_, group), rows in parts.items() for row in _folded(group, seeds[group], rows)))


def _folded(group: str, seeds: set[int], rows: Sequence[Record]) -> Iterable[Record]:
    """The rows of one variant under exams that differ in the seed, one a metric."""
    exams = {row["exam_id"]: row for row in rows}
    shared: dict[str, Any] = {
        "exam_id": group,
        "seed": ", ".join(map(str, sorted(seeds))),
        "units_done": sum(row["units_done"] for row in exams.values()),
        "units_total": sum(row["units_total"] for row in exams.values()),
        "warnings_json": canonical_json(
            list(dict.fromkeys(text for row in rows for text in json.loads(row["warnings_json"])))
        ),
    }
    by_metric: dict[str | None, list[Record]] = defaultdict(list)
    for row in rows:
        by_metric[row["metric"]].append(row)
    for own in by_metric.values():
        yield {**own[0], **shared, **_over_seeds(seeds, own, rows)}


def _over_seeds(seeds: set[int], own: Sequence[Record], rows: Sequence[Record]) -> dict[str, Any]:
    """Value and scatter of one metric, or why there is none."""
    odd = next((row for row in rows if row["status"] != "ok"), None)
    if odd is not None or {row["seed"] for row in own} != seeds:
        status = "incomplete" if odd is None else odd["status"]
        error = next((row["error"] for row in rows if row["error"]), None)
        return {"value": None, "stderr": None, "status": status, "error": error}
    values = [row["value"] for row in own]
    finite = all(map(math.isfinite, values))
    return {
        "value": math.fsum(values) / len(values),
        "stderr": math.fsum(row["stderr"] for row in own) / len(own),
        "seed_sd": statistics.stdev(values) if finite else math.nan,
    }
