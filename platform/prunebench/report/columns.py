"""Columns: one task and metric under one key, over its seeds. Unlike keys never share a column."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prunebench.core.fingerprint import canonical_json
from prunebench.report.metrics import METRICS, Metric, metric_named
from prunebench.report.source import OF_A_UNIT, parsed

KEY = ("backend", "execution", "dtype", "attention", "task_version", "seed", "recipe", *OF_A_UNIT)
"""What a column states besides task and metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One metric of one exam, or of exams that differ in nothing but the seed."""

    group: str
    """What its exams have in common: `store.artifacts.exam_group`, or the id of an exam that stands alone."""
    task: str
    metric: Metric
    num_examples: int | None
    """Documents; None where no row is complete."""
    key: Mapping[str, str]
    seeds: tuple[int, ...]
    exams: tuple[str, ...]
    """Id of the exam of each seed."""
    detail: str = ""
    """Settings that differ from another column of the same task and metric."""

    @property
    def exam_id(self) -> str:
        """The exam of the first seed."""
        return self.exams[0]

    @property
    def name(self) -> str:
        """The task, with what sets the column apart."""
        return f"{self.task} ({self.detail})" if self.detail else self.task

    @property
    def recipe(self) -> str:
        """The whole key in words, for the note below a table."""
        recipe = parsed(self.key["recipe"] or "{}")
        settings = {**{name: value for name, value in self.key.items() if name != "recipe"}, **recipe}
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


def columns_of(results: Iterable[Mapping[str, Any]], groups: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns of one model's results: perplexities first, then by task, key and metric.

    `groups` has the group of each exam id; an exam without one stands alone.
    """
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in results:
        if row["exam_id"] is not None:
            found[groups.get(row["exam_id"], row["exam_id"]), row["metric"] or ""].append(row)
    measured = {group for group, metric in found if metric}
    exams: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for (group, _), rows in found.items():
        exams[group] |= {(int(row["seed"]), row["exam_id"]) for row in rows}
    columns = [
        _column(group, metric, rows, sorted(exams[group]))
        for (group, metric), rows in found.items()
        if metric or group not in measured
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


def _column(
    group: str, metric: str, rows: Sequence[Mapping[str, Any]], exams: Sequence[tuple[int, str]]
) -> Column:
    counts = [int(row["num_examples"]) for row in rows if row["status"] == "ok"]
    seeds = ", ".join(str(seed) for seed, _ in exams)
    return Column(
        group=group,
        task=rows[0]["task"],
        metric=metric_named(metric),
        num_examples=max(counts, default=None),
        key={name: _text(rows[0].get(name, "")) for name in KEY} | {"seed": seeds},
        seeds=tuple(seed for seed, _ in exams),
        exams=tuple(exam for _, exam in exams),
    )


def _detail(column: Column, columns: Sequence[Column]) -> str:
    """How the column differs from others of its task and metric."""
    like = [other for other in columns if (other.task, other.metric) == (column.task, column.metric)]
    differing = [name for name in KEY if len({other.key[name] for other in like}) > 1]
    plain = [f"{name} {column.key[name]}" for name in differing if name != "recipe"]
    recipes = [parsed(other.key["recipe"] or "{}") for other in like]
    own = parsed(column.key["recipe"] or "{}")
    names = sorted({name for recipe in recipes for name in recipe})
    unlike = [name for name in names if len({canonical_json(recipe.get(name)) for recipe in recipes}) > 1]
    if len(like) > 1 and not plain and not unlike:
        return f"exam {column.exam_id[:8]}"
    return ", ".join([*plain, *(f"{name} {_text(own.get(name))}" for name in unlike)])


def _text(value: Any) -> str:  # noqa: ANN401 (one setting of a recipe)
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)


def _shown(value: Any) -> str:  # noqa: ANN401 (one setting of a recipe)
    """A setting for readers: quoted where it has spaces or line ends that would be lost."""
    return (
        value if isinstance(value, str) and value and not re.search(r"\s", value) else canonical_json(value)
    )
