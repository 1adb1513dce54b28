"""One document scored by lm-eval's own filters and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from prunebench.errors import InputError
from prunebench.evaluation.harness.build import Asked, LmEvalTask

NO_FILTER = "none"


@dataclass(frozen=True, slots=True)
class Scores:
    """What one document's responses are worth."""

    metrics: dict[str, float]
    """By lm-eval's name, with the filter's name behind it where there is one: exact_match_strict_match."""
    filtered: dict[str, list[Any]]
    """Filter -> what it left of each response."""


def score(task: LmEvalTask, asked: Asked, responses: Sequence[Any]) -> Scores:
    """Filter the responses to the document's requests and measure them.

    Args:
        task: lm-eval's task.
        asked: the document.
        responses: one a request: (log-likelihood, is greedy), or text.

    Raises:
        InputError: lm-eval cannot score this document.
    """
    try:
        return _score(task, asked, responses)
    except Exception as error:  # a task's own functions raise whatever they come upon in a row
        raise InputError(
            f"lm-eval cannot score document {asked.requests[0].doc_id} of {task.task_name}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _score(task: LmEvalTask, asked: Asked, responses: Sequence[Any]) -> Scores:
    instances = [
        replace(request, resps=[response], filtered_resps={})
        for request, response in zip(asked.requests, responses, strict=True)
    ]
    for pipeline in task._filters:
        pipeline.apply(instances)
    scores = Scores({}, {})
    for name in instances[0].filtered_resps:
        left = [instance.filtered_resps[name] for instance in instances]
        scores.filtered[name] = left
        behind = "" if name == NO_FILTER else f"_{name.replace('-', '_')}"
        for metric, value in task.process_results(asked.row, left).items():
            scores.metrics[f"{metric}{behind}"] = float(value)
    return scores
