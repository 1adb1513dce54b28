"""From what a file says about a task to its documents."""

from dataclasses import dataclass
from pathlib import Path

from prunebench.config.tasks import (
    ChoiceTask,
    EfficiencyTask,
    HarnessTask,
    PerplexityTask,
    ReasoningTask,
    RepresentationTask,
    Task,
)
from prunebench.data.codec import TextCodec
from prunebench.data.passages import choice_task
from prunebench.data.protocols import efficiency_task
from prunebench.data.questions import question_task
from prunebench.data.recipes import recipe_task
from prunebench.data.representation import representation_task
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import TaskData, perplexity_task
from prunebench.errors import InputError, ResourceError
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.models.hardware import hardware_name
from prunebench.models.tokenizer import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a worker holds a model, which is part of what timings mean."""

    device: str
    threads: int
    """CPU threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the tasks of one model are read with."""

    base: Path
    """The folder that relative paths start from."""
    mirror: Path | None
    """A folder that serves hub datasets."""
    codec: TextCodec
    """The model's tokenizer, for texts."""
    encoder: Encoder
    """The same with its special tokens, for requests."""
    site: Site


def load_task(name: str, setting: Task, reading: Reading) -> TaskData:
    """The documents of one task.

    Args:
        name: the task's name in the store.
        setting: what the file says about it.
        reading: what it is read with.

    Raises:
        InputError: text or data that is missing, broken or too short, or a GPU neither here nor named.
        ResourceError: a hub dataset that cannot be fetched here, or lm-eval is not installed.
    """
    match setting:
        case PerplexityTask():
            return _perplexity(name, setting, reading)
        case ChoiceTask():
            return choice_task(
                parse_spec(setting.text, reading.base),
                reading.codec,
                name=name,
                role=setting.role,
                items=setting.items,
                mirror=reading.mirror,
            )
        case HarnessTask():
            return _harness(name, setting, reading)
        case ReasoningTask():
            return question_task(
                setting.benchmark, name=name, role=setting.role, limit=setting.limit, mirror=reading.mirror
            )
        case RepresentationTask():
            return representation_task(
                parse_spec(setting.text, reading.base),
                reading.codec,
                name=name,
                role=setting.role,
                positions=setting.positions,
                tokens=setting.tokens,
                seed=setting.seed,
                mirror=reading.mirror,
            )
        case EfficiencyTask():
            return efficiency_of(name, setting, reading.codec, reading.site)


def efficiency_of(name: str, setting: EfficiencyTask, codec: TextCodec, site: Site) -> TaskData:
    """An efficiency task for the hardware that its file names, or else for this machine's.

    Raises:
        InputError: a GPU neither here nor named.
    """
    return efficiency_task(
        setting.protocol,
        name=name,
        vocab_size=codec.vocab_size,
        hardware=setting.hardware or _hardware_here(name, site.device),
        threads=site.threads,
        sizes=setting.sizes,
        compiled=setting.compiled,
        role=setting.role,
    )


def _perplexity(name: str, setting: PerplexityTask, reading: Reading) -> TaskData:
    if setting.recipe is not None:
        return recipe_task(
            setting.recipe,
            reading.codec,
            name=name,
            role=setting.role,
            windows=setting.windows,
            mirror=reading.mirror,
        )
    assert setting.text is not None  # the config takes exactly one of the two
    return perplexity_task(
        parse_spec(setting.text, reading.base),
        reading.codec,
        name=name,
        role=setting.role,
        stride=setting.stride,
        mirror=reading.mirror,
    )


def _harness(name: str, setting: HarnessTask, reading: Reading) -> TaskData:
    task = harness_task(
        setting.task,
        reading.encoder,
        name=name,
        role=setting.role,
        shots=setting.shots,
        limit=setting.limit,
        mirror=reading.mirror,
    )
    unread = sorted({"engine", "sampling"} & setting.model_fields_set)
    if unread and task.kind != "generate":
        raise InputError(
            f"task {name}: lm-eval's {setting.task} compares likelihoods and writes nothing: leave out "
            f"{' and '.join(unread)}"
        )
    return task


def _hardware_here(name: str, device: str) -> str:
    try:
        return hardware_name(device)
    except ResourceError as error:
        raise InputError(
            f"task {name}: {error}: set hardware to the name of the workers' GPU, such as NVIDIA A40"
        ) from error
