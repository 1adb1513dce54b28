"""The garbage collector, set aside where millions of records are made and none of them refers to itself."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Without collections of cycles, which walk all records again and again: a tenth of a report's time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
