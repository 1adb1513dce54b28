"""From what a file says about a task to its documents."""

from pathlib import Path

from prunebench.config.tasks import ChoiceTask, HarnessTask, ReasoningTask, Task
from prunebench.data.codec import TextCodec
from prunebench.data.passages import choice_task
from prunebench.data.questions import questions_task
from prunebench.data.recipes import recipe_task
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import TaskData, perplexity_task
from prunebench.errors import InputError
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.models.tokenizer import Encoder


def load_task(
    name: str, setting: Task, base: Path, codec: TextCodec, encoder: Encoder, mirror: Path | None
) -> TaskData:
    """The documents of one task.

    Args:
        name: the task's name in the store.
        setting: what the file says about it.
        base: the folder that relative paths start from.
        codec: the model's tokenizer, for texts.
        encoder: the same with its special tokens, for requests.
        mirror: a folder that serves hub datasets.

    Raises:
        InputError: text or data that is missing, broken or too short.
        ResourceError: a hub dataset that cannot be fetched here, or lm-eval is not installed.
    """
    if isinstance(setting, HarnessTask):
        return _harness(name, setting, encoder, mirror)
    if isinstance(setting, ChoiceTask):
        spec = parse_spec(setting.text, base)
        return choice_task(spec, codec, name=name, role=setting.role, items=setting.items, mirror=mirror)
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


def _harness(name: str, setting: HarnessTask, encoder: Encoder, mirror: Path | None) -> TaskData:
    task = harness_task(
        setting.task,
        encoder,
        name=name,
        role=setting.role,
        shots=setting.shots,
        limit=setting.limit,
        mirror=mirror,
    )
    unread = sorted({"engine", "sampling"} & setting.model_fields_set)
    if unread and task.kind != "generate":
        raise InputError(
            f"task {name}: lm-eval's {setting.task} compares likelihoods and writes nothing: leave out "
            f"{' and '.join(unread)}"
        )
    return task
