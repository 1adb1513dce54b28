"""Text to token ids without torch: the driver counts documents and windows, and never loads a model."""

import functools
import itertools
from collections.abc import Sequence

from tokenizers import Tokenizer

from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint, read_json


class Encoder:
    """A checkpoint's tokenizer: plain ids, no special tokens added.

    A checkpoint without one can still be measured on token ids; only text asks for the tokenizer.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._folder = checkpoint.path
        self.vocab_size = checkpoint.vocab_size

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        path = self._folder / "tokenizer.json"
        if not self._present:
            raise InputError(
                f"{self._folder} has no tokenizer.json: save its tokenizer in the fast format first"
            )
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{path} is no tokenizer that can be read: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def __call__(self, text: str) -> list[int]:
        """Token ids of `text`.

        Raises:
            InputError: the checkpoint has no fast tokenizer.
        """
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def called(self, text: str) -> list[int]:
        """Token ids of `text` with the special tokens that the tokenizer itself puts around it.

        Raises:
            InputError: the checkpoint has no fast tokenizer.
        """
        return self._tokenizer.encode(text, add_special_tokens=True).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included; the ids themselves where there is no tokenizer."""
        if not self._present:
            return " ".join(str(i) for i in ids)
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    @functools.cached_property
    def opening(self) -> tuple[int, ...]:
        """Special tokens that the tokenizer itself puts before a text; none where there is no tokenizer."""
        if not self._present:
            return ()
        encoded = self._tokenizer.encode("a", add_special_tokens=True)
        marked = zip(encoded.ids, encoded.special_tokens_mask, strict=True)
        return tuple(number for number, _ in itertools.takewhile(lambda pair: pair[1], marked))

    @functools.cached_property
    def bos_id(self) -> int | None:
        """Id of the beginning-of-sequence token, None where there is no tokenizer or it names none.

        Raises:
            InputError: a tokenizer, or its settings, that cannot be read.
        """
        return self._named("bos_token")

    @functools.cached_property
    def eos_id(self) -> int | None:
        """Id of the end-of-sequence token; otherwise as `bos_id`."""
        return self._named("eos_token")

    def _named(self, setting: str) -> int | None:
        path = self._folder / "tokenizer_config.json"
        if not path.is_file() or not self._present:
            return None
        token = read_json(path).get(setting)
        text = token.get("content") if isinstance(token, dict) else token
        if text is not None and not isinstance(text, str):
            raise InputError(f"{path}: {setting} has to be text, not {text!r}")
        return None if text is None else self._tokenizer.token_to_id(text)

    @property
    def _present(self) -> bool:
        return (self._folder / "tokenizer.json").is_file()
