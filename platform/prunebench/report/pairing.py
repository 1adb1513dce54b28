"""Two rows' samples side by side: the same document under the same key, seed by seed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from prunebench.core.unit import Unit
from prunebench.report.columns import KEY, Column, columns_of
from prunebench.report.statistics import Floats
from prunebench.store.artifacts import exam_group, exam_id, load_exam
from prunebench.store.read import samples_table

DOCUMENT = ["doc_hash", "copy"]
SCORES = ["value_a", "weight_a", "value_b", "weight_b"]


@dataclass(frozen=True, slots=True, eq=False)
class RowPair:
    """The samples of rows A and B.

    Columns beside the store's: `exam`, the exam's id; `group`, the same for exams that differ in nothing but
    the seed; `copy`, which numbers the copies of one document in an exam.
    """

    store: Path
    a: pd.DataFrame
    b: pd.DataFrame

    def columns(self) -> tuple[Column, ...]:
        """A column for each group and metric of either row; it counts the common documents."""
        both = pd.concat([self.a, self.b])
        exams = both.drop_duplicates("exam")[["exam", "group", "unit_json"]]
        units = {exam: Unit(**json.loads(text)) for exam, _, text in exams.itertuples(index=False)}
        rows = [
            {
                **{name: getattr(units[exam], name) for name in KEY},
                "exam_id": exam,
                "task": units[exam].task,
                "metric": metric,
                "num_examples": len(self.lines(group, metric)[DOCUMENT].drop_duplicates()),
                "status": "ok",
            }
            for group, metric, exam in both[["group", "metric", "exam"]]
            .drop_duplicates()
            .itertuples(index=False)
        ]
        return columns_of(rows, dict(exams[["exam", "group"]].itertuples(index=False)))

    def lines(self, group: str, metric: str) -> pd.DataFrame:
        """One line for each document under each seed that both rows have, with `SCORES` and statuses."""
        keys = ["exam", "seed", *DOCUMENT]
        wanted = [*keys, "value", "weight", "status"]
        first, second = (_of(frame, group, metric)[wanted] for frame in (self.a, self.b))
        return first.merge(second, on=keys, suffixes=("_a", "_b")).sort_values(keys, kind="stable")

    def missing(self, group: str, metric: str) -> tuple[int, int]:
        """Documents, seed by seed, that the exams ask (or the other row has) and A, or B, has no score of."""
        first, second = (_of(frame, group, metric) for frame in (self.a, self.b))
        counts = np.zeros(2, dtype=np.int64)
        for exam in sorted({*first["exam"], *second["exam"]}):
            own, other = (set(frame.loc[frame["exam"] == exam, "doc_id"]) for frame in (first, second))
            asked = {doc for unit in load_exam(self.store, exam) for doc in range(unit.start, unit.stop)}
            counts += len((asked | other) - own), len((asked | own) - other)
        return int(counts[0]), int(counts[1])

    def held_by(self, group: str, metric: str) -> str:
        """`A`, `B` or `AB`: which rows have samples."""
        frames = (("A", self.a), ("B", self.b))
        return "".join(letter for letter, frame in frames if len(_of(frame, group, metric)))


def read_pair(store: Path, a: Mapping[str, Any], b: Mapping[str, Any]) -> RowPair:
    """The samples of two variants.

    Raises:
        InputError: not a store, or a torn file, named.
    """
    table = samples_table(store, {a["plan_id"], b["plan_id"]})
    return RowPair(store, _samples(table, a), _samples(table, b))


def document_sums(lines: pd.DataFrame) -> tuple[Floats, Floats, Floats, Floats]:
    """`SCORES` summed over the seeds of each document, each of shape (documents,); a NaN stays one."""
    place = lines.groupby(DOCUMENT, sort=True).ngroup().to_numpy()
    # Not pandas' sum, which would skip a NaN.
    value_a, weight_a, value_b, weight_b = (
        np.bincount(place, weights=lines[name].to_numpy(np.float64)).astype(np.float64) for name in SCORES
    )
    return value_a, weight_a, value_b, weight_b


def _samples(table: pa.Table, variant: Mapping[str, Any]) -> pd.DataFrame:
    own = (pc.field("plan_id") == variant["plan_id"]) & (pc.field("weights_id") == variant["weights_id"])
    frame = table.filter(own).to_pandas()
    texts = frame.drop_duplicates("unit_id")[["unit_id", "unit_json"]].itertuples(index=False)
    units = {unit_id: Unit(**json.loads(text)) for unit_id, text in texts}
    setting = variant["dtype"], variant["attention"]
    same = {name: unit for name, unit in units.items() if (unit.dtype, unit.attention) == setting}
    frame = frame[frame["unit_id"].isin(list(same))].copy()
    frame["exam"] = frame["unit_id"].map({name: exam_id(unit) for name, unit in same.items()}).astype(str)
    frame["group"] = frame["unit_id"].map({name: exam_group(unit) for name, unit in same.items()}).astype(str)
    keys = ["exam", "metric", "doc_hash"]
    frame = frame.sort_values([*keys, "doc_id"], kind="stable")
    frame["copy"] = frame.groupby(keys).cumcount()
    return frame


def _of(frame: pd.DataFrame, group: str, metric: str) -> pd.DataFrame:
    return frame[(frame["group"] == group) & (frame["metric"] == metric)]
