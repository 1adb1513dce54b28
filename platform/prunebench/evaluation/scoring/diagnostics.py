"""What is measured of every generation beside its score: did it end, does it repeat itself, does it think?

LayerTrim's figure 5 (section 5.2). Windows of tokens begin at the first generated token, and an incomplete
window at the end is left out: where windows begin is unstated there, and decides (300 free tokens and then a
loop of 1,200 are not flagged).
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from prunebench.core.unit import Generation
from prunebench.evaluation.scoring.base import Graded, was_cut

WINDOW: Final = 512
NGRAM: Final = 8
_THINK = re.compile(r"<(/?)think>")


def diagnosed(graded: Graded, generation: Generation, tokens: Sequence[int], *, in_thought: bool) -> Graded:
    """What a grader said, with the four diagnostics of every generation.

    Args:
        graded: the scores of the generation.
        generation: what was written.
        tokens: its token ids; those of its text as the model's tokenizer encodes it where they were not kept.
        in_thought: whether the prompt ended inside an open `<think>`, as some chat templates have it.
    """
    metrics = {
        "token_limit_hit": float(was_cut(generation)),
        "repetition": float(repeats(tokens)),
        "unclosed_think": float(is_unclosed(generation.text, in_thought=in_thought)),
        "tokens": float(generation.num_tokens),
    }
    return replace(graded, metrics={**graded.metrics, **metrics})


def repeats(tokens: Sequence[int]) -> bool:
    """Strong repetition: two neighbouring windows of 512 tokens with 1 - U8/N8 >= 0.8 each.

    U8 of the N8 = 505 runs of eight tokens in a window are different ones.
    """
    ids = np.asarray(tokens, dtype=np.int64)
    windows = ids[: len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW)
    flags = [_is_repetitive(window) for window in windows]
    return any(one and other for one, other in itertools.pairwise(flags))


def is_unclosed(text: str, *, in_thought: bool) -> bool:
    """Whether the text ends inside a thought: its last tag opens one, or it has none and began in one."""
    tags = _THINK.findall(text)
    return tags[-1] == "" if tags else in_thought


def _is_repetitive(window: npt.NDArray[np.int64]) -> bool:
    runs = np.lib.stride_tricks.sliding_window_view(window, NGRAM)
    different = len(np.unique(runs, axis=0))
    # In integers: 1 - 101/505 in floating point need not be 0.8.
    return 5 * (len(runs) - different) >= 4 * len(runs)
