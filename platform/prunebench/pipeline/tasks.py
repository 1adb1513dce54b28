"""From what a file says about a task to its documents."""

from pathlib import Path

from prunebench.config.tasks import ChoiceTask, ReasoningTask, Task
from prunebench.data.codec import TextCodec
from prunebench.data.passages import choice_task
from prunebench.data.questions import question_task
from prunebench.data.recipes import recipe_task
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import TaskData, perplexity_task


def load_task(name: str, setting: Task, base: Path, codec: TextCodec, mirror: Path | None) -> TaskData:
    """The documents of one task.

    Args:
        name: the task's name in the store.
        setting: what the file says about it.
        base: the folder that relative paths start from.
        codec: the model's tokenizer.
        mirror: a folder that serves hub datasets.

    Raises:
        InputError: text or data that is missing, broken or too short.
        ResourceError: a hub dataset that cannot be fetched here.
    """
    if isinstance(setting, ChoiceTask):
        spec = parse_spec(setting.text, base)
        return choice_task(spec, codec, name=name, role=setting.role, items=setting.items, mirror=mirror)
    if isinstance(setting, ReasoningTask):
        return question_task(
            setting.benchmark, name=name, role=setting.role, limit=setting.limit, mirror=mirror
        )
    if setting.recipe is not None:
        return recipe_task(
            setting.recipe, codec, name=name, role=setting.role, windows=setting.windows, mirror=mirror
        )
    assert setting.text is not None  # the config takes exactly one of the two
    spec = parse_spec(setting.text, base)
    return perplexity_task(spec, codec, name=name, role=setting.role, stride=setting.stride, mirror=mirror)
