"""The process that executes a model's code: it is told a program, then calls, and answers each.

Answers are pickles of plain values. What is no plain value itself is sent as the plain value that it is a
kind of (a named tuple as a tuple), an iterator as one over its items, and everything else as an object that
equals nothing: an object of a class of the model's own could claim to be equal to anything.
"""

import collections
import io
import itertools
import pickle
import socket
import struct
import sys
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

MODULE = "candidate"
MAX_ITEMS = 100_000
"""Items of an iterator that are sent; one that never ends must not fill the memory."""
MAX_MESSAGE = 1 << 26
MAX_ERROR = 500
"""Characters of an error that are kept."""
HARMLESS: Mapping[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        __name__: "Opaque",
        "builtins": (
            "bool bytearray bytes complex dict float frozenset int iter list range set slice str tuple"
        ),
        "collections": "Counter OrderedDict deque",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "numpy": "dtype ndarray",
        "numpy._core.multiarray": "_reconstruct scalar",
        "numpy._core.numeric": "_frombuffer",
    }.items()
}
"""Classes and functions that answers are made of, by module; the judge accepts no others."""
_BASES: tuple[type[Any], ...] = (
    str,
    bytes,
    int,
    float,
    complex,
    collections.Counter,
    dict,
    tuple,
    list,
    frozenset,
    set,
)
_LENGTH = struct.Struct(">Q")


def send(channel: socket.socket, message: bytes) -> None:
    """Write one message."""
    channel.sendall(_LENGTH.pack(len(message)) + message)


def receive(channel: socket.socket) -> bytes:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
        ValueError: it announces more than `MAX_MESSAGE` bytes.
    """
    (length,) = _LENGTH.unpack(_read(channel, _LENGTH.size))
    if length > MAX_MESSAGE:
        raise ValueError(f"a message of {length} bytes")
    return _read(channel, length)


def serve(channel: socket.socket) -> None:
    """Answer until the judge is gone: first (program, entry point), then the (args, kwargs) of each call."""
    program, entry_point = pickle.loads(receive(channel))
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module

    def define() -> None:
        exec(compile(program, f"<{MODULE}>", "exec"), module.__dict__)

    def call(*args: object, **kwargs: object) -> object:
        return module.__dict__[entry_point](*args, **kwargs)

    send(channel, _answer(define))
    while True:
        args, kwargs = pickle.loads(receive(channel))
        send(channel, _answer(call, *args, **kwargs))


def _answer(function: Callable[..., object], *args: object, **kwargs: object) -> bytes:
    """The pickle of (True, what the function returns) or (False, its error in words)."""
    try:
        return _pickled((True, function(*args, **kwargs)))
    except BaseException as error:  # noqa: BLE001 (SystemExit too: whatever a model's code raises is its answer)
        return pickle.dumps((False, f"{type(error).__name__}: {error}"[:MAX_ERROR]))


def _pickled(value: tuple[bool, Any]) -> bytes:
    file = io.BytesIO()
    _PlainPickler(file, protocol=5).dump(value)
    return file.getvalue()


class Opaque:
    """Stands for an object that is no plain value: it is not None, and equal to itself alone."""


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 (whatever a model's function returns)
        named = (
            value if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) else type(value)
        )
        module = str(named.__module__)
        if named.__qualname__ in HARMLESS.get(module, ()) or module.startswith("numpy"):
            return NotImplemented
        if isinstance(value, KeysView | ItemsView):
            return frozenset, (list(value),)
        if isinstance(value, Iterator | ValuesView):
            return iter, (list(itertools.islice(value, MAX_ITEMS)),)
        for base in _BASES:
            if isinstance(value, base):
                return base, (base(value),)
        return Opaque, ()


def _read(channel: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = channel.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
