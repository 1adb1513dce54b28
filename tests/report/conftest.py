"""Synthetic stores, written through the store's own API."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prunebench.core.fingerprint import canonical_json, sha256_json, sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.core.unit import Sample, StatsDone, Unit, UnitDone
from prunebench.store.artifacts import save_exam, save_plan, save_stats, save_variant
from prunebench.store.derive import derive_results
from prunebench.store.ledger import Ledger
from prunebench.store.record import Variant
from prunebench.store.runs import RunLog

SHAPE = ModelShape(
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    block_extra_params=1152,
    other_params=28_312_128,
)
CORPUS = sha256_text("calibration")


def small(num_layers: int = 6) -> ModelShape:
    """A shape of few layers for hand-worked numbers: attention 48, MLP 96 parameters a layer."""
    return ModelShape(
        num_layers=num_layers,
        hidden_size=4,
        intermediate_size=8,
        num_heads=2,
        num_kv_heads=1,
        head_dim=2,
        block_extra_params=8,
        other_params=100,
    )


@dataclass
class StoreBuilder:
    """One run on a new store: ask variants, give documents their scores, finish."""

    root: Path
    shape: ModelShape
    model: str = "tiny"
    record: dict[str, Any] = field(
        default_factory=lambda: {"command": ["prunebench", "run"], "kind": "benchmark"}
    )

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.root)
        self.log = RunLog.start(self.root, self.record, run_id="20260101T000000-abcdef")
        self.weights_id = sha256_text(self.model)

    def variant(self, method: str, plan: PruningPlan | None, budget: int | str = 0, **more: Any) -> Variant:
        """Ask for a variant; `plan` None is a hole."""
        told: dict[str, Any] = {"params_json": "{}", **more}
        if plan is not None:
            save_plan(self.root, plan)
            told |= {
                "plan_id": plan.plan_id,
                "removed_layers": plan.removed_layers,
                "removed_params": plan.removed_params(self.shape),
                "total_params": plan.total_params(self.shape),
            }
        told.setdefault("budget_layers", budget)
        variant = Variant(
            model=self.model,
            weights_id=self.weights_id,
            dtype="float32",
            attention="sdpa",
            method=method,
            budget=str(budget),
            num_layers=self.shape.num_layers,
            projection_params=self.shape.num_layers * self.shape.params_per_layer,
            **told,
        )
        save_variant(self.root, variant)
        self.log.variant(variant.variant_key)
        return variant

    def dense(self) -> PruningPlan:
        """Ask for the dense row."""
        plan = PruningPlan.dense(self.shape.num_layers)
        self.variant("dense", plan)
        return plan

    def task(
        self,
        name: str,
        num_documents: int,
        recipe: Any = None,
        execution: str = "padded",
        *,
        size: int = 16,
        task_version: str = "1",
        backend: str = "hf",
        seed: int = 0,
        generation: str = "",
    ) -> list[Unit]:
        """Ask for a task; its ranges hold up to `size` documents."""
        units = [
            Unit(
                weights_id=self.weights_id,
                tokenizer_hash=sha256_text("tokenizer"),
                plan_id=PruningPlan.dense(self.shape.num_layers).plan_id,
                task=name,
                task_version=task_version,
                backend=backend,
                seed=seed,
                generation=generation,
                recipe=canonical_json(recipe or {"kind": name}),
                document_hash=sha256_text(f"{name} {start}"),
                start=start,
                stop=min(start + size, num_documents),
                dtype="float32",
                execution=execution,
                attention="sdpa",
                scorer_version="1",
            )
            for start in range(0, num_documents, size)
        ]
        self.log.exam(save_exam(self.root, units))
        return units

    def score(
        self,
        plan: PruningPlan,
        units: Sequence[Unit],
        metric: str,
        values: Sequence[float],
        weight: float = 1.0,
    ) -> None:
        """Give the documents of a task their values; the tasks's ranges without values stay missing."""
        for unit in units:
            own = values[unit.start : unit.stop]
            if not len(own):
                continue
            samples = tuple(
                Sample(
                    doc_id=i, doc_hash=sha256_text(str(i)), metric=metric, value=float(value), weight=weight
                )
                for i, value in enumerate(own, start=unit.start)
            )
            self.add(plan, unit, samples)

    def add(self, plan: PruningPlan, unit: Unit, samples: tuple[Sample, ...]) -> None:
        """Commit one unit."""
        done = UnitDone(unit=unit.for_plan(plan.plan_id), samples=samples, seconds=1.0)
        self.log.unit(done.unit, worker="w", host="h", seconds=1.0, attempt=1)
        self.ledger.commit(done)

    def calibration(
        self,
        similarity_BB: np.ndarray,
        corpus_id: str = CORPUS,
        *,
        shard: bool = False,
        masd_L: Sequence[float] = (),
    ) -> None:
        """Keep whole statistics of a calibration, or with `shard` a part of them."""
        source = sha256_json(
            {"weights": self.weights_id, "dtype": "float32", "attention": "sdpa", "corpus": corpus_id}
        )
        layers, features = self.shape.num_layers, self.shape.intermediate_size
        per_layer = np.ones(layers)
        stats = CalibrationStats(
            source=source,
            tokens=4096,
            hidden_size=self.shape.hidden_size,
            cosine_BB=similarity_BB * 4096,
            cosine_normed_L=per_layer,
            cosine_attention_L=per_layer,
            cosine_mlp_L=per_layer,
            squared_change_L=per_layer,
            absolute_change_L=np.array(masd_L) * 4096 * self.shape.hidden_size if masd_L else per_layer,
            feature_sum_LI=np.zeros((layers, features)),
            feature_square_LI=np.zeros((layers, features)),
            attention_sum_LA=np.zeros((layers, 4)),
            attention_square_LA=np.zeros((layers, 4)),
        )
        key = sha256_json({"source": source, "start": 0, "stop": 1}) if shard else source
        save_stats(self.root, StatsDone(key=key, data=stats.to_bytes(), seconds=0.0))

    def weights(self, cka_LL: np.ndarray) -> None:
        """Keep weight statistics with similarities between layers."""
        layers = self.shape.num_layers
        stats = WeightStats(
            source=self.weights_id,
            norm_L7=1 + np.random.default_rng(0).random((layers, 7)),
            column_square_LI=np.ones((layers, self.shape.intermediate_size)),
            cka_o_LL=cka_LL,
            cka_down_LL=cka_LL,
        )
        key = sha256_json({"weights": self.weights_id, "cka": True})
        save_stats(self.root, StatsDone(key=key, data=stats.to_bytes(), seconds=0.0))

    def finish(self) -> Path:
        """End the run and derive the results."""
        self.ledger.close()
        self.log.end("done")
        self.log.close()
        derive_results(self.root)
        return self.root


@pytest.fixture(scope="session")
def build() -> Callable[..., StoreBuilder]:
    """Makes a run on a new store of a 6-layer model."""

    def builder_at(root: Path, **more: Any) -> StoreBuilder:
        return StoreBuilder(root, more.pop("shape", small()), **more)

    return builder_at


@pytest.fixture
def builder(build: Callable[..., StoreBuilder], tmp_path: Path) -> StoreBuilder:
    """A run on a new store of a 6-layer model."""
    return build(tmp_path / "store")
