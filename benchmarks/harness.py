"""CPU seconds of lm-eval tasks under many plans: shared work against `simple_evaluate` plan by plan.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/harness.py --mirror FOLDER [--model builtin:smollm2-135m]

FOLDER is a mirror with the tasks' datasets, whose folders have dataset cards. Both sides use the one loaded
model, and lm-eval is given its index of tasks, a batch size and no bootstrap. The target is a ratio of at
most 0.5.
"""

import argparse
import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from prunebench.core.plan import PruningPlan
from prunebench.core.trie import count_nodes
from prunebench.core.unit import Sample
from prunebench.data.tasks import Document
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.harness.definitions import definition_of
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel, load_model, load_tokenizer
from prunebench.models.tokenizer import Encoder
from prunebench.models.view import ModelView
from variants import ORDERS

TASKS = ("arc_easy", "hellaswag", "winogrande")
METHODS = ("ShortGPT", "LLM-Streamline")
BUDGETS = (3, 5, 7, 9)
RANGE = 16
Values: TypeAlias = dict[tuple[PruningPlan, str, int, str], float]
"""By plan, task, document and metric."""


def shared(dense: DenseModel, plans: Sequence[PruningPlan], mirror: Path, limit: int) -> Values:
    """All plans together, range by range, as a worker does it; building the requests included."""
    values: Values = {}
    encoder = Encoder(dense.checkpoint)
    for name in TASKS:
        documents = harness_task(name, encoder, name=name, limit=limit, mirror=mirror).documents
        for start in range(0, limit, RANGE):
            for plan, samples in _evaluated(dense, plans, documents[start : start + RANGE]):
                values |= {(plan, name, sample.doc_id, sample.metric): sample.value for sample in samples}
    return values


def _evaluated(
    dense: DenseModel, plans: Sequence[PruningPlan], documents: Sequence[Document]
) -> Iterator[tuple[PruningPlan, tuple[Sample, ...]]]:
    for plan, samples in EVALUATORS["harness"].evaluate(dense, plans, documents):
        if isinstance(samples, Exception):
            raise samples
        yield plan, samples


def one_by_one(
    dense: DenseModel, plans: Sequence[PruningPlan], mirror: Path, limit: int, batch_size: int
) -> Values:
    """Each plan by lm-eval itself, in the mirror as working directory."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    folders: list[str | Path] = [*{definition_of(name).folder for name in TASKS}]
    manager = TaskManager(include_path=folders, include_defaults=False)
    tokenizer: Any = load_tokenizer(dense.checkpoint)
    values: Values = {}
    for plan in plans:
        with ModelView(dense).applied(plan) as model, contextlib.chdir(mirror):
            lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
            results: Mapping[str, Any] | None = lm_eval.simple_evaluate(
                lm, tasks=[*TASKS], task_manager=manager, limit=limit, bootstrap_iters=0
            )
        assert results is not None
        values |= {
            (plan, name, sample["doc_id"], metric): sample[metric]
            for name in TASKS
            for sample in results["samples"][name]
            for metric in sample["metrics"]
        }
    return values


def timed(work: Any, *arguments: Any) -> tuple[Values, float]:  # noqa: ANN401 (one of the two functions above)
    """What it gives, and its CPU seconds."""
    began = time.process_time()
    values = work(*arguments)
    return values, time.process_time() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--model", default="builtin:smollm2-135m", help="a 30-layer model")
    parser.add_argument("--documents", type=int, default=16, help="of each task")
    parser.add_argument("--batch-size", type=int, default=8, help="of lm-eval")
    options = parser.parse_args()
    mirror = options.mirror.resolve()

    torch.set_num_threads(1)
    dense = load_model(Checkpoint.open(options.model), dtype="float32")
    layers = dense.checkpoint.shape.num_layers
    plans = [PruningPlan.without(ORDERS[name][:budget], layers) for name in METHODS for budget in BUDGETS]

    # Imports, the processor's first products and lm-eval's own copies of the data are nobody's work.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HF_DATASETS_CACHE"] = cache
        one_by_one(dense, plans[:1], mirror, 1, options.batch_size)
        ours, shared_seconds = timed(shared, dense, plans, mirror, options.documents)
        theirs, seconds = timed(one_by_one, dense, plans, mirror, options.documents, options.batch_size)

    equal = sum(ours[key] == theirs[key] for key in theirs)
    blocks, nodes = sum(len(plan.layers) for plan in plans), count_nodes(plans)
    print(
        f"machine           {platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread"
    )
    print(f"model             {dense.checkpoint.name}, float32")
    print(f"tasks             {', '.join(TASKS)}, {options.documents} documents each, zero-shot")
    print(f"plans             {len(plans)}: {blocks} blocks separately, {nodes} nodes of the trie")
    print(
        f"CPU seconds       {seconds:.1f} by simple_evaluate in batches of {options.batch_size}, "
        f"{shared_seconds:.1f} shared"
    )
    print(f"ratio             {shared_seconds / seconds:.3f} (target: at most 0.5)")
    print(f"values            {equal} of {len(theirs)} equal")
    if shared_seconds > 0.5 * seconds or ours.keys() != theirs.keys() or equal != len(theirs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
