"""Verification: reads every file of a store and names what is wrong with it."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from prunebench.core.fingerprint import sha256_text
from prunebench.errors import InputError
from prunebench.store.append import MEND, parquet_bytes, read_lines, temporaries
from prunebench.store.artifacts import load_exam, load_plan, load_planned, load_stats
from prunebench.store.external import TABLES, external_files
from prunebench.store.generations import GENERATION_TABLE
from prunebench.store.keyed import KeyedTable, is_part, read_parquet
from prunebench.store.layout import check_store
from prunebench.store.probes import ANSWER
from prunebench.store.read import read_failure
from prunebench.store.run_events import read_run
from prunebench.store.samples import SAMPLE_TABLE
from prunebench.store.schema import RESULTS, VARIANTS

KEYED = {SAMPLE_TABLE: "unit", GENERATION_TABLE: "generation"}
"""The tables of one file a key, and what a key is called."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a store."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.path}: {self.problem}: {self.remedy}"


def verify(root: Path) -> list[Finding]:
    """Read everything in the store and tell what is wrong; empty when nothing is.

    Raises:
        InputError: not a store, or one of a newer program.
    """
    check_store(root)
    keyed = [finding for kind in KEYED for finding in _keyed(root, kind)]
    return [*keyed, *_variants(root), *_external(root), *_files(root), *_temporary(root)]


def _external(root: Path) -> Iterator[Finding]:
    for kind, schema in TABLES.items():
        for path in external_files(root, kind):
            for finding in _table(path, schema)[1]:
                yield replace(finding, remedy="delete it and run `prunebench import` on its file again")


def _table(path: Path, schema: pa.Schema) -> tuple[pa.Table, list[Finding]]:
    """The table of a file, or an empty one and the finding."""
    try:
        return read_parquet(path, schema), []
    except InputError as error:
        reason = str(error.__cause__).partition("\n")[0]
        return schema.empty_table(), [
            Finding(str(path), f"not a readable file of this store ({reason})", MEND)
        ]


def _keyed(root: Path, kind: KeyedTable) -> Iterator[Finding]:
    """Every row lies under the id of its own key, and every key in one file."""
    held: dict[str, list[Path]] = defaultdict(list)
    plans: set[str] = set()
    for path in kind.files(root):
        table, torn = _table(path, kind.schema)
        yield from torn
        pairs = table.select([kind.key, "unit_json"]).group_by([kind.key, "unit_json"]).aggregate([])
        keys = pairs.to_pylist()
        plans |= set(table["plan_id"].unique().to_pylist())
        for row in keys:
            held[row[kind.key]].append(path)
            if sha256_text(row["unit_json"]) != row[kind.key]:
                yield Finding(
                    str(path), f"the {KEYED[kind]} {row[kind.key]} does not have the id of its key", MEND
                )
        if keys and not is_part(path) and {row[kind.key] for row in keys} != {path.stem}:
            yield Finding(str(path), f"it holds another {KEYED[kind]} than its name says", MEND)
    for key, paths in sorted(held.items()):
        if len(paths) > 1:
            yield _double(kind, key, paths)
    yield from _plans_missing(root, plans, kind.folder)


def _double(kind: KeyedTable, key: str, paths: list[Path]) -> Finding:
    own = pc.field(kind.key) == key
    contents = {parquet_bytes(read_parquet(path, kind.schema).filter(own)) for path in paths}
    names = " and ".join(path.name for path in paths)
    if len(contents) == 1:
        return Finding(
            str(paths[-1]),
            f"the {KEYED[kind]} {key} is in {names}",
            "harmless; `prunebench store compact` drops one",
        )
    return Finding(
        str(paths[-1]),
        f"the {KEYED[kind]} {key} is in {names} with different {kind.folder}; readers take {paths[0].name}",
        "two machines disagree: compare their hardware and versions, and delete the file you do not trust",
    )


def _plans_missing(root: Path, plans: set[str], where: str) -> Iterator[Finding]:
    for plan_id in sorted(plans):
        path = root / "plans" / f"{plan_id}.json"
        if not path.exists():
            yield Finding(
                str(path),
                f"it is missing, but {where} name it",
                "run `prunebench run CONFIG` again: plans are made anew",
            )


def _variants(root: Path) -> Iterator[Finding]:
    for folder, schema in (("variants", VARIANTS), ("results", RESULTS)):
        plans: set[str] = set()
        files = sorted((root / folder).glob("[!.]*.parquet"))
        for path in files:
            table, torn = _table(path, schema)
            yield from torn
            plans |= set(table["plan_id"].drop_null().unique().to_pylist())
        if folder == "variants":
            yield from _plans_missing(root, plans, folder)
        elif len(files) != 1:
            yield Finding(
                str(root / folder),
                f"it holds {len(files)} files instead of one",
                "run `prunebench run CONFIG` again",
            )


def _files(root: Path) -> Iterator[Finding]:
    checks: dict[str, Callable[[Path], object]] = {
        "plans": lambda path: load_plan(root, path.stem),
        "exams": lambda path: load_exam(root, path.stem),
        "planned": lambda path: load_planned(root, path.stem),
        "stats": lambda path: load_stats(root, path.stem),
        "failures": read_failure,
        "probes": lambda path: list(read_lines(path, *ANSWER)),
        "runs": read_run,
    }
    for folder, check in checks.items():
        for path in sorted((root / folder).glob("[!.]*")):
            try:
                check(path)
            except InputError as error:
                yield Finding(str(path), _without(str(error), path), MEND)


def _without(sentence: str, path: Path) -> str:
    """The sentence without the path and the remedy, which a finding tells apart."""
    return sentence.removeprefix(f"{path} ").removesuffix(f": {MEND}")


def _temporary(root: Path) -> Iterator[Finding]:
    for path in temporaries(root):
        yield Finding(
            str(path),
            "a writer that was killed (or is at work) left it",
            "`prunebench store compact` removes it",
        )
