"""One experiment file: models, calibrations, probe corpora, methods, budgets, tasks, executor, store."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, StrictInt, ValidationError, field_validator, model_validator

from prunebench.config.base import Strict, explain
from prunebench.config.cluster import ClusterEntry
from prunebench.config.engines import EngineEntry, Generative, VllmEngine
from prunebench.config.executor import ExecutorEntry
from prunebench.config.params import parse_params
from prunebench.config.tasks import HarnessTask, ReasoningTask, Task
from prunebench.errors import InputError
from prunebench.methods import method_named

Dtype = Literal["float32", "bfloat16", "float16"]


class ModelEntry(Strict):
    """A model to prune."""

    path: str
    """A folder with safetensors and a config, a hub id, or builtin:smollm2-135m."""
    name: str = ""
    """What tables call it; the last part of the path by default."""
    dtype: Dtype
    attention: Literal["sdpa", "eager"] = "sdpa"
    device: Literal["cpu", "cuda"] = "cpu"
    streamed: bool = False
    """Read the weights from their files block by block: for models larger than the GPU or than memory."""
    trust_remote_code: bool = False
    """Run the code that the checkpoint brings (`auto_map` in its config.json), with all rights of the run."""

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        if self.streamed and self.trust_remote_code:
            raise ValueError(
                "a streamed model is built from Transformers' own classes: leave out streamed or "
                "trust_remote_code"
            )
        return self

    @property
    def title(self) -> str:
        """The name that tables show."""
        name = self.name or self.path.rstrip("/").rsplit("/", 1)[-1].removeprefix("builtin:")
        return f"{name} (own code)" if self.trust_remote_code else name


class MethodEntry(Strict):
    """A method with its parameters and what it is measured on."""

    method: str
    params: dict[str, Any] = Field(default_factory=dict)
    calibration: str = "default"
    """Name of an entry of `calibrations`."""
    probe: str = "default"
    """Name of an entry of `probes`; read only if the method asks a probe."""
    budgets: tuple[StrictInt | str, ...] | None = Field(None, min_length=1)
    """Own budgets in place of the experiment's."""

    @field_validator("method")
    @classmethod
    def is_known(cls, name: str) -> str:
        """Refuse unknown methods."""
        return method_named(name).name

    @model_validator(mode="after")
    def has_valid_params(self) -> "MethodEntry":
        """Refuse unknown or wrong parameters."""
        parse_params(method_named(self.method), self.params)
        return self


class Setting(Strict):
    """What experiments and searches have in common. Relative paths start from the file's own folder."""

    models: tuple[ModelEntry, ...] = Field(min_length=1)
    tasks: dict[str, Task] = Field(min_length=1)
    calibrations: dict[str, str] = Field(default_factory=dict)
    """Name -> SPEC."""
    probes: dict[str, str] = Field(default_factory=dict)
    """Name -> SPEC."""
    mirror: Path | None = None
    """A folder that serves hub datasets."""
    engines: dict[str, EngineEntry] = Field(default_factory=dict)
    """What writes the answers of generative tasks, by name."""
    allow_code_execution: bool = False
    """Run, in a sandbox, the programs that models write for HumanEval and MBPP+."""
    allow_overlap: bool = False
    """Print the overlap of calibration text and test documents on the rows instead of refusing it."""
    executor: ExecutorEntry = ExecutorEntry()
    cluster: ClusterEntry = ClusterEntry()
    store: Path
    base: Path = Path()
    """The folder that relative paths start from; set when the file is loaded."""

    @model_validator(mode="after")
    def code_is_allowed(self) -> "Setting":
        """Refuse tasks that run code from models unless that is allowed."""
        for name, task in self.tasks.items():
            if isinstance(task, ReasoningTask) and task.runs_code and not self.allow_code_execution:
                raise ValueError(
                    f"task {name} ({task.benchmark}) runs code that a model wrote: set allow_code_execution: "
                    "true to run it in a sandbox, or leave the task out"
                )
        return self

    def check_names(self, methods: Sequence[MethodEntry]) -> None:
        """Refuse methods without their calibration or probe corpus, and GPUs or engines out of reach.

        Raises:
            ValueError: there is one; the names that are defined are listed.
        """
        self._check_engines()
        hidden = self.executor.kind == "ray" and self.executor.gpus_per_worker == 0
        if hidden and (cuda := [model.title for model in self.models if model.device == "cuda"]):
            raise ValueError(
                f"{cuda[0]} asks for device: cuda, but Ray shows no GPU to workers while "
                "executor.gpus_per_worker is 0: set it to auto or 1"
            )
        for entry in methods:
            method = method_named(entry.method)
            needs = method.needs(parse_params(method, entry.params))
            for need, kind, name, defined in (
                ("calibration", "calibrations", entry.calibration, self.calibrations),
                ("probe", "probes", entry.probe, self.probes),
            ):
                if need in needs and name not in defined:
                    known = ", ".join(sorted(defined)) or "none is defined"
                    raise ValueError(f"{entry.method} needs an entry '{name}' in {kind} (there: {known})")

    def _check_engines(self) -> None:
        for name, task in self.tasks.items():
            if not isinstance(task, Generative) or task.engine in self.engines:
                continue
            # Whether a task of lm-eval is answered in writing shows when its definition is read.
            if not isinstance(task, HarnessTask) or "engine" in task.model_fields_set:
                known = ", ".join(sorted(self.engines)) or "none is defined"
                raise ValueError(f"task {name} needs an entry '{task.engine}' in engines (there: {known})")
        self._check_streamed()
        gpus = self.executor.gpus_per_worker
        if gpus == "auto" or self.executor.kind != "ray" or all(m.device == "cpu" for m in self.models):
            return
        for name, engine in self.engines.items():
            if isinstance(engine, VllmEngine) and not engine.agrees_with(gpus):
                raise ValueError(
                    f"engine {name} spreads a model over {engine.tensor_parallel} GPUs, but "
                    f"executor.gpus_per_worker is {gpus:g}: set it to {engine.tensor_parallel} or auto (a "
                    "share of one GPU needs an engine whose gpu_memory_utilization is no larger)"
                )

    def _check_streamed(self) -> None:
        streamed = next((model.title for model in self.models if model.streamed), None)
        for name, task in self.tasks.items():
            if streamed and (task.kind == "efficiency" or isinstance(task, ReasoningTask)):
                raise ValueError(
                    f"task {name} ({task.kind}) needs {streamed} whole in memory, but the model is streamed: "
                    "leave the task out, or run it in an experiment without streamed: true"
                )

    def resolve(self, path: Path) -> Path:
        """A path of the file, seen from the file's folder."""
        return (self.base / path.expanduser()).resolve()

    @property
    def mirror_folder(self) -> Path | None:
        """The mirror, resolved."""
        return None if self.mirror is None else self.resolve(self.mirror)

    def resolve_text(self, path: str) -> Path:
        """The same for a path that may also be a hub id."""
        return self.resolve(Path(path))


class Experiment(Setting):
    """The whole file of a benchmark."""

    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    budgets: tuple[StrictInt | str, ...] = Field(min_length=1)
    """Layer-equivalents: integers, or ratio:0.25."""

    @model_validator(mode="after")
    def names_exist(self) -> "Experiment":
        """Refuse methods that name a calibration or probe corpus that is not defined, and doubled models."""
        titles = [model.title for model in self.models]
        if len(set(titles)) < len(titles):
            raise ValueError(f"two models are both called {max(titles, key=titles.count)}: give them a name")
        self.check_names(self.methods)
        return self


SettingT = TypeVar("SettingT", bound=Setting)


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment file; arguments and errors as `load_setting`."""
    return load_setting(Experiment, path, overrides)


def load_setting(kind: type[SettingT], path: Path, overrides: Sequence[str] = ()) -> SettingT:
    """Read and check a file.

    Args:
        kind: what the file has to be.
        path: a YAML file.
        overrides: words `a.b=c` that replace single settings; numbers index lists.

    Raises:
        InputError: unreadable, unknown keys (the nearest is named), wrong types or values.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path} has no settings: it has to be a mapping of {', '.join(_required(kind))}")
    for word in overrides:
        _override(data, word)
    _refuse_controls(data, str(path))
    if "base" in data:
        raise InputError(f"{path}: unknown key 'base': relative paths start from the file's own folder")
    try:
        return kind.model_validate({**data, "base": path.resolve().parent})
    except ValidationError as error:
        raise explain(error, str(path)) from error


def read_yaml(path: Path) -> Any:  # noqa: ANN401 (whatever the file holds)
    """What a file holds, unchecked.

    Raises:
        InputError: unreadable, or not YAML.
    """
    try:
        return yaml.load(path.read_text(), Loader=_OneOfEachKey)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the config {path}: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error


def parse_model(where: str, **settings: str) -> ModelEntry:
    """A model entry from words of the command line.

    Raises:
        InputError: a value that the file could not hold either.
    """
    try:
        return ModelEntry.model_validate(settings)
    except ValidationError as error:
        raise explain(error, where) from error


class _OneOfEachKey(yaml.SafeLoader):
    """YAML keeps the last of two equal keys and drops the other without a word: this refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"'{key.value}' stands twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _refuse_controls(at: Any, where: str) -> None:  # noqa: ANN401 (whatever the file holds)
    """Names of a config reach paths, logs and terminals: no escape sequence, and no NUL, which ends paths."""
    if isinstance(at, str) and any(
        unicodedata.category(letter) == "Cc" and letter not in "\n\r\t" for letter in at
    ):
        raise InputError(f"{where}: a control character stands in {at!r}: leave it out")
    if isinstance(at, dict | list):
        for key, inside in at.items() if isinstance(at, dict) else enumerate(at):
            _refuse_controls(key, where)
            _refuse_controls(inside, f"{where}: {key}")


def _required(kind: type[Setting]) -> list[str]:
    return [name for name, field in kind.model_fields.items() if field.is_required()]


def _override(data: dict[str, Any], word: str) -> None:
    name, separator, value = word.partition("=")
    if not separator:
        raise InputError(f"--set {word}: write a.b=value")
    *parents, last = name.split(".")
    at: Any = data
    for part in parents:
        key = _key(at, part, word)
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    try:
        at[_key(at, last, word)] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InputError(f"--set {word}: the value is not valid YAML: put it in quotes") from error


def _key(at: Any, part: str, word: str) -> str | int:  # noqa: ANN401 (the file's own nesting)
    """`part` as it indexes `at`: a name of a mapping, or a number of a list."""
    if isinstance(at, dict):
        return part
    if not isinstance(at, list):
        raise InputError(f"--set {word}: '{part}' lies inside a plain value")
    if not part.isdigit() or int(part) >= len(at):
        raise InputError(f"--set {word}: '{part}' is not one of the {len(at)} entries 0 to {len(at) - 1}")
    return int(part)
