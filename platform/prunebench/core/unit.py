"""Units (what is recorded), work items (what the executor moves) and the messages that come back.

A unit is one plan on one fixed document range of one task. Its id is the sha256 of its canonical JSON, so it
is idempotent and shared between runs, methods and executors.
"""

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from prunebench.core.fingerprint import sha256_json
from prunebench.core.plan import PruningPlan

KEY_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The key of one recorded evaluation: everything that may change its numbers, and nothing else."""

    weights_id: str
    tokenizer_hash: str
    plan_id: str
    task: str
    task_version: str
    recipe: str
    """Canonical JSON of the task's settings."""
    document_hash: str
    """sha256 over the hashes of the documents in the range."""
    start: int
    stop: int
    dtype: str
    attention: str
    scorer_version: str
    backend: str = "hf"
    execution: str = "padded"
    seed: int = 0
    generation: str = ""
    """Canonical JSON of the sampling parameters; empty where nothing is generated."""
    template_hash: str = ""
    backend_version: str = ""
    """vLLM's version for generations, else empty."""
    key_version: int = KEY_VERSION

    def to_json(self) -> dict[str, str | int]:
        """The key as flat JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @functools.cached_property
    def unit_id(self) -> str:
        """64 hex digits of the sha256 of the canonical JSON."""
        return sha256_json(self.to_json())

    @functools.cached_property
    def generation_id(self) -> str:
        """64 hex digits of the key without the scorer: what was written is the same whoever grades it."""
        return replace(self, scorer_version="").unit_id

    def for_plan(self, plan_id: str) -> "Unit":
        """The same range under another plan."""
        return replace(self, plan_id=plan_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One metric of one document; the metric names how Σ value and Σ weight become its aggregate."""

    doc_id: int
    doc_hash: str
    metric: str
    value: float
    weight: float = 1.0
    """Tokens, bytes or 1."""
    detail: str = "{}"
    """Canonical JSON of what led to the value, for people who look at one document."""
    status: str = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a model wrote after one prompt, kept apart from its scores."""

    prompt_hash: str
    """64 hex digits of the sha256 of the prompt's token ids."""
    text: str
    num_prompt_tokens: int
    num_tokens: int
    """Tokens written, the end token included."""
    finish_reason: str
    """`stop`, or `length` where the limit on tokens cut the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateItem:
    """One document range of one task under several plans."""

    model: str
    kind: str
    """Name of the evaluator."""
    unit: Unit
    """The key of the range; `unit.for_plan` gives each plan's."""
    documents: tuple[Any, ...]
    """The range's `data.tasks.Document`s."""
    plans: tuple[PruningPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateItem:
    """One plan on many documents and seeds, each of them a unit that is reported as it finishes."""

    model: str
    engine: str
    """Name of the engine."""
    plan: PruningPlan
    units: tuple[Unit, ...]
    documents: tuple[Any, ...]
    """The `data.tasks.Document` of each unit, with a `Question`."""
    known: Mapping[str, Generation] = field(default_factory=dict)
    """Generation id -> what an earlier run or attempt left: these units are only scored."""

    @property
    def unit_ids(self) -> tuple[str, ...]:
        """The id of each unit."""
        return tuple(unit.unit_id for unit in self.units)

    def only(self, unit_ids: Collection[str]) -> "GenerateItem":
        """The item with these units alone."""
        kept = [place for place, unit_id in enumerate(self.unit_ids) if unit_id in unit_ids]
        return replace(
            self,
            units=tuple(self.units[place] for place in kept),
            documents=tuple(self.documents[place] for place in kept),
            known={
                generation_id: self.known[generation_id]
                for place in kept
                if (generation_id := self.units[place].generation_id) in self.known
            },
        )

    def with_known(self, generation_id: str, generation: Generation) -> "GenerateItem":
        """The item after one of its texts was written."""
        return replace(self, known={**self.known, generation_id: generation})


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateItem:
    """One shard of one calibration; `key` names its result in the store."""

    key: str
    model: str
    source: str
    """What the sums are of: weights, dtype, attention and token ids of the whole calibration."""
    rows: tuple[npt.NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsItem:
    """Streamed weight statistics of one checkpoint, with or without the similarities between layers."""

    key: str
    model: str
    cka: bool
    memory: int | None = None
    """Bytes that the similarities may take; None for no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One method that has to ask a probe, with what the probe already answered."""

    key: str
    model: str
    method: str
    params: Any
    """The method's own frozen dataclass."""
    budget: int
    calibration: bytes | None
    """Serialised `CalibrationStats` where the method needs them."""
    weights: bytes | None
    """Serialised `WeightStats` where the method needs them."""
    corpus_id: str
    rows: tuple[npt.NDArray[np.int64], ...]
    """The probe corpus."""
    remembered: Mapping[str, float] = field(default_factory=dict)
    """Probe call id -> answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherItem:
    """Items of one model that is read block by block: each block is read once for all of them."""

    model: str
    items: tuple[CalibrateItem | EvaluateItem, ...]
    """Shards of one calibration, or ranges of tasks of one kind."""


WorkItem: TypeAlias = EvaluateItem | GenerateItem | CalibrateItem | WeightsItem | PlanItem | TogetherItem


def units_of(item: WorkItem) -> Iterator[Unit]:
    """The units that an item is about; none for other work."""
    match item:
        case EvaluateItem():
            yield from (item.unit.for_plan(plan.plan_id) for plan in item.plans)
        case GenerateItem():
            yield from item.units
        case TogetherItem():
            for part in item.items:
                yield from units_of(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDone:
    """The samples of one unit."""

    unit: Unit
    samples: tuple[Sample, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What was written for one unit; it is stored before the unit's samples."""

    unit: Unit
    generation: Generation
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsDone:
    """Serialised statistics of a calibration shard or a checkpoint."""

    key: str
    data: bytes
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswered:
    """One answer of a probe, remembered under its call id."""

    call_id: str
    call: str
    """Canonical JSON of the call: weights, corpus, question, plan."""
    value: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDone:
    """A probe method's plan, or why there is none."""

    key: str
    plan: str | None
    chosen: str
    warnings: tuple[str, ...]
    seconds: float
    unreachable: str = ""
    others: tuple[str, ...] = ()
    """Plans that meet the budget as well, where the parameters ask for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An exception in evaluation code: `keys` are the unit ids (or the item's key) that got no result."""

    keys: tuple[str, ...]
    error: str
    traceback: str


Message: TypeAlias = UnitDone | Generated | StatsDone | ProbeAnswered | PlanDone | Failed
