"""Between questions and token ids: the model's own chat template, and text as every engine cuts it.

The tokenizer is the checkpoint's; special tokens stay in the text (some models mark their thoughts with
them), only the token that ended it is left out.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np

from prunebench.core.fingerprint import sha256_arrays
from prunebench.core.unit import Generation
from prunebench.data.tasks import Question
from prunebench.errors import InputError
from prunebench.evaluation.generation.base import Request
from prunebench.evaluation.generation.template import TODAY
from prunebench.models.checkpoint import Checkpoint, read_json
from prunebench.models.load import load_tokenizer

GENERATION_CONFIG: Final = "generation_config.json"


class Codec:
    """The tokenizer of one model."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Load it.

        Raises:
            InputError: the checkpoint has none.
        """
        self._tokenizer: Any = load_tokenizer(checkpoint)
        self._name = checkpoint.name
        self.end_ids = _end_ids(checkpoint, self._tokenizer.eos_token_id)
        """Tokens that end an answer, ascending."""

    def encode(self, question: Question) -> tuple[int, ...]:
        """The prompt's token ids: in the chat template with reasoning on, or as it is with `raw`.

        Raises:
            InputError: the model has no chat template, or it fails on the question.
        """
        if question.raw:
            # Text that brings its own opening token gets no second one.
            opened = bool(bos := self._tokenizer.bos_token) and question.prompt.startswith(str(bos))
            return tuple(self._tokenizer(question.prompt, add_special_tokens=not opened)["input_ids"])
        try:
            ids = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": question.prompt}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                enable_thinking=True,
                strftime_now=_today,
            )
        except ValueError as error:
            raise InputError(f"{self._name} cannot be asked in chat: {error}") from error
        return tuple(int(i) for i in ids)

    def text_ids(self, text: str) -> list[int]:
        """Token ids of a text with whatever the tokenizer itself puts around it."""
        return [int(i) for i in self._tokenizer(text)["input_ids"]]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    def written(self, request: Request, ids: Sequence[int]) -> Generation:
        """What an engine's token ids say: cut at the end token or at the first stop string."""
        ended = bool(ids) and ids[-1] in self.end_ids
        text = self.decode(ids[:-1] if ended else ids)
        places = [place for stop in request.stop if (place := text.find(stop)) >= 0]
        return Generation(
            prompt_hash=prompt_hash(request.prompt),
            text=text[: min(places)] if places else text,
            num_prompt_tokens=len(request.prompt),
            num_tokens=len(ids),
            finish_reason="stop" if ended or places else "length",
        )

    def stopped(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether a stop string ends at the last of `ids` or shortly before."""
        longest = max((len(text.encode()) for text in stop), default=0)
        # A token has at least one byte, so no stop string spans more tokens than it has bytes.
        tail = self.decode(ids[-longest - 1 :]) if longest else ""
        return any(text in tail for text in stop)


def prompt_hash(prompt: Sequence[int]) -> str:
    """64 hex digits of the sha256 of token ids."""
    return sha256_arrays(np.asarray(prompt, dtype=np.int64))


def _today(form: str) -> str:
    return datetime.fromisoformat(TODAY).strftime(form)


def _end_ids(checkpoint: Checkpoint, own: int | None) -> tuple[int, ...]:
    """The end tokens of the tokenizer, of config.json and of generation_config.json."""
    file = checkpoint.path / GENERATION_CONFIG
    configs = [checkpoint.config, read_json(file) if file.exists() else {}]
    named = {own}
    for config in configs:
        ids = config.get("eos_token_id")
        named |= set(ids if isinstance(ids, list) else [ids])
    return tuple(sorted(i for i in named if i is not None))
