"""Chat templates as files, so that a driver can name them without loading a tokenizer."""

from typing import Final

from prunebench.core.fingerprint import sha256_json
from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint, read_json

TODAY: Final = "2024-07-26"
"""The date that templates are told which ask for one: a prompt may not change from day to day."""


def chat_template(checkpoint: Checkpoint) -> str | None:
    """The text of a checkpoint's chat template, or None where it has none."""
    file = checkpoint.path / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    for name in ("tokenizer_config.json", "chat_template.json"):
        config = read_json(checkpoint.path / name) if (checkpoint.path / name).is_file() else {}
        template = config.get("chat_template")
        if isinstance(template, list):
            template = next((one["template"] for one in template if one["name"] == "default"), None)
        if template:
            return str(template)
    return None


def template_hash(checkpoint: Checkpoint) -> str:
    """64 hex digits over the chat template and what it is told, for the key of a unit.

    Raises:
        InputError: the model has no chat template.
    """
    template = chat_template(checkpoint)
    if template is None:
        raise InputError(
            f"{checkpoint.name} has no chat template (chat_template.jinja, or chat_template in "
            "tokenizer_config.json), which questions are put in: give an instruction-tuned model"
        )
    return sha256_json([template, {"enable_thinking": True, "today": TODAY}])
