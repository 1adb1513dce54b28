"""Results as lm-eval writes them, MODEL/results_DATE.json: one file a variant, our settings as its `config`.

`prunebench import` reads these files too. Columns that differ in their keys are tasks of their own.
"""

import json
from typing import Any

from prunebench.core.fingerprint import Json
from prunebench.report.columns import Column
from prunebench.report.evaluated import Evaluated

DIRECTIONS = {"higher": True, "lower": False, "": None}


def results_name(one: Evaluated) -> str:
    """The name of the file, with its date as lm-eval writes it."""
    date = "" if one.at is None else f"_{one.at.replace(tzinfo=None).isoformat()}".replace(":", "-")
    return f"results{date}.json"


def lm_eval_results(one: Evaluated) -> dict[str, Json]:
    """The document of one variant."""
    results: dict[str, dict[str, Json]] = {}
    better: dict[str, dict[str, Json]] = {}
    counts: dict[str, Json] = {}
    columns: dict[str, Column] = {}
    for column, cell, value in one.results():
        own = results.setdefault(column.name, {"alias": column.name})
        metric = column.metric.name
        own[f"{metric},none"] = value
        own[f"{metric}_stderr,none"] = "N/A" if cell.stderr is None else cell.stderr
        better.setdefault(column.name, {})[metric] = DIRECTIONS[column.metric.better]
        counts[column.name] = {"original": cell.count, "effective": cell.count}
        columns[column.name] = column
    variant = one.row.variant
    return {
        "results": results,
        "group_subtasks": {name: [] for name in results},
        "configs": {name: _config(column) for name, column in columns.items()},
        "versions": {name: column.key["task_version"] for name, column in columns.items()},
        "n-shot": {name: _recipe(column).get("shots", 0) for name, column in columns.items()},
        "higher_is_better": better,
        "n-samples": counts,
        "config": {
            "model": "prunebench",
            "model_args": {name: variant[name] for name in ("plan_id", "dtype", "attention", "weights_id")},
            "model_num_parameters": variant["total_params"],
            "model_dtype": variant["dtype"],
        },
        "date": one.timestamp,
        "model_source": "prunebench",
        "model_name": one.name,
        "model_name_sanitized": one.file_name,
        "prunebench": {
            "version": one.version,
            **{name: variant[name] for name in ("method", "params_json", "budget_layers", "variant_key")},
        },
    }


def _recipe(column: Column) -> dict[str, Any]:
    return json.loads(column.key["recipe"] or "{}")


def _config(column: Column) -> Json:
    key = {name: text for name, text in column.key.items() if text and name != "recipe"}
    return {"task": column.name, "metadata": {**key, "recipe": _recipe(column)}}
