"""Files that lm-eval writes: results_DATE.json, and samples_TASK_DATE.jsonl beside it.

Groups are left out: they are means over tasks that have rows of their own.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prunebench.core.fingerprint import canonical_json, sha256_json, sha256_text
from prunebench.errors import InputError

RESULTS, SAMPLES = "results", "samples"
STDERR = "_stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEvalRun:
    """One results file with its samples, as rows of `schema.EXTERNAL_RESULTS` and `EXTERNAL_SAMPLES`."""

    external_id: str
    """First 16 hex digits over the file's text: the same file is the same run."""
    results: tuple[Mapping[str, Any], ...]
    samples: tuple[Mapping[str, Any], ...] = field(repr=False)


def results_files(path: Path) -> list[Path]:
    """The results files that a path means: itself, or all below a folder.

    Raises:
        InputError: nothing there, or a folder without any.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"there is no file or folder {path}")
    found = sorted(path.rglob(f"{RESULTS}*.json"))
    if not found:
        raise InputError(f"the folder {path} holds no {RESULTS}*.json of lm-eval")
    return found


def read_lm_eval(path: Path, name: str = "") -> LmEvalRun:
    """Read one results file and the samples files of the same date in its folder.

    Args:
        path: results_DATE.json.
        name: what the rows are called; by default lm-eval's name of the model.

    Raises:
        InputError: a file that is not lm-eval's, or a damaged line of samples, named.
    """
    try:
        text = path.read_text()
        document = json.loads(text)
        about = {"external_id": sha256_text(text)[:16], "source": path.name, **_about(document)}
        results = document[RESULTS]
        rows = [row for task, metrics in results.items() for row in _metrics(document, task, metrics)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no results file of lm-eval ({error!r})") from error
    if not rows:
        raise InputError(f"{path} holds no result")
    about["name"] = name or about["name"] or path.stem
    date = path.stem.removeprefix(RESULTS)
    files = [(task, path.parent / f"{SAMPLES}_{task}{date}.jsonl") for task in results]
    samples = [
        {"external_id": about["external_id"], "task": task, **sample}
        for task, file in files
        if file.is_file()
        for sample in _samples(file)
    ]
    return LmEvalRun(
        external_id=about["external_id"],
        results=tuple({**about, **row} for row in rows),
        samples=tuple(samples),
    )


def document_hash(arguments: list[list[Any]], row: Mapping[str, Any]) -> str:
    """64 hex digits over all that is asked of a document and its row, as `evaluation.harness` makes them."""
    return sha256_json([arguments, json.dumps(row, ensure_ascii=False, sort_keys=True)])


def _about(document: Mapping[str, Any]) -> dict[str, Any]:
    """What all results of a file have in common."""
    config = document.get("config") or {}
    date = document.get("date")
    return {
        "name": str(document.get("model_name") or config.get("model") or ""),
        "model_args": canonical_json(config.get("model_args")),
        "harness": "prunebench" if "prunebench" in document else "lm_eval",
        "harness_version": str(
            document.get("lm_eval_version") or (document.get("prunebench") or {}).get("version") or ""
        ),
        "evaluated_at": None if date is None else datetime.fromtimestamp(float(date), UTC),
    }


def _metrics(document: Mapping[str, Any], task: str, metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The numbers of one task; a group has none of its own where its members are listed."""
    if document.get("group_subtasks", {}).get(task):
        return
    counts = document.get("n-samples", {}).get(task) or {}
    for name, value in metrics.items():
        metric, comma, kind = name.partition(",")
        if not comma or metric.endswith(STDERR) or isinstance(value, bool | str) or value is None:
            continue
        stderr = metrics.get(f"{metric}{STDERR},{kind}")
        shots = document.get("n-shot", {}).get(task)
        yield {
            "task": task,
            "task_version": str(document.get("versions", {}).get(task, "")),
            "shots": None if shots is None else int(shots),
            "metric": metric,
            "filter": kind,
            "value": float(value),
            "stderr": float(stderr) if isinstance(stderr, int | float) else None,
            "num_examples": counts.get("effective"),
            "higher_is_better": (document.get("higher_is_better", {}).get(task) or {}).get(metric),
            "config_json": json.dumps(document.get("configs", {}).get(task), sort_keys=True),
        }


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    """Every score of every document; what is no number (or a sum with its weight) is left out."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            sample = json.loads(line)
            asked = document_hash(_arguments(sample["arguments"]), sample["doc"])
            found = {name: sample[name] for name in sample["metrics"]}
            about = {"filter": sample.get("filter", "none"), "doc_id": int(sample["doc_id"])}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is damaged in line {number} ({error!r})") from error
        for metric, value in found.items():
            score = _score(value)
            if score is not None:
                yield {**about, "doc_hash": asked, "metric": metric, "value": score[0], "weight": score[1]}


def _arguments(value: Any) -> list[list[Any]]:  # noqa: ANN401 (JSON of either form)
    """Arguments of each request: lm-eval writes {"gen_args_0": {"arg_0": …}}, older releases lists."""
    if isinstance(value, dict):
        return [list(value[f"gen_args_{i}"].values()) for i in range(len(value))]
    return [list(request) for request in value]


def _score(value: Any) -> tuple[float, float] | None:  # noqa: ANN401 (whatever a task's metric is)
    """(value, weight); perplexities come as a log-likelihood and what it is divided by."""
    match value:
        case int() | float():
            return float(value), 1.0
        case [int() | float() as total, int() | float() as weight]:
            return float(total), float(weight)
    return None
