"""Sample files: one Parquet file a unit, folded into content-named parts; readers take each unit once."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prunebench.core.fingerprint import canonical_json
from prunebench.core.unit import UnitDone
from prunebench.errors import InputError
from prunebench.store.append import MEND
from prunebench.store.schema import SAMPLES, SCHEMA_VERSION

SUFFIX = ".parquet"
PART = "part-"
Read = TypeVar("Read")


def unit_table(done: UnitDone) -> pa.Table:
    """The samples of one unit, in the order of evaluation."""
    unit, samples, rows = done.unit, done.samples, len(done.samples)
    columns = {
        "schema_version": [SCHEMA_VERSION] * rows,
        "unit_id": [unit.unit_id] * rows,
        "weights_id": [unit.weights_id] * rows,
        "plan_id": [unit.plan_id] * rows,
        "task": [unit.task] * rows,
        "task_version": [unit.task_version] * rows,
        "doc_id": [sample.doc_id for sample in samples],
        "doc_hash": [sample.doc_hash for sample in samples],
        "seed": [unit.seed] * rows,
        "metric": [sample.metric for sample in samples],
        "value": [float(sample.value) for sample in samples],
        "weight": [float(sample.weight) for sample in samples],
        "detail_json": [sample.detail for sample in samples],
        "status": [sample.status for sample in samples],
        "unit_json": [canonical_json(unit.to_json())] * rows,
    }
    return pa.Table.from_pydict(columns, schema=SAMPLES)


def sample_files(root: Path) -> list[Path]:
    """All files of the samples folder, parts first, each group sorted by name.

    The folder is scanned twice: a scan that overlaps another driver's fold can see neither the new part nor
    the unit files that it replaced, but then the next scan sees the part.
    """
    folder = root / "samples"
    # A copy of a store may lack the folder: some tools leave empty ones out.
    names = {path.name for _ in range(2) for path in folder.glob(f"[!.]*{SUFFIX}")}
    return [folder / name for name in sorted(names, key=lambda name: (not name.startswith(PART), name))]


def is_part(path: Path) -> bool:
    """Whether the file holds folded units."""
    return path.name.startswith(PART)


def read_parquet(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """Read one file of the store.

    Raises:
        InputError: it is torn or holds other columns.
        FileNotFoundError: another process folded it away.
    """
    try:
        repeated = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        with pq.ParquetFile(path, read_dictionary=repeated) as file:
            table = file.read(columns=columns or schema.names)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        return table.select(wanted.names).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path} is not a readable Parquet file of this store ({reason}): "
            f"{MEND}, which computes what it held; "
            "`prunebench store verify` lists every such file"
        ) from error


def part_units(path: Path) -> frozenset[str]:
    """The unit ids in one part."""
    return frozenset(read_parquet(path, SAMPLES, ["unit_id"])["unit_id"].unique().to_pylist())


def retry_when_folded(read: Callable[[], Read], tries: int = 20) -> Read:
    """Call `read` again when a file that it listed was folded away by another driver meanwhile."""
    for _ in range(tries - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def read_units(
    files: list[Path],
    seen: set[str],
    held: Mapping[str, pa.Table] | None = None,
    schema: pa.Schema = SAMPLES,
) -> pa.Table:
    """The samples of `files` without the units in `seen`, each unit from the first file that holds it.

    `seen` is extended by the units that were read; `held` has tables of units that need no reading; `schema`
    names the columns that are wanted.
    """
    tables = [schema.empty_table()]
    for path in files:
        if is_part(path):
            table = read_parquet(path, schema)
            units = set(table["unit_id"].unique().to_pylist())
            if known := units & seen:
                table = table.filter(~pc.field("unit_id").isin(sorted(known)))
        elif path.stem in seen:
            continue
        else:
            table = held[path.stem] if held and path.stem in held else read_parquet(path, schema)
            units = {path.stem}
        tables.append(table)
        seen |= units
    return pa.concat_tables(tables)


def samples_table(root: Path, plan_ids: Collection[str] | None = None) -> pa.Table:
    """Every sample of the store (of some plans) once, sorted by unit, document and metric.

    Raises:
        InputError: a torn file, named.
    """
    table = retry_when_folded(lambda: read_units(sample_files(root), set()))
    if plan_ids is not None:
        table = table.filter(pc.field("plan_id").isin(sorted(plan_ids)))
    return table.sort_by([(name, "ascending") for name in ("unit_id", "doc_id", "metric")])
