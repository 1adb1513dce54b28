"""Requests as rows of token ids, by the rules of lm-eval's `HFLM`."""

import numpy as np

from prunebench.errors import InputError
from prunebench.models.rows import Row
from prunebench.models.tokenizer import Encoder


class HarnessEncoder:
    """Splits a context and a continuation into token ids as `HFLM.loglikelihood` does."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._prefix = encoder.eos_id if encoder.bos_id is None else encoder.bos_id
        self._opening = None if self._prefix is None else encoder.decode([self._prefix])

    def row(self, context: str, continuation: str) -> Row:
        """The two as one row, of which the continuation is scored.

        Spaces at the end of the context belong to the continuation, which is what the two together have
        beyond the context. An empty context is the token that begins a text, or ends one where none does.

        Raises:
            InputError: there is nothing to score, or nothing to predict it from.
        """
        if context:
            whole = self._encode(context + continuation)
            before = self._encode(context.rstrip())
            after = whole[len(before) :]
        else:
            before, after = self._from_nothing(continuation)
        if not before or not after:
            raise InputError(
                f"no token to score, or none to predict it from: context '{context[-40:]}', "
                f"continuation '{continuation[:40]}'"
            )
        return Row(np.asarray([*before, *after], dtype=np.int64), len(before))

    def _encode(self, text: str) -> list[int]:
        if self._opening is not None and text.startswith(self._opening):
            return self._encoder(text)
        return self._encoder.called(text)

    def _from_nothing(self, continuation: str) -> tuple[list[int], list[int]]:
        ids = self._encoder(continuation)
        if self._prefix is None:
            return [], ids
        return (ids[:1], ids[1:]) if ids[:1] == [self._prefix] else ([self._prefix], ids)


def cut(row: Row, limit: int) -> Row:
    """The row as a model with a context of `limit` tokens can score it: cut from the left, or itself.

    Raises:
        InputError: more tokens are scored than the context has.
    """
    scored = len(row.ids) - row.scored_from
    if scored > limit:
        raise InputError(f"a continuation of {scored} tokens is longer than the model's context of {limit}")
    surplus = len(row.ids) - limit - 1  # the last token is predicted, and never an input
    return row if surplus <= 0 else Row(row.ids[surplus:], row.scored_from - surplus)
