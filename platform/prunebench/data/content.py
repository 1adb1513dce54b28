"""What a text contains, as numbers that survive another file name, joiner or layout.

Two texts are compared by the numbers they share. A document or paragraph of at least 50 letters and digits
gives one number; so does every selected run of 128 letters and digits, wherever it stands. Case, white
space and punctuation do not count. A common run shorter than 128 characters outside of an equal paragraph
goes unnoticed, one of 159 or more never does (winnowing: Schleimer, Wilkerson and Aiken 2003).
"""

import hashlib
import re
from collections.abc import Iterable

import numpy as np

MIN_PARAGRAPH = 50
"""Letters and digits below which an equal paragraph is no evidence (headings, licence lines)."""
RUN = 128
_WINDOW = 32
_BASE = 0x9E3779B97F4A7C15


def content_of(text: str) -> frozenset[int]:
    """The 64-bit numbers of a document: itself, its paragraphs and its runs. Empty for a very short one."""
    pieces = (_letters(piece) for piece in (text, *re.split(r"\n\s*\n", text)))
    whole = frozenset(_number(piece) for piece in pieces if len(piece) >= MIN_PARAGRAPH)
    return whole | _runs(_letters(text))


def content_of_all(texts: Iterable[str]) -> frozenset[int]:
    """The numbers of all documents together."""
    return frozenset().union(*map(content_of, texts))


def document_hash(text: str) -> str:
    """64 hex digits of the sha256 of a document whose white space is normalised."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _number(piece: str) -> int:
    return int.from_bytes(hashlib.sha256(piece.encode()).digest()[:8], "little")


def _runs(letters: str) -> frozenset[int]:
    """Hashes of the runs of 128 characters that are the smallest of 32 neighbours."""
    if len(letters) < RUN:
        return frozenset()
    hashes = np.frombuffer(letters.encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    power, length = _BASE, 1
    while length < RUN:  # the hash of 2n characters from two hashes of n, modulo 2^64
        hashes = hashes[:-length] * np.uint64(power) + hashes[length:]
        power, length = power * power % 2**64, 2 * length
    mixed = (hashes ^ (hashes >> np.uint64(31))) * np.uint64(_BASE)
    mixed ^= mixed >> np.uint64(29)
    neighbours = np.lib.stride_tricks.sliding_window_view(mixed, min(_WINDOW, mixed.size))
    return frozenset(np.unique(neighbours.min(axis=1)).tolist())
