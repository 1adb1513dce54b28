"""lm-eval by itself: its own loading, prompts, model wrapper and scheduler."""

import contextlib
from pathlib import Path
from typing import Any

from prunebench.core.plan import PruningPlan
from prunebench.models.load import DenseModel, load_tokenizer
from prunebench.models.view import ModelView


def stock_manager(names: list[str]) -> Any:
    """lm-eval's own definitions of these tasks; indexing all 14,000 takes seconds."""
    from lm_eval.tasks import TaskManager

    from prunebench.evaluation.harness.definitions import definition_of

    folders: list[str | Path] = [*sorted({definition_of(name).folder for name in names})]
    return TaskManager(include_path=folders, include_defaults=False)


def simple_evaluate(lm: Any, names: list[str], mirror: Path, cache: Path, **settings: Any) -> dict[str, Any]:
    """`simple_evaluate` in the mirror as working directory, where stock definitions find ORG/NAME."""
    import datasets
    import lm_eval

    kept = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = cache
    try:
        with contextlib.chdir(mirror):
            results = lm_eval.simple_evaluate(
                lm, tasks=names, task_manager=stock_manager(names), bootstrap_iters=0, **settings
            )
    finally:
        datasets.config.HF_DATASETS_CACHE = kept
    assert results is not None
    return results


def stock_lm(model: Any, dense: DenseModel, **settings: Any) -> Any:
    """lm-eval's own wrapper around a model in memory."""
    from lm_eval.models.huggingface import HFLM

    tokenizer: Any = load_tokenizer(dense.checkpoint)
    return HFLM(pretrained=model, tokenizer=tokenizer, **settings)


def stock_scores(
    dense: DenseModel, plan: PruningPlan, names: list[str], mirror: Path, cache: Path, **settings: Any
) -> dict[str, Any]:
    """`simple_evaluate` on the model under a plan."""
    with ModelView(dense).applied(plan) as model:
        return simple_evaluate(stock_lm(model, dense, batch_size=8), names, mirror, cache, **settings)
