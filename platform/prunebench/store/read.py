"""Reading a store as pandas frames: each unit once, rows sorted by key, empty frames from an empty store."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from prunebench.errors import InputError
from prunebench.store.append import MEND
from prunebench.store.generations import GENERATION_TABLE
from prunebench.store.keyed import read_parquet, retry_when_folded
from prunebench.store.layout import check_store
from prunebench.store.run_events import run_events
from prunebench.store.samples import SAMPLE_TABLE
from prunebench.store.samples import samples_table as _samples_table
from prunebench.store.schema import RESULTS, SAMPLES, VARIANTS

FAILURE_COLUMNS = ("key", "attempt", "error", "traceback", "failed_at", "superseded")
RUN_COLUMNS = (
    "run_id",
    "started_at",
    "ended_at",
    "status",
    "record_json",
    "units",
    "seconds",
    "workers",
    "hosts",
)
EVENT_COLUMNS = ("run_id", "unit_id", "worker", "host", "seconds", "attempt", "at")


def samples_table(root: Path, plan_ids: Collection[str] | None = None) -> pa.Table:
    """Every sample (of some plans) once, sorted by unit, document and metric, as a table of `schema.SAMPLES`.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    return _samples_table(check_store(root), plan_ids)


def plans_by_file(root: Path) -> dict[Path, list[str]]:
    """The plans that each file of samples holds scores of, in the order in which readers take the files.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    check_store(root)

    def read() -> dict[Path, list[str]]:
        files = SAMPLE_TABLE.files(root)
        return {
            path: read_parquet(path, SAMPLES, ["plan_id"])["plan_id"].unique().to_pylist() for path in files
        }

    return retry_when_folded(read)


def read_samples(root: Path) -> pd.DataFrame:
    """`samples_table` as a frame."""
    return samples_table(root).to_pandas()


def generations_table(root: Path) -> pa.Table:
    """Every text that was written once, sorted by its id, as a table of `schema.GENERATIONS`.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    return GENERATION_TABLE.rows(check_store(root)).sort_by("generation_id")


def read_generations(root: Path) -> pd.DataFrame:
    """`generations_table` as a frame."""
    return generations_table(root).to_pandas()


def variants_table(root: Path) -> pa.Table:
    """All variants, sorted by model, method, budget and key.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    files = sorted((check_store(root) / "variants").glob("[!.]*.parquet"))
    table = pa.concat_tables([VARIANTS.empty_table(), *(read_parquet(path, VARIANTS) for path in files)])
    order = ("model", "method", "budget_layers", "params_json", "variant_key")
    return table.sort_by([(name, "ascending") for name in order])


def read_variants(root: Path) -> pd.DataFrame:
    """`variants_table` as a frame."""
    return variants_table(root).to_pandas()


def results_table(root: Path) -> pa.Table:
    """The results as they were last derived, as a table of `schema.RESULTS`.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    folder = check_store(root) / "results"

    def read() -> pa.Table:
        tables = [read_parquet(path, RESULTS) for path in sorted(folder.glob("[!.]*.parquet"))]
        return pa.concat_tables([RESULTS.empty_table(), *tables])

    return retry_when_folded(read)


def read_results(root: Path) -> pd.DataFrame:
    """`results_table` as a frame."""
    return results_table(root).to_pandas()


def units_present(root: Path) -> set[str]:
    """The ids of the units that are done; reads the parts' id column and the unit files' names."""
    return SAMPLE_TABLE.keys(root)


def read_failures(root: Path) -> pd.DataFrame:
    """Failed attempts, sorted by key and attempt; `superseded` where the unit or item has its result by now.

    Raises:
        InputError: not a store, or a damaged record, named.
    """
    check_store(root)
    records = [read_failure(path) for path in (root / "failures").glob("[!.]*.json")]
    if not records:
        return pd.DataFrame(columns=list(FAILURE_COLUMNS))
    done = units_present(root)
    done |= {path.stem for folder in ("planned", "stats") for path in (root / folder).glob("[!.]*")}
    records.sort(key=lambda record: (record["key"], record["attempt"]))
    rows = [{**record, "superseded": record["key"] in done} for record in records]
    return pd.DataFrame(rows, columns=list(FAILURE_COLUMNS))


def read_failure(path: Path) -> dict[str, Any]:
    """One record of a failed attempt.

    Raises:
        InputError: it is damaged.
    """
    try:
        record = json.loads(path.read_text())
        return {**record, "key": record["key"], "attempt": record["attempt"]}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error!r}): {MEND}") from error


def read_runs(root: Path) -> pd.DataFrame:
    """One row a run; `status` is `killed or running` where the run wrote no end.

    `units` and `seconds` are of what came back to it, `workers` and `hosts` of who computed that.
    """
    rows = []
    for run in run_events(root):
        status, ended_at = next(run.of("end", "status", "ended_at"), ("killed or running", None))
        units = list(run.of("unit", "seconds", "host", "worker"))
        rows.append(
            {
                "run_id": run.run_id,
                "started_at": run.started_at,
                "ended_at": ended_at,
                "status": status,
                "record_json": json.dumps(run.record, sort_keys=True),
                "units": len(units),
                "seconds": sum(seconds for seconds, *_ in units),
                "workers": len({tuple(worker) for _, *worker in units}),
                "hosts": ", ".join(sorted({host for _, host, _ in units})),
            }
        )
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS))


def read_events(root: Path) -> pd.DataFrame:
    """Who computed which unit when: one row for every unit that came back in a run, in order."""
    rows = [(run.run_id, *unit) for run in run_events(root) for unit in run.of("unit", *EVENT_COLUMNS[1:])]
    return pd.DataFrame(rows, columns=list(EVENT_COLUMNS))
