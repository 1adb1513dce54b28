"""What lm-eval says about a task before any data is read, and which tasks are refused.

lm-eval's own index of its 14,000 tasks takes 7 CPU seconds: a task is found by the line with its name
instead, and lm-eval indexes only its folder. Nothing here imports the code of a task.
"""

import difflib
import functools
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prunebench.errors import InputError, ResourceError, UnsupportedError

OUTPUT_TYPES = ("multiple_choice", "loglikelihood", "generate_until")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HARMLESS = {"trust_remote_code", "revision"}
"""Options of the dataset that do not change which rows a mirror holds."""
_DOWNLOADS = (b"evaluate.load(", b"load_dataset(", b"load_metric(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One task of lm-eval."""

    name: str
    folder: Path
    """With the task's YAML file."""
    output_type: str
    dataset: str
    """ORG/NAME or ORG/NAME/CONFIG."""
    split: str
    """Whose documents are asked."""
    examples_split: str | None
    """Whose documents are shown as examples; None where the definition lists them."""
    splits: tuple[str, ...]
    """Every split that the definition names."""
    own_shots: int | None
    """The number of examples that the definition sets."""

    def shots(self, asked: int | None) -> int:
        """How many examples are shown, by lm-eval's rules: what is asked, else the task's own, else none.

        Raises:
            InputError: a task that is defined without examples.
        """
        if asked is None:
            return self.own_shots or 0
        if self.own_shots == 0 and asked > 0:
            raise InputError(
                f"lm-eval defines the task {self.name} with 0 shots and takes no other number: "
                f"leave out shots: {asked}"
            )
        return asked

    def read_splits(self, shots: int) -> tuple[str, ...]:
        """The splits that a run with so many examples reads."""
        examples = self.examples_split if shots else None
        return tuple(dict.fromkeys(filter(None, (self.split, examples))))


def library_version() -> str:
    """lm-eval's version, such as `lm-eval 0.4.13`.

    Raises:
        ResourceError: it is not installed.
    """
    tasks_folder()
    return f"lm-eval {version('lm_eval')}"


@functools.cache
def tasks_folder() -> Path:
    """Where lm-eval keeps its definitions; it is not imported.

    Raises:
        ResourceError: it is not installed.
    """
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or spec.submodule_search_locations is None:
        raise ResourceError(
            "tasks of kind harness need lm-eval, which is not installed: pip install 'prunebench[harness]'"
        )
    return Path(spec.submodule_search_locations[0]) / "tasks"


@functools.cache
def definition_of(name: str) -> Definition:
    """The task of that name.

    Raises:
        InputError: lm-eval has no such task; the nearest name is told.
        UnsupportedError: it cannot be measured from a mirror with the store's metrics.
        ResourceError: lm-eval is not installed.
    """
    if name not in _names("task"):
        raise _unknown(name)
    from lm_eval.tasks import TaskManager

    folder = _names("task")[name].parent
    entry = TaskManager(include_path=folder, include_defaults=False).task_index[name]
    settings = entry.cfg or {}
    reason = _refusal(settings)
    if reason:
        raise UnsupportedError(f"the lm-eval task {name} {reason}")
    dataset = "/".join(filter(None, (settings["dataset_path"], settings.get("dataset_name"))))
    splits = [settings.get(f"{kind}_split") for kind in ("training", "validation", "test", "fewshot")]
    return Definition(
        name=name,
        folder=folder,
        output_type=settings["output_type"],
        dataset=dataset,
        split=settings.get("test_split") or settings["validation_split"],
        examples_split=_examples_split(settings),
        splits=tuple(dict.fromkeys(filter(None, (*splits, _examples_split(settings))))),
        own_shots=settings.get("num_fewshot"),
    )


@functools.cache
def _names(key: str) -> dict[str, Path]:
    """Every value of a key in lm-eval's YAML files, also in a list, and the first file that has it."""
    line = re.compile(rf"""^["']?{key}["']?:[ \t]*["']?([^\s"']+)["']?[ \t]*\r?$""".encode(), re.M)
    listed = re.compile(rf"^{key}:[ \t]*\r?\n((?:[ \t]*- .*\r?\n?)+)".encode(), re.M)
    found: dict[str, Path] = {}
    for path in sorted(tasks_folder().glob("**/*.yaml"), key=Path.as_posix):
        text = path.read_bytes()
        members = [entry for part in listed.findall(text) for entry in re.findall(rb"- (\S+)", part)]
        for name in [*line.findall(text), *(members if key != "task" else ())]:
            found.setdefault(name.decode(), path)
    return found


def _unknown(name: str) -> InputError:
    if name in _names("group") or name in _names("tag"):
        return UnsupportedError(f"'{name}' is a group of lm-eval tasks: name its tasks one by one")
    close = difflib.get_close_matches(name, _names("task"), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "`lm_eval ls tasks` lists them"
    return InputError(f"lm-eval has no task '{name}': {hint}")


def _examples_split(settings: Mapping[str, Any]) -> str | None:
    """As `ConfigurableTask.fewshot_docs` chooses it."""
    examples = settings.get("fewshot_config") or {}
    split = examples.get("split", settings.get("fewshot_split"))
    if split is None and not examples.get("samples"):
        split = next(filter(None, (settings.get(f"{k}_split") for k in ("training", "validation", "test"))))
    return split


def _refusal(settings: Mapping[str, Any]) -> str:
    """Why the task is refused, as the end of a sentence; empty where it is not."""
    output_type = settings.get("output_type", "generate_until")
    if "class" in settings:
        return "is defined by Python code of its own, not by settings"
    if output_type not in OUTPUT_TYPES:
        return f"has the output type {output_type}; measured are {', '.join(OUTPUT_TYPES)}"
    if settings.get("unsafe_code"):
        return "runs the model's code; use kind: reasoning for HumanEval and MBPP+"
    if settings.get("doc_to_image") or settings.get("doc_to_audio"):
        return "shows pictures or sound"
    if settings.get("repeats", 1) != 1:
        return f"asks each question {settings['repeats']} times"
    return _data_refusal(settings) or _metric_refusal(settings)


def _data_refusal(settings: Mapping[str, Any]) -> str:
    path = settings.get("dataset_path")
    if settings.get("custom_dataset") or not isinstance(path, str) or not _HUB_NAME.fullmatch(path):
        return f"reads {path or 'what its own code makes'}, which is no dataset ORG/NAME of the hub"
    if others := sorted(set(settings.get("dataset_kwargs") or {}) - _HARMLESS):
        return f"reads its dataset with {', '.join(others)}, which a mirror does not serve"
    if not (settings.get("test_split") or settings.get("validation_split")):
        return "has no test or validation split"
    if any(word in path.read_bytes() for path in _code_of(settings) for word in _DOWNLOADS):
        return "has code that downloads from the hub"
    return ""


def _code_of(value: object) -> Iterator[Path]:
    """The modules whose functions the settings name: FOLDER/MODULE.FUNCTION, as nothing is imported yet."""
    if isinstance(value, str) and value.startswith(f"{tasks_folder()}/"):
        module = Path(f"{value.rpartition('.')[0]}.py")
        if module.is_file():
            yield module
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _code_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from _code_of(part)


def _metric_refusal(settings: Mapping[str, Any]) -> str:
    if settings.get("process_results"):
        return ""
    for metric in settings.get("metric_list") or ():
        if metric.get("hf_evaluate") or metric["metric"] not in _known_metrics():
            return f"has the metric {metric['metric']}, which lm-eval would download"
    return ""


@functools.cache
def _known_metrics() -> frozenset[str]:
    import lm_eval.api.metrics  # noqa: F401 (fills the registry)
    from lm_eval.api.registry import metric_registry

    known: Iterable[str] = metric_registry
    return frozenset(known)
