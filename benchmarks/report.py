"""The report of a large store: seconds, memory and size of the page.

Run by hand: python benchmarks/report.py [--models 3] [--seeds 27] [--documents 10] [--keep FOLDER]

With the defaults the store has 99,630 result rows and 996,300 samples: 3 models, 10 methods at 4 budgets and
the dense model, 15 tasks of 2 metrics under 27 seeds. The page whose size is of interest has one model, one
metric and one seed.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from prunebench.core.fingerprint import canonical_json, sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Unit
from prunebench.pipeline.provenance import provenance
from prunebench.report.render import write_report
from prunebench.store.append import parquet_bytes, write_atomic
from prunebench.store.artifacts import exam_id, save_exam, save_plan, save_variant
from prunebench.store.derive import derive_results
from prunebench.store.layout import content_name, open_store
from prunebench.store.record import Variant
from prunebench.store.runs import RunLog
from prunebench.store.samples import OF_A_UNIT
from prunebench.store.schema import SAMPLES, SCHEMA_VERSION

LAYERS = 30
BUDGETS = (3, 5, 7, 9)
METHODS = ("shortgpt", "llm_streamline", "lorp", "wrp", "simdiff_mssd", "simdiff_masd", "laco", "layertrim")
SANITY = ("last_n", "random")
METRICS = ("acc", "acc_norm")
KEYED = (*OF_A_UNIT, "unit_id", "start", "stop", "document_hash")
"""Columns of samples that a unit names."""


def plan_of(method: int, budget: int) -> PruningPlan:
    """Layers that lie apart, so that no two methods choose the same."""
    return PruningPlan.without({(method + place * 3) % LAYERS for place in range(budget)}, LAYERS)


def variants_of(model: str) -> Iterator[tuple[Variant, PruningPlan]]:
    """The dense row and every method at every budget."""
    asked = [("dense", 0), *product((*METHODS, *SANITY), BUDGETS)]
    for place, (method, budget) in enumerate(asked):
        plan = plan_of(place, budget) if budget else PruningPlan.dense(LAYERS)
        yield (
            Variant(
                model=model,
                weights_id=sha256_text(model),
                dtype="bfloat16",
                attention="sdpa",
                method=method,
                params_json="{}",
                budget=str(budget),
                budget_layers=budget,
                num_layers=LAYERS,
                projection_params=LAYERS * 3_000_000,
                plan_id=plan.plan_id,
                removed_layers=plan.removed_layers,
                removed_params=budget * 3_000_000,
                total_params=(LAYERS - budget) * 3_000_000 + 28_000_000,
            ),
            plan,
        )


def exams_of(model: str, tasks: int, seeds: int, documents: int) -> Iterator[Unit]:
    """One unit for each task and seed."""
    for task, seed in product(range(tasks), range(seeds)):
        yield Unit(
            weights_id=sha256_text(model),
            tokenizer_hash=sha256_text("tokenizer"),
            plan_id="",
            task=f"task{task:02d}",
            task_version="1",
            recipe=canonical_json({"kind": "choice", "shots": 5, "limit": documents}),
            document_hash=sha256_text(f"{task}"),
            start=0,
            stop=documents,
            dtype="bfloat16",
            attention="sdpa",
            scorer_version="1",
            seed=seed,
        )


def samples_of(units: list[Unit], metrics: tuple[str, ...], draw: np.random.Generator) -> pa.Table:
    """Every document of the units under every metric, sorted by unit."""
    units = sorted(units, key=lambda unit: unit.unit_id)
    documents = units[0].stop
    rows = documents * len(metrics)
    place = pa.array(np.repeat(np.arange(len(units)), rows))
    document = np.tile(np.repeat(np.arange(documents), len(metrics)), len(units))
    quality = np.array([0.4 + 0.4 * (int(unit.plan_id, 16) % 97) / 97 for unit in units])
    right = draw.random(len(place)) < np.repeat(quality, rows)
    texts = {name: [getattr(unit, name) for unit in units] for name in SAMPLES.names if name in KEYED}
    texts["exam_id"] = [exam_id(unit) for unit in units]
    columns = {name: pa.array(values).take(place) for name, values in texts.items()}
    columns |= {
        "schema_version": pa.repeat(SCHEMA_VERSION, len(place)),
        "doc_id": pa.array(document),
        "doc_hash": pa.array([sha256_text(str(i)) for i in range(documents)]).take(pa.array(document)),
        "metric": pa.array(metrics * (documents * len(units))),
        "value": pa.array(right.astype(np.float64)),
        "weight": pa.repeat(1.0, len(place)),
        "detail_json": pa.repeat("{}", len(place)),
        "status": pa.repeat("ok", len(place)),
        "unit_json": pa.array([canonical_json(unit.to_json()) for unit in units]).take(place),
    }
    return pa.table({name: columns[name] for name in SAMPLES.names}).cast(SAMPLES)


def fill(
    root: Path, models: int, tasks: int, seeds: int, documents: int, metrics: tuple[str, ...] = METRICS
) -> None:
    """Make the store, one run and one part a model."""
    open_store(root)
    draw = np.random.default_rng(0)
    for number in range(models):
        model = f"model-{number:02d}"
        run = RunLog.start(
            root, {**provenance(), "kind": "benchmark", "experiment": {"model": model}}, f"r{number}"
        )
        exams = list(exams_of(model, tasks, seeds, documents))
        units = []
        for unit in exams:
            run.exam(save_exam(root, [unit]))
        for variant, plan in variants_of(model):
            save_plan(root, plan)
            save_variant(root, variant)
            run.variant(variant.variant_key)
            for exam in exams:
                unit = replace(exam, plan_id=plan.plan_id)
                run.unit(unit, worker="w", host="h", seconds=0.1, attempt=1)
                units.append(unit)
        run.end("done")
        run.close()
        data = parquet_bytes(samples_of(units, metrics, draw))
        write_atomic(root / "samples" / f"part-{content_name(data)}.parquet", data)


def report(root: Path, out: Path) -> None:
    """What `prunebench report` does, in a process of its own: its time and its peak of memory."""
    wall, cpu = time.perf_counter(), time.process_time()
    results = len(derive_results(root))
    derived = time.perf_counter() - wall
    page = write_report(root, out).html
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{results} results: {wall:.1f} s, of which {derived:.1f} s derive them ({cpu:.1f} s of CPU time), "
        f"{memory:.2f} GiB, page of {page.stat().st_size / 1e6:.2f} MB"
    )


def measured(root: Path, out: Path) -> None:
    """`report` in a fresh process."""
    sys.stdout.flush()
    command = [sys.executable, __file__, "--report", str(root), str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=27)
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a folder for the stores, kept and used again")
    parser.add_argument("--report", type=Path, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.report:
        report(*arguments.report)
        return
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as folder:
        base = arguments.keep or Path(folder)
        for name, models, seeds, documents, metrics in (
            ("page", 1, 1, 100, METRICS),
            ("large", arguments.models, arguments.seeds, arguments.documents, METRICS),
        ):
            root = base / name
            if not root.exists():
                fill(root, models, arguments.tasks, seeds, documents, metrics)
            measured(root, base / f"{name}-report")
    print("targets: 10 s and 2 GiB for 100,000 results and 1,000,000 samples; 1 MB for the first page")


if __name__ == "__main__":
    main()
