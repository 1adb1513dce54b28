"""What a report reads of a store: results, variants, plans, runs, failures and statistics."""

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from prunebench.core.fingerprint import sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.core.unit import Unit
from prunebench.errors import InputError
from prunebench.report.seeds import exams_of, fold_seeds
from prunebench.store.append import MEND
from prunebench.store.artifacts import load_plan
from prunebench.store.read import read_failures, read_results, read_runs, read_variants
from prunebench.store.schema import RESULTS, VARIANTS

FLOATS = frozenset({"value", "stderr"})
INTEGERS = frozenset(field.name for field in (*RESULTS, *VARIANTS) if pa.types.is_integer(field.type))
"""Columns that pandas turns into floats where a row has a null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The rows of a store, with nulls as None, and the plans that they name."""

    results: tuple[Mapping[str, Any], ...]
    """With how answers are sampled as `generation`, and one row in place of several seeds' rows."""
    variants: tuple[Mapping[str, Any], ...]
    failures: tuple[Mapping[str, Any], ...]
    runs: tuple[Mapping[str, Any], ...]
    plans: Mapping[str, PruningPlan]

    def models(self) -> list[tuple[str, str]]:
        """(model, weights_id) of every model, by name."""
        return sorted({(row["model"], row["weights_id"]) for row in self.variants})


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The statistics of one whole calibration, and whose they are as far as the store tells."""

    stats: CalibrationStats
    weights_id: str
    """Empty where no variant was planned from them."""
    name: str
    """The calibration's name, else the first digits of what identifies the statistics."""
    setting: str
    """dtype and attention implementation of the pass; empty where unknown."""


def read_source(store: Path) -> Source:
    """Read a store.

    Raises:
        InputError: no store, a newer or damaged one, or one without results.
    """
    variants = _records(read_variants(store))
    if not variants:
        raise InputError(f"the store {store} has no results yet: `prunebench run CONFIG` makes them")
    plan_ids = sorted({row["plan_id"] for row in variants if row["plan_id"] is not None})
    results = _records(read_results(store))
    exams = exams_of(store, results)
    sampled = tuple({**row, "generation": _generation(exams.get(row["exam_id"] or ""))} for row in results)
    return Source(
        results=fold_seeds(sampled, exams),
        variants=variants,
        failures=_records(read_failures(store)),
        runs=_records(read_runs(store)),
        plans={plan_id: load_plan(store, plan_id) for plan_id in plan_ids},
    )


def read_calibrations(store: Path, source: Source) -> list[Calibration]:
    """The merged statistics of every calibration, those of variants first; shards are left out."""
    names = {
        sha256_json({"weights": weights_id, "dtype": dtype, "attention": attention, "corpus": corpus_id}): (
            weights_id,
            name,
            f"{dtype}, {attention}",
        )
        for weights_id, name, corpus_id in sorted(
            {
                (row["weights_id"], row["calibration"] or "", row["calibration_id"])
                for row in source.variants
                if row["calibration_id"] is not None
            }
        )
        for dtype, attention in sorted(
            {
                (row["dtype"], row["attention"])
                for row in source.results
                if row["weights_id"] == weights_id and row["dtype"] is not None
            }
        )
    }
    found = []
    for path, members in _archives(store):
        # A shard's file is named by its own key, the merged statistics' file by their source.
        if "cosine_BB" not in members or members["source"] != path.stem:
            continue
        weights_id, name, setting = names.get(path.stem, ("", path.stem[:8], ""))
        stats = CalibrationStats.from_bytes(path.read_bytes())
        found.append(Calibration(stats=stats, weights_id=weights_id, name=name, setting=setting))
    return sorted(found, key=lambda one: (not one.weights_id, one.weights_id, one.name, one.setting))


def read_weights(store: Path, weights_id: str) -> WeightStats | None:
    """The weight statistics of a model that hold finite similarities between layers, or None."""
    key = sha256_json({"weights": weights_id, "cka": True})
    for path, members in _archives(store):
        if path.stem == key and "cka_o_LL" in members:
            stats = WeightStats.from_bytes(path.read_bytes())
            measured = stats.norm_L7, stats.cka_o_LL, stats.cka_down_LL
            whole = stats.cka_o_LL.size and all(np.isfinite(array).all() for array in measured)
            return stats if whole else None
    return None


def _generation(unit: Unit | None) -> str:
    return "" if unit is None else unit.generation


def _archives(store: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Each statistics file with its members' names; the value is read of `source` alone."""
    for path in sorted((store / "stats").glob("[!.]*.npz")):
        try:
            with np.load(path, allow_pickle=False) as archive:
                members = dict.fromkeys(archive.files, "")
                members["source"] = str(archive["source"])
        except (zipfile.BadZipFile, ValueError, KeyError, OSError) as error:
            raise InputError(f"{path} is damaged ({error}): {MEND}") from error
        yield path, members


def _records(frame: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """The frame's rows with nulls as None and whole numbers as int; a value that is NaN stays one."""
    return tuple(
        {str(name): _plain(str(name), value) for name, value in record.items()}
        for record in frame.astype(object).to_dict("records")
    )


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 (a cell of any column)
    if name in FLOATS or not pd.api.types.is_scalar(value):
        return value
    if pd.isna(value):
        return None
    return int(value) if name in INTEGERS else value


def parsed(text: str | None) -> Any:  # noqa: ANN401 (whatever JSON the store holds)
    """A JSON column's value; None where it is null."""
    return None if text is None else json.loads(text)
