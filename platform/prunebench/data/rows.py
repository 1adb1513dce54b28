"""Rows that are given rather than cut from text: token files and reasoning traces."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from prunebench.data.codec import Ids, TextCodec
from prunebench.data.read import as_text, read_json_lines
from prunebench.data.spec import CorpusSpec
from prunebench.errors import InputError

TRACE_TOKENS = 2048
"""Generated tokens of a trace that calibration sees (LayerTrim, section 3.2)."""
_TRACE_COLUMNS = ("prompt", "generation")


def read_tokens(spec: CorpusSpec) -> Ids:
    """The array of a `tokens` SPEC: int64 of shape (rows, length) or (tokens,).

    Raises:
        InputError: no file, no plain array of integers, or an empty one.
    """
    path = Path(spec.source)
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"SPEC '{spec.text}': there is no file {path}") from error
    except (ValueError, EOFError, OSError) as error:
        raise InputError(
            f"SPEC '{spec.text}': {path} is no plain .npy array (pickled objects are refused): {error}"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"SPEC '{spec.text}': {path} is an archive of arrays; save one array with numpy.save"
        )
    if array.dtype.kind not in "iu":
        raise InputError(f"SPEC '{spec.text}': {path} holds {array.dtype} numbers; token ids are integers")
    if array.ndim not in (1, 2):
        raise InputError(
            f"SPEC '{spec.text}': {path} has {array.ndim} dimensions; rows of token ids have 2 (or 1)"
        )
    if array.size == 0:
        raise InputError(f"SPEC '{spec.text}': {path} holds no tokens (shape {array.shape})")
    return array.astype(np.int64)


def token_rows(spec: CorpusSpec, array: Ids) -> list[Ids]:
    """The rows of a matrix, or their leading `length` ids."""
    width = array.shape[1]
    length = spec.length or width
    if length > width:
        raise InputError(
            f"SPEC '{spec.text}': length={length}, but the rows of {spec.source} have {width} tokens"
        )
    return list(array[:, :length])


def read_traces(spec: CorpusSpec, codec: TextCodec) -> tuple[list[Ids], list[int], list[str]]:
    """Row, length of the prompt and text of every trace of a `traces` SPEC.

    A row is the prompt whole and the generation to `length` tokens. The text also holds the prompt's lines
    without chat markers and, where the trace names it, the bare `problem`, so that a test question is found.

    Raises:
        InputError: a line without prompt and generation, or an empty generation.
    """
    limit = spec.length or TRACE_TOKENS
    start = codec.prefix(spec.bos, f"SPEC '{spec.text}'")
    rows, prompts, texts = [], [], []
    for number, trace in read_json_lines(spec):
        prompt, generation = (_part(spec, codec, trace, name, number) for name in _TRACE_COLUMNS)
        if generation.size == 0:
            raise InputError(f"SPEC '{spec.text}': the generation of line {number} is empty")
        rows.append(np.concatenate([start, prompt, generation[:limit]]))
        prompts.append(start.size + prompt.size)
        asked = re.sub(r"<\|[^|>]*\|>", "\n", codec.decode(prompt.tolist()))
        answer = codec.decode(generation[:limit].tolist())
        texts.append("\n\n".join([str(trace.get("problem", "")), *asked.split("\n"), asked, answer]))
    return rows, prompts, texts


def _part(spec: CorpusSpec, codec: TextCodec, trace: dict[str, Any], name: str, number: int) -> Ids:
    ids = trace.get(f"{name}_ids")
    if ids is not None:
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 2**31 for i in ids):
            raise InputError(f"SPEC '{spec.text}': {name}_ids of line {number} is no list of token ids")
        part = np.array(ids, dtype=np.int64)
        codec.check([part], f"SPEC '{spec.text}': {name}_ids of line {number}")
        return part
    if name not in trace:
        columns = ", ".join(trace) or "nothing"
        raise InputError(
            f"SPEC '{spec.text}': line {number} has neither {name} nor {name}_ids; it has {columns}"
        )
    return codec.ids(as_text(spec, trace[name], name, f"line {number}"))
