"""The tokenizer as the data code sees it: two functions and two numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from prunebench.errors import InputError

Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCodec:
    """Text to token ids and back, for one model."""

    encode: Callable[[str], Sequence[int]]
    """Adds no special tokens."""
    decode: Callable[[Sequence[int]], str]
    vocab_size: int
    """Rows of the model's embedding matrix."""
    bos_id: int | None = None
    opening: tuple[int, ...] = ()
    """What the tokenizer itself puts before a text when it is called: Llama's BOS; nothing for Qwen."""

    def as_called(self) -> "TextCodec":
        """The same codec, whose every text starts as the tokenizer itself starts it."""
        return replace(self, encode=lambda text: [*self.opening, *self.encode(text)], opening=())

    def ids(self, text: str) -> Ids:
        """The token ids of `text`, shape (tokens,)."""
        return np.asarray(self.encode(text), dtype=np.int64)

    def prefix(self, bos: bool, what: str) -> Ids:
        """What a row starts with: the beginning-of-sequence token, or nothing.

        Raises:
            InputError: the token is asked for and the tokenizer has none.
        """
        if not bos:
            return np.empty(0, dtype=np.int64)
        if self.bos_id is None:
            raise InputError(
                f"{what}: bos=1, but this tokenizer has no beginning-of-sequence token; write bos=0"
            )
        return np.array([self.bos_id], dtype=np.int64)

    def check(self, rows: Sequence[Ids], what: str) -> None:
        """Refuse ids outside the vocabulary, naming the first."""
        for number, row in enumerate(rows):
            outside = np.flatnonzero((row < 0) | (row >= self.vocab_size))
            if outside.size:
                place = int(outside[0])
                raise InputError(
                    f"{what}: row {number}, position {place} holds token id {row[place]}, but the model's "
                    f"vocabulary has {self.vocab_size} ids (0 to {self.vocab_size - 1})"
                )
