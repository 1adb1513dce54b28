"""Columns: one task and metric under one key. Unlike keys never share a column."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prunebench.core.fingerprint import canonical_json
from prunebench.report.metrics import METRICS, Metric, metric_named
from prunebench.report.source import parsed

KEY = ("backend", "execution", "dtype", "attention", "task_version", "seed", "generation", "recipe")
"""What a column states besides task and metric."""
IN_JSON = ("generation", "recipe")
"""Those that are JSON of several settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One metric of one exam."""

    exam_id: str
    task: str
    metric: Metric
    num_examples: int | None
    """Documents; None where no row is complete."""
    key: Mapping[str, str]
    detail: str = ""
    """Settings that differ from another column of the same task and metric."""

    @property
    def seeds(self) -> int:
        """Number of seeds that its values are means over."""
        return self.key["seed"].count(",") + 1

    @property
    def name(self) -> str:
        """The task, with what sets the column apart."""
        return f"{self.task} ({self.detail})" if self.detail else self.task

    @property
    def recipe(self) -> str:
        """The whole key in words, for the note below a table."""
        plain = {name: value for name, value in self.key.items() if name not in IN_JSON}
        settings = {**plain, **_settings(self.key)}
        words = [
            f"{name.replace('_', ' ')} {_shown(value)}" for name, value in settings.items() if value != ""
        ]
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanColumn:
    """The mean of one metric over the tasks that share backend, execution, dtype and attention."""

    metric: Metric
    members: tuple[int, ...]
    """Places of its columns."""
    detail: str = ""

    @property
    def name(self) -> str:
        """What the column is headed with."""
        over = f"mean of {len(self.members)} tasks"
        return f"{over} ({self.detail})" if self.detail else over


def columns_of(results: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns of one model's results: perplexities first, then by task, key and metric."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in results:
        if row["exam_id"] is not None:
            groups[row["exam_id"], row["metric"] or ""].append(row)
    measured = {exam_id for exam_id, metric in groups if metric}
    columns = [
        _column(exam_id, metric, rows)
        for (exam_id, metric), rows in groups.items()
        if metric or exam_id not in measured
    ]
    rank = {name: place for place, name in enumerate(METRICS)}
    first: dict[str, int] = {}
    for column in columns:
        place = rank.get(column.metric.name, len(rank))
        first[column.task] = min(place, first.get(column.task, place))
    columns.sort(
        key=lambda c: (first[c.task], c.task, c.exam_id, rank.get(c.metric.name, len(rank)), c.metric.name)
    )
    return tuple(replace(column, detail=_detail(column, columns)) for column in columns)


def mean_columns(columns: Sequence[Column]) -> tuple[MeanColumn, ...]:
    """A mean for each metric that averages and has at least two tasks, each once, under one key."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, column in enumerate(columns):
        if column.metric.averages:
            like = tuple(column.key[name] for name in ("backend", "execution", "dtype", "attention"))
            groups[(column.metric.name, *like)].append(place)
    found = [
        (name, members)
        for name, members in groups.items()
        if len(members) > 1 and len({columns[place].task for place in members}) == len(members)
    ]
    named = [name[0] for name, _ in found]
    return tuple(
        MeanColumn(
            metric=columns[members[0]].metric,
            members=tuple(members),
            detail=" ".join(name[1:]) if named.count(name[0]) > 1 else "",
        )
        for name, members in found
    )


def _column(exam_id: str, metric: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    counts = [int(row["num_examples"]) for row in rows if row["status"] == "ok"]
    return Column(
        exam_id=exam_id,
        task=rows[0]["task"],
        metric=metric_named(metric),
        num_examples=max(counts, default=None),
        key={name: _text(rows[0][name]) for name in KEY},
    )


def _detail(column: Column, columns: Sequence[Column]) -> str:
    """How the column differs from others of its task and metric."""
    like = [other for other in columns if (other.task, other.metric) == (column.task, column.metric)]
    differing = [name for name in KEY if len({other.key[name] for other in like}) > 1]
    plain = [f"{name} {column.key[name]}" for name in differing if name not in IN_JSON]
    recipes = [_settings(other.key) for other in like]
    own = _settings(column.key)
    names = sorted({name for recipe in recipes for name in recipe})
    unlike = [name for name in names if len({canonical_json(recipe.get(name)) for recipe in recipes}) > 1]
    if len(like) > 1 and not plain and not unlike:
        return f"exam {column.exam_id[:8]}"
    return ", ".join([*plain, *(f"{name} {_text(own.get(name))}" for name in unlike)])


def _settings(key: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for part in IN_JSON for name, value in parsed(key[part] or "{}").items()}


def _text(value: Any) -> str:  # noqa: ANN401 (one setting of a recipe)
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)


def _shown(value: Any) -> str:  # noqa: ANN401 (one setting of a recipe)
    """A setting for readers: quoted where it has spaces or line ends that would be lost."""
    return (
        value if isinstance(value, str) and value and not re.search(r"\s", value) else canonical_json(value)
    )
