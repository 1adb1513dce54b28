"""What is derived from a study, and written anew by each run: its trials, their values, and its record."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.errors import InputError
from prunebench.store.append import MEND, parquet_bytes, write_atomic
from prunebench.store.keyed import read_parquet
from prunebench.store.layout import check_store, file_key
from prunebench.store.schema import TRIAL_VALUES, TRIALS, table_of


class Trial(Protocol):
    """One setting of a study."""

    @property
    def trial(self) -> int | None:
        """Its number."""

    @property
    def state(self) -> str:
        """complete, infeasible, stopped, failed or open."""

    @property
    def method(self) -> str:
        """The branch of the space."""

    @property
    def params(self) -> Mapping[str, Any]:
        """What was searched."""

    @property
    def values(self) -> Mapping[str, float]:
        """By objective, in their order; empty where there are none."""

    @property
    def plan_id(self) -> str | None:
        """The plan, where it came to one."""

    @property
    def variant_key(self) -> str | None:
        """The variant, where it was planned."""

    @property
    def error(self) -> str | None:
        """Why it has no value, or does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A study as the store holds it."""

    record: Mapping[str, Any]
    """What the search came to: objectives, counts, chosen settings, rules, importances, pieces."""
    trials: tuple[Mapping[str, Any], ...]
    """The rows of `schema.TRIALS`, each with `values`: objective -> value."""


def save_study(root: Path, study: str, record: Mapping[str, Json], trials: Sequence[Trial]) -> None:
    """Write trials/STUDY.parquet, trials/STUDY.values.parquet and trials/STUDY.json."""
    rows = [
        {
            "study": study,
            "trial": one.trial,
            "state": one.state,
            "method": one.method,
            "params_json": canonical_json(dict(one.params)),
            "value": next(iter(one.values.values()), None),
            "plan_id": one.plan_id,
            "variant_key": one.variant_key,
            "error": one.error,
        }
        for one in trials
    ]
    values = [
        {"study": study, "trial": one.trial, "objective": name, "value": value}
        for one in trials
        for name, value in one.values.items()
    ]
    name = file_key(study)
    write_atomic(root / "trials" / f"{name}.parquet", parquet_bytes(table_of(TRIALS, rows)))
    write_atomic(root / "trials" / f"{name}.values.parquet", parquet_bytes(table_of(TRIAL_VALUES, values)))
    # Last: a reader that finds the record finds the tables.
    write_atomic(root / "trials" / f"{name}.json", json.dumps(record, indent=1, ensure_ascii=False).encode())


def read_studies(root: Path) -> Iterator[StudyRecord]:
    """Every study of a store, by name.

    Raises:
        InputError: not a store, or a damaged file, named.
    """
    for path in sorted((check_store(root) / "trials").glob("[!.]*.json")):
        try:
            record = json.loads(path.read_text())
            name = record["study"]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} is damaged ({error!r}): {MEND}") from error
        values: dict[int, dict[str, float]] = {}
        for row in read_parquet(path.with_name(f"{name}.values.parquet"), TRIAL_VALUES).to_pylist():
            values.setdefault(row["trial"], {})[row["objective"]] = row["value"]
        trials = read_parquet(path.with_name(f"{name}.parquet"), TRIALS).to_pylist()
        told = ({**trial, "values": values.get(trial["trial"], {})} for trial in trials)
        yield StudyRecord(record=record, trials=tuple(told))
