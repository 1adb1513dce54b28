"""Results in the schema of Every Eval Ever (evalevalai.com), version 0.3.0: one document a variant.

The schema has no NaN and no infinity: results that are not finite are left out, and so are holes. Every
additional detail has to be text.
"""

from collections.abc import Iterator
from typing import Final

from prunebench.core.fingerprint import Json, canonical_json
from prunebench.report.board import Cell
from prunebench.report.columns import Column
from prunebench.report.evaluated import Evaluated
from prunebench.report.metrics import Metric

SCHEMA_VERSION: Final = "0.3.0"
ENGINES: Final = {"hf": "transformers", "vllm": "vllm"}
FROM_VARIANT = (
    *("weights_id", "plan_id", "variant_key", "dtype", "attention", "method", "params_json", "chosen_json"),
    *("budget", "budget_layers", "num_layers", "removed_params", "total_params"),
    *("calibration", "calibration_id"),
)


def evaluation_log(one: Evaluated) -> dict[str, Json]:
    """The document of one variant. Equal results give equal documents: times are those of the results."""
    variant, when = one.row.variant, f"{one.timestamp:.0f}"
    identity = f"{one.board.model}@{variant['plan_id']}"
    backends = dict.fromkeys(column.key["backend"] for column, _, _ in one.results())
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"prunebench/{identity}-{variant['variant_key']}/{when}",
        "evaluation_timestamp": when,
        "retrieved_timestamp": when,
        "source_metadata": {
            "source_name": "prunebench",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "prunebench", "version": one.version},
        "model_info": {
            "name": one.name,
            "id": identity,
            "inference_engine": {"name": ", ".join(ENGINES.get(name, name) for name in backends)},
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
                "removed_layers": canonical_json([int(layer) for layer in variant["removed_layers"]]),
                **{name: str(variant[name]) for name in FROM_VARIANT if variant[name] is not None},
            },
        },
        "evaluation_results": list(_results(one)),
    }


def _results(one: Evaluated) -> Iterator[Json]:
    for column, cell, value in one.results():
        details = {name: text for name, text in column.key.items() if text}
        yield {
            "evaluation_result_id": f"{column.group}/{column.metric.name}",
            "evaluation_name": column.name,
            "source_data": {
                "dataset_name": column.task,
                "source_type": "other",
                "additional_details": details,
            },
            "metric_config": _metric(column.metric),
            "score_details": {"score": value, "uncertainty": _uncertainty(cell), **_seeds(column, cell)},
        }


def _metric(metric: Metric) -> Json:
    """The metric's direction and range; a direction that is not known is said to be none."""
    unknown = {} if metric.better else {"additional_details": {"direction": "unknown"}}
    return {
        "metric_id": metric.name,
        "metric_name": metric.name,
        "lower_is_better": metric.better == "lower",
        "score_type": "continuous",
        "min_score": 0.0 if metric.better else "-Infinity",
        "max_score": 1.0 if metric.percent else "Infinity",
        **({"metric_unit": "proportion"} if metric.percent else {}),
        **unknown,
    }


def _uncertainty(cell: Cell) -> Json:
    error = {} if cell.stderr is None else {"standard_error": {"value": cell.stderr, "method": "analytic"}}
    return {**error, **({} if cell.count is None else {"num_samples": cell.count})}


def _seeds(column: Column, cell: Cell) -> dict[str, Json]:
    """What a mean over seeds is of; nothing under one seed."""
    if cell.sd is None:
        return {}
    return {"details": {"mean_over_seeds": column.key["seed"], "sample_sd_over_seeds": repr(cell.sd)}}
