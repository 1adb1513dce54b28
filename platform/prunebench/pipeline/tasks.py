"""From what a file says about a task to its documents."""

from dataclasses import dataclass
from pathlib import Path

from prunebench.config.tasks import ChoiceTask, EfficiencyTask, ReasoningTask, RepresentationTask, Task
from prunebench.data.codec import TextCodec
from prunebench.data.passages import choice_task
from prunebench.data.protocols import efficiency_task
from prunebench.data.questions import questions_task
from prunebench.data.recipes import recipe_task
from prunebench.data.representation import representation_task
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import TaskData, perplexity_task
from prunebench.errors import InputError, ResourceError
from prunebench.models.hardware import hardware_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where workers hold a model."""

    device: str
    threads: int


def load_task(
    name: str, setting: Task, base: Path, codec: TextCodec, mirror: Path | None, *, site: Site
) -> TaskData:
    """The documents of one task.

    Args:
        name: the task's name in the store.
        setting: what the file says about it.
        base: the folder that relative paths start from.
        codec: the model's tokenizer.
        mirror: a folder that serves hub datasets.
        site: where it will run, which is part of what timings mean.

    Raises:
        InputError: text or data that is missing, broken or too short, or a GPU neither here nor named.
        ResourceError: a hub dataset that cannot be fetched here.
    """
    if isinstance(setting, ChoiceTask):
        spec = parse_spec(setting.text, base)
        return choice_task(spec, codec, name=name, role=setting.role, items=setting.items, mirror=mirror)
    if isinstance(setting, RepresentationTask):
        return representation_task(
            parse_spec(setting.text, base),
            codec,
            name=name,
            role=setting.role,
            positions=setting.positions,
            tokens=setting.tokens,
            seed=setting.seed,
            mirror=mirror,
        )
    if isinstance(setting, EfficiencyTask):
        return efficiency_of(name, setting, codec, site)
    if isinstance(setting, ReasoningTask):
        return questions_task(
            setting.benchmark, name=name, role=setting.role, limit=setting.limit, mirror=mirror
        )
    if setting.recipe is not None:
        return recipe_task(
            setting.recipe, codec, name=name, role=setting.role, windows=setting.windows, mirror=mirror
        )
    assert setting.text is not None  # the config takes exactly one of the two
    spec = parse_spec(setting.text, base)
    return perplexity_task(spec, codec, name=name, role=setting.role, stride=setting.stride, mirror=mirror)


def efficiency_of(name: str, setting: EfficiencyTask, codec: TextCodec, site: Site) -> TaskData:
    """An efficiency task for the hardware that its file names, or else for this machine's.

    Raises:
        InputError: a GPU neither here nor named.
    """
    return efficiency_task(
        setting.protocol,
        name=name,
        vocab_size=codec.vocab_size,
        hardware=setting.hardware or _hardware_here(name, site),
        threads=site.threads,
        sizes=setting.sizes,
        compiled=setting.compiled,
        role=setting.role,
    )


def _hardware_here(name: str, site: Site) -> str:
    try:
        return hardware_name(site.device)
    except ResourceError as error:
        raise InputError(
            f"task {name}: {error}: set hardware to the name of the workers' GPU, such as NVIDIA A40"
        ) from error
