"""Work items of models that are read block by block: as many go together as there is room."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from prunebench.core.shape import ModelShape
from prunebench.core.unit import CalibrateItem, EvaluateItem, TogetherItem

SCRATCH_BYTES = 64 << 30
"""Disk that the states of one calibration pass may take, at all block boundaries."""
STATES_BYTES = 16 << 30
"""CPU memory that the states of one pass over plans may take."""
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

Part = TypeVar("Part", CalibrateItem, EvaluateItem)


def shards_together(items: Sequence[CalibrateItem], shape: ModelShape, dtype: str) -> list[TogetherItem]:
    """The shards of one calibration, in passes."""
    state = (shape.num_layers + 1) * shape.hidden_size * _DTYPE_BYTES[dtype]
    sized = [(item, state * sum(map(len, item.rows))) for item in items]
    return [TogetherItem(model=group[0].model, items=group) for group in _filled(sized, SCRATCH_BYTES)]


def ranges_together(
    items: Iterable[tuple[EvaluateItem, int]], shape: ModelShape, dtype: str
) -> list[TogetherItem]:
    """Ranges of one kind, each with its number of tokens, in passes; a plan may be a branch of its own."""
    state = shape.hidden_size * _DTYPE_BYTES[dtype]
    sized = [(item, state * tokens * (1 + len(item.plans))) for item, tokens in items]
    return [TogetherItem(model=group[0].model, items=group) for group in _filled(sized, STATES_BYTES)]


def _filled(sized: Iterable[tuple[Part, int]], limit: int) -> Iterator[tuple[Part, ...]]:
    """The items in order, in groups of at most `limit` bytes, or of one."""
    group: list[Part] = []
    room = limit
    for item, size in sized:
        if group and size > room:
            yield tuple(group)
            group, room = [], limit
        group.append(item)
        room -= size
    if group:
        yield tuple(group)
