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
from prunebench.core.stats import Array, CalibrationStats, WeightStats
from prunebench.errors import InputError
from prunebench.store.append import MEND
from prunebench.store.artifacts import exam_group, load_exam, load_plan, load_stats
from prunebench.store.read import read_failures, read_runs, results_table, variants_table
from prunebench.store.run_events import run_events
from prunebench.store.trials import read_studies

OF_A_RESULT = (
    *("run_id", "model", "weights_id", "variant_key", "exam_id", "task", "task_version", "recipe", "seed"),
    *("backend", "execution", "dtype", "attention", "metric", "value", "stderr", "num_examples"),
    *("units_done", "units_total", "status", "error", "warnings_json", "created_at"),
)
"""Columns of results that a report reads; the others stand in the variant."""
OF_A_UNIT = ("generation", "template_hash", "backend_version", "scorer_version")
"""Parts of a unit's key that no column of results has; empty where nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The rows of a store, with nulls as None, and the plans that they name."""

    results: tuple[Mapping[str, Any], ...]
    variants: tuple[Mapping[str, Any], ...]
    failures: tuple[Mapping[str, Any], ...]
    runs: tuple[Mapping[str, Any], ...]
    plans: Mapping[str, PruningPlan]
    groups: Mapping[str, str]
    """Exam id -> group, as `store.artifacts.exam_group`, of every exam that was recorded."""
    hidden: frozenset[str]
    """Keys of variants that are trials of a search and nothing else: tables leave them out."""

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
    variants = rows_of(variants_table(store))
    if not variants:
        raise InputError(f"the store {store} has no results yet: `prunebench run CONFIG` makes them")
    results = rows_of(results_table(store).select(OF_A_RESULT))
    plan_ids = sorted({row["plan_id"] for row in variants if row["plan_id"] is not None})
    exams = sorted({row["exam_id"] for row in results if row["exam_id"] is not None})
    units = {name: load_exam(store, name) for name in exams}
    written = {name: {key: getattr(of[0], key) for key in OF_A_UNIT} for name, of in units.items() if of}
    for row in results:
        row.update(written.get(row["exam_id"], {}))
    return Source(
        results=results,
        variants=variants,
        failures=_records(read_failures(store)),
        runs=_records(read_runs(store)),
        plans={plan_id: load_plan(store, plan_id) for plan_id in plan_ids},
        groups={name: exam_group(ranges[0]) for name, ranges in units.items() if ranges},
        hidden=frozenset(_only_tried(store)),
    )


def _only_tried(store: Path) -> set[str]:
    """Variants that a search tried, without those that it chose, that are a paper's rule, or that another run
    asked about.
    """
    tried: set[str] = set()
    for study in read_studies(store):
        named = {row["variant_key"] for row in (*study.record["chosen"], *study.record["rules"])}
        tried |= {trial["variant_key"] for trial in study.trials if trial["variant_key"]} - named
    if not tried:
        return tried
    others = (run for run in run_events(store) if run.record.get("kind") != "search")
    return tried - {key for run in others for (key,) in run.of("variant", "variant_key")}


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
    stats = _weight_stats(store, weights_id, cka=True)
    if stats is None or not stats.cka_o_LL.size:
        return None
    measured = stats.norm_L7, stats.cka_o_LL, stats.cka_down_LL
    return stats if all(np.isfinite(array).all() for array in measured) else None


def read_column_squares(store: Path, weights_id: str) -> Array | None:
    """||w||^2 of the columns of a model's down_proj, shape (L, I), or None where no method read them."""
    found = (_weight_stats(store, weights_id, cka=cka) for cka in (True, False))
    return next((stats.column_square_LI for stats in found if stats is not None), None)


def _weight_stats(store: Path, weights_id: str, *, cka: bool) -> WeightStats | None:
    data = load_stats(store, sha256_json({"weights": weights_id, "cka": cka}))
    return None if data is None else WeightStats.from_bytes(data)


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


def rows_of(table: pa.Table) -> tuple[dict[str, Any], ...]:
    """The table's rows with nulls as None; a value that is NaN stays one."""
    names = table.column_names
    columns = [_values(table[name]) for name in names]
    return tuple(dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The column's values; equal texts are one object, which costs a tenth of the time and memory."""
    if not pa.types.is_string(column.type) and not pa.types.is_dictionary(column.type):
        return _listed(column)
    codes = column.unify_dictionaries().combine_chunks()
    if pa.types.is_string(column.type):
        codes = codes.dictionary_encode()
    texts = [*codes.dictionary.to_pylist(), None]
    return [texts[code] for code in _listed(codes.indices.fill_null(len(texts) - 1))]


def _listed(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    # Arrow makes an object of its own of each value first: ten times slower where numpy can tell the values.
    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return column.to_numpy().tolist() if plain and not column.null_count else column.to_pylist()


def _records(frame: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """The frame's rows with nulls as None."""
    return tuple(
        {str(name): None if pd.isna(value) else value for name, value in record.items()}
        for record in frame.astype(object).to_dict("records")
    )


def parsed(text: str | None) -> Any:  # noqa: ANN401 (whatever JSON the store holds)
    """A JSON column's value; None where it is null."""
    return None if text is None else json.loads(text)
