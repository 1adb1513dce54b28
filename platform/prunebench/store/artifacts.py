"""Single files of the store: plans, statistics, plans of probe methods, variants, exams.

All are written at once under a name that says what they are, so that writing one again changes nothing.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from prunebench.core.fingerprint import canonical_json, sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import PlanDone, StatsDone, Unit
from prunebench.errors import InputError
from prunebench.store.append import MEND, parquet_bytes, write_atomic
from prunebench.store.keyed import read_parquet
from prunebench.store.layout import file_key
from prunebench.store.record import Variant
from prunebench.store.schema import VARIANTS, table_of

EXAM_EXCLUDES = ("plan_id", "document_hash", "start", "stop")


def save_plan(root: Path, plan: PruningPlan) -> None:
    """Keep a plan as plans/PLAN_ID.json."""
    path = root / "plans" / f"{plan.plan_id}.json"
    if not path.exists():
        write_atomic(path, plan.canonical.encode())


def load_plan(root: Path, plan_id: str) -> PruningPlan:
    """Read a plan back.

    Raises:
        InputError: it is missing or is not the plan that its name says.
    """
    path = root / "plans" / f"{file_key(plan_id)}.json"
    try:
        plan = PruningPlan.from_json(path.read_text())
    except FileNotFoundError as error:
        raise InputError(
            f"the store has no plan {plan_id}: {path} is missing; where a run planned it, "
            "`prunebench run CONFIG` makes it anew"
        ) from error
    except (UnicodeDecodeError, InputError) as error:
        raise InputError(f"{path} is damaged ({error}): {MEND}") from error
    if plan.plan_id != plan_id:
        raise InputError(f"{path} holds the plan {plan.plan_id}: {MEND}")
    return plan


def save_stats(root: Path, done: StatsDone) -> None:
    """Keep serialised statistics as stats/KEY.npz."""
    path = root / "stats" / f"{file_key(done.key)}.npz"
    if not path.exists():
        write_atomic(path, done.data)


def load_stats(root: Path, key: str) -> bytes | None:
    """The statistics under `key`, or None.

    Raises:
        InputError: the file is damaged.
    """
    path = root / "stats" / f"{file_key(key)}.npz"
    if not path.exists():
        return None
    data = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}): {MEND}") from error
    if broken:
        raise InputError(f"{path} is damaged in {broken}: {MEND}")
    return data


def save_planned(root: Path, done: PlanDone) -> None:
    """Keep what a probe method answered as planned/KEY.json."""
    path = root / "planned" / f"{file_key(done.key)}.json"
    if not path.exists():
        lists = {"warnings": list(done.warnings), "others": list(done.others)}
        write_atomic(path, canonical_json({**asdict(done), **lists}).encode())


def load_planned(root: Path, key: str) -> PlanDone | None:
    """What a probe method answered under `key`, or None.

    Raises:
        InputError: the file is damaged.
    """
    path = root / "planned" / f"{file_key(key)}.json"
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text())
        warnings, others = tuple(data.pop("warnings")), tuple(data.pop("others", ()))
        return PlanDone(**data, warnings=warnings, others=others)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error!r}): {MEND}") from error


def save_variant(root: Path, variant: Variant) -> None:
    """Keep a variant as variants/VARIANT_KEY.parquet.

    The newest answer wins (a failure may be mended); an equal answer keeps the file, and with it the first
    attempt's seconds and memory.
    """
    path = root / "variants" / f"{variant.variant_key}.parquet"
    table = table_of(VARIANTS, [variant.to_row()])
    costs = ["seconds", "peak_rss_mb"]
    if path.exists() and read_parquet(path, VARIANTS).drop_columns(costs).equals(table.drop_columns(costs)):
        return
    write_atomic(path, parquet_bytes(table))


def exam_key(unit: Unit) -> dict[str, str | int]:
    """What units of one task under different plans have in common: the key without plan and range."""
    return {name: value for name, value in unit.to_json().items() if name not in EXAM_EXCLUDES}


def exam_id(unit: Unit) -> str:
    """16 hex digits; results of equal exam_id differ in nothing but the plan."""
    return sha256_json(exam_key(unit))[:16]


def exam_group(unit: Unit) -> str:
    """16 hex digits; exams of one group differ in nothing but the seed."""
    return sha256_json({name: value for name, value in exam_key(unit).items() if name != "seed"})[:16]


def save_exam(root: Path, units: Sequence[Unit]) -> str:
    """Record the ranges of one task, as the units of any one plan, so that missing ones can be seen.

    Returns:
        The exam's id.

    Raises:
        ValueError: units of several tasks or settings, or none.
    """
    if len({exam_id(unit) for unit in units}) != 1:
        raise ValueError("an exam is made of the units of one task under one setting and seed")
    name = exam_id(units[0])
    ranges = {(unit.start, unit.stop, unit.document_hash) for unit in units}
    known = load_exam(root, name)
    merged = sorted(ranges | {(u.start, u.stop, u.document_hash) for u in known})
    if len(merged) != len(known):
        content = {"key": exam_key(units[0]), "ranges": [list(place) for place in merged]}
        write_atomic(root / "exams" / f"{name}.json", canonical_json(content).encode())
    return name


def load_exam(root: Path, name: str) -> tuple[Unit, ...]:
    """The units of an exam, with an empty plan_id; empty when it was never recorded.

    Raises:
        InputError: the file is damaged.
    """
    path = root / "exams" / f"{file_key(name)}.json"
    if not path.exists():
        return ()
    try:
        data = json.loads(path.read_text())
        return tuple(
            Unit(**data["key"], plan_id="", start=start, stop=stop, document_hash=document_hash)
            for start, stop, document_hash in data["ranges"]
        )
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error!r}): {MEND}") from error
