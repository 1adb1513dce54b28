"""From an experiment file to subjects: everything is resolved and refused here, before any work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from prunebench.config.engines import Generative
from prunebench.config.experiment import Experiment, MethodEntry, ModelEntry
from prunebench.config.params import parse_params
from prunebench.core.budget import Budget, parse_budget
from prunebench.core.fingerprint import sha256_json
from prunebench.data.corpus import Corpus, TextCodec, load_corpus
from prunebench.data.leaks import Overlap, check_leaks
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import TaskData
from prunebench.errors import InputError, UnsupportedError
from prunebench.evaluation.setup import EngineSetup
from prunebench.methods import method_named
from prunebench.methods.base import AnyMethod, Params
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.tokenizer import Encoder
from prunebench.pipeline.tasks import Reading, Site, load_task
from prunebench.pipeline.writing import Answering, answering


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One method at one budget, with what it is measured on."""

    method: AnyMethod
    params: Params
    budget: Budget
    asked: str
    """The budget as it was written."""
    calibration: str | None
    """Name of the calibration, None where the method needs none."""
    probe: str | None
    """Name of the probe corpus, None where the method asks no probe."""
    unsupported: str = ""
    """Why this method cannot prune this model; empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model with all that will be done to it."""

    entry: ModelEntry
    checkpoint: Checkpoint
    calibrations: Mapping[str, Corpus]
    probes: Mapping[str, Corpus]
    tasks: tuple[TaskData, ...]
    requests: tuple[Request, ...]
    overlaps: tuple[Overlap, ...]
    engines: Mapping[str, EngineSetup]
    answering: Mapping[str, Answering]
    """How each generative task is answered."""
    allow_code_execution: bool

    @property
    def name(self) -> str:
        """The model's name in tables."""
        return self.entry.title

    def source(self, calibration: str) -> str:
        """Identity of the statistics of a calibration: weights, arithmetic and token ids."""
        return sha256_json(
            {
                "weights": self.checkpoint.weights_id,
                "dtype": self.entry.dtype,
                "attention": self.entry.attention,
                "corpus": self.calibrations[calibration].corpus_id,
            }
        )


def prepare(experiment: Experiment) -> tuple[Subject, ...]:
    """Resolve every model of an experiment.

    Raises:
        InputError: a wrong path, spec, budget or parameter, or calibration text that overlaps a test task.
    """
    return tuple(
        subject_of(experiment, entry, lambda checkpoint: _requests(experiment, checkpoint))
        for entry in experiment.models
    )


def text_codec(checkpoint: Checkpoint) -> TextCodec:
    """The checkpoint's tokenizer as the data layer wants it."""
    encoder = Encoder(checkpoint)
    return TextCodec(
        encode=encoder,
        decode=encoder.decode,
        vocab_size=encoder.vocab_size,
        bos_id=encoder.bos_id,
        opening=encoder.opening,
    )


def request_of(checkpoint: Checkpoint, entry: MethodEntry, asked: int | str) -> Request:
    """One method at one budget, checked against the model's shape.

    Raises:
        InputError: an unknown parameter, or a budget that the method cannot meet.
    """
    method = method_named(entry.method)
    params = parse_params(method, entry.params)
    budget = parse_budget(asked, checkpoint.shape.num_layers)
    needs = method.needs(params)
    unsupported = ""
    try:
        method.check(checkpoint.shape, budget, params)
    except UnsupportedError as error:
        unsupported = str(error)
    except InputError as error:
        raise type(error)(f"{method.name}: {error}") from error
    return Request(
        method=method,
        params=params,
        budget=budget,
        asked=str(asked),
        calibration=entry.calibration if "calibration" in needs else None,
        probe=entry.probe if "probe" in needs else None,
        unsupported=unsupported,
    )


def _requests(experiment: Experiment, checkpoint: Checkpoint) -> tuple[Request, ...]:
    asked = [
        request_of(checkpoint, method, budget)
        for method in experiment.methods
        for budget in (experiment.budgets if method.budgets is None else method.budgets)
    ]
    # Two spellings of one request (7 and ratio:0.23 of 30 layers) are planned once.
    return tuple({replace(request, asked=""): request for request in reversed(asked)}.values())[::-1]


def subject_of(
    experiment: Experiment, entry: ModelEntry, requests_of: Callable[[Checkpoint], tuple[Request, ...]]
) -> Subject:
    """One model of an experiment with the requests that `requests_of` makes for it.

    Raises:
        InputError: as `prepare`.
    """
    path = entry.path
    if not path.startswith("builtin:") and (local := experiment.resolve_text(path)).exists():
        path = str(local)
    checkpoint = Checkpoint.open(path, trust_remote_code=entry.trust_remote_code)
    codec = text_codec(checkpoint)
    requests = requests_of(checkpoint)
    mirror = experiment.mirror_folder

    def corpus(spec: str) -> Corpus:
        return load_corpus(parse_spec(spec, experiment.base), codec, mirror=mirror)

    reading = Reading(
        base=experiment.base,
        mirror=mirror,
        codec=codec,
        encoder=Encoder(checkpoint),
        site=Site(device=entry.device, threads=experiment.executor.threads),
    )
    used = {r.calibration for r in requests}, {r.probe for r in requests}
    calibrations = {name: corpus(spec) for name, spec in experiment.calibrations.items() if name in used[0]}
    probes = {name: corpus(spec) for name, spec in experiment.probes.items() if name in used[1]}
    tasks = tuple(load_task(name, setting, reading) for name, setting in experiment.tasks.items())
    engines = {name: engine.setup(experiment.base) for name, engine in experiment.engines.items()}
    if checkpoint.trusted and (served := [name for name, one in engines.items() if one.kind == "vllm"]):
        raise InputError(
            f"{checkpoint.name} runs its own code (trust_remote_code), and vLLM would serve it with vLLM's: "
            f"let engine '{served[0]}' be of the kind hf, or leave trust_remote_code out"
        )
    answered = {
        task.name: answering(task, setting, engines, checkpoint)
        for task in tasks
        if task.kind == "generate" and isinstance(setting := experiment.tasks[task.name], Generative)
    }
    overlaps = check_leaks(
        {
            **{f"calibration '{name}'": corpus.texts for name, corpus in calibrations.items()},
            **{f"probe corpus '{name}'": corpus.texts for name, corpus in probes.items()},
        },
        tasks,
        allow_overlap=experiment.allow_overlap,
    )
    return Subject(
        entry=entry.model_copy(update={"path": path}),
        checkpoint=checkpoint,
        calibrations=calibrations,
        probes=probes,
        tasks=tasks,
        requests=requests,
        overlaps=overlaps,
        engines=engines,
        answering=answered,
        allow_code_execution=experiment.allow_code_execution,
    )
