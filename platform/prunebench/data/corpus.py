"""From a SPEC to rows of token ids: what calibration, probes and perplexity tasks are measured on."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from prunebench.core.fingerprint import sha256_arrays
from prunebench.data.codec import Ids, TextCodec
from prunebench.data.content import document_hash
from prunebench.data.read import read_documents
from prunebench.data.rows import read_tokens, read_traces, token_rows
from prunebench.data.spec import CorpusSpec
from prunebench.errors import InputError

DEFAULT_SAMPLES = 64
DEFAULT_LENGTH = 512
_CHARACTERS_A_TOKEN = 16
"""Text read per token wanted. A multiple of what any tokenizer averages, so that what is read (and
therefore what is compared with the tests) does not depend on the tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Corpus:
    """Rows of token ids with the text they came from."""

    rows: tuple[Ids, ...]
    """Each of shape (tokens,); traces and unjoined documents differ in length."""
    texts: tuple[str, ...] = field(repr=False)
    """The documents that were read; `leaks` compares them with test tasks."""
    prompts: tuple[int, ...] = ()
    """Tokens of each row's prompt, for traces; empty for text, which has none."""

    @property
    def corpus_id(self) -> str:
        """64 hex digits of the sha256 of token ids and masks (no row is padded, so masks are all ones)."""
        return sha256_arrays(*(array for row in self.rows for array in (row, np.ones(row.shape, dtype=bool))))

    @property
    def documents(self) -> frozenset[str]:
        """Hashes of the documents that were read."""
        return frozenset(map(document_hash, self.texts))

    @property
    def num_tokens(self) -> int:
        """Tokens in all rows."""
        return sum(row.size for row in self.rows)


def load_corpus(
    spec: CorpusSpec,
    codec: TextCodec,
    *,
    mirror: Path | None = None,
    stride: int | None = None,
    limit: int | None = DEFAULT_SAMPLES,
) -> Corpus:
    """Read, tokenize, cut and sample.

    Args:
        spec: what to read, and how many rows of which length.
        codec: the model's tokenizer.
        mirror: folder that `mirror:` SPECs read.
        stride: tokens between the starts of consecutive rows cut from text; what a row holds unless given.
        limit: rows taken from text when the SPEC sets no `samples`; None for all.

    Raises:
        InputError: a broken source, an empty or too short text, fewer rows than asked, ids outside the
        vocabulary. ResourceError: a hub dataset that cannot be fetched here.
    """
    what = f"SPEC '{spec.text}'"
    given = spec.kind in ("tokens", "traces")
    wanted = spec.samples or (None if given else limit)
    prefix = codec.prefix(spec.bos, what)
    if spec.kind == "tokens":
        rows = _token_file(spec, codec, stride)
        chosen = _chosen(spec, rows, wanted)
        ids = np.concatenate([rows[i] for i in chosen])
        return Corpus(rows=tuple(rows[i] for i in chosen), texts=(codec.decode(ids.tolist()),))
    prompts: list[int] = []
    if spec.kind == "traces":
        rows, prompts, texts = read_traces(spec, codec)
    elif spec.join is None:
        rows, texts = _unjoined(spec, codec, prefix, mirror, wanted)
    else:
        rows, texts = _joined(spec, codec, prefix, read_documents(spec, mirror), stride, wanted)
    chosen = _chosen(spec, rows, wanted)
    if spec.kind == "traces" or spec.join is None:
        texts = [texts[i] for i in chosen]
    corpus = Corpus(
        rows=tuple(rows[i] for i in chosen),
        texts=tuple(texts),
        prompts=tuple(prompts[i] for i in chosen) if prompts else (),
    )
    codec.check(corpus.rows, what)
    return corpus


def cut(ids: Ids, length: int, stride: int) -> list[Ids]:
    """Complete windows of `length` ids, one every `stride`; a shorter rest is left out."""
    return [ids[start : start + length] for start in range(0, ids.size - length + 1, stride)]


def _token_file(spec: CorpusSpec, codec: TextCodec, stride: int | None) -> list[Ids]:
    array = read_tokens(spec)
    codec.check(list(np.atleast_2d(array)), f"SPEC '{spec.text}'")
    if array.ndim == 2:
        if stride is not None:
            raise InputError(
                f"SPEC '{spec.text}' holds rows that are used as they are: no stride applies to them"
            )
        return token_rows(spec, array)
    return _windows(spec, array, codec.prefix(spec.bos, ""), stride)


def _unjoined(
    spec: CorpusSpec, codec: TextCodec, prefix: Ids, mirror: Path | None, wanted: int | None
) -> tuple[list[Ids], list[str]]:
    """One row a document, its leading ids; documents without a token to predict are left out."""
    length = spec.length or DEFAULT_LENGTH
    rows: list[Ids] = []
    texts: list[str] = []
    for text in read_documents(spec, mirror):
        row = np.concatenate([prefix, codec.ids(text)])[:length]
        if row.size > max(1, prefix.size):
            rows.append(row)
            texts.append(text)
        if spec.sample == "first" and len(rows) == wanted:
            break
    return rows, texts


def _joined(
    spec: CorpusSpec,
    codec: TextCodec,
    prefix: Ids,
    documents: Iterator[str],
    stride: int | None,
    wanted: int | None,
) -> tuple[list[Ids], list[str]]:
    """Rows cut from the joined documents, and the documents that were read for them."""
    content = (spec.length or DEFAULT_LENGTH) - prefix.size
    tokens = (
        None if wanted is None or spec.sample == "random" else content + (wanted - 1) * (stride or content)
    )
    join = spec.join or ""
    texts: list[str] = []
    target = None if tokens is None else tokens * _CHARACTERS_A_TOKEN
    read = 0
    while True:
        while (target is None or read < target) and (text := next(documents, None)) is not None:
            texts.append(text)
            read += len(text) + len(join)
        ids = codec.ids(join.join(texts)[:target])
        # ids at the cut may differ from those of the whole text: none of them may be used
        if tokens is None or target is None or ids.size >= tokens + _CHARACTERS_A_TOKEN or read < target:
            return _windows(spec, ids, prefix, stride), texts
        target *= 2


def _windows(spec: CorpusSpec, ids: Ids, prefix: Ids, stride: int | None) -> list[Ids]:
    length = spec.length or DEFAULT_LENGTH
    content = length - prefix.size
    if stride is not None and not 1 <= stride <= content:
        raise InputError(
            f"SPEC '{spec.text}': stride {stride} must lie between 1 and the {content} tokens of a row"
        )
    if 0 < ids.size < content:
        raise InputError(
            f"SPEC '{spec.text}' holds {ids.size} tokens, but one row needs {content}: set a smaller length"
        )
    return [np.concatenate([prefix, window]) for window in cut(ids, content, stride or content)]


def _chosen(spec: CorpusSpec, rows: list[Ids], wanted: int | None) -> list[int]:
    """Indices of the sampled rows, ascending."""
    if not rows:
        raise InputError(f"SPEC '{spec.text}' is empty: it holds no tokens")
    if spec.samples is not None and spec.samples > len(rows):
        tokens = sum(row.size for row in rows)
        raise InputError(
            f"SPEC '{spec.text}': {spec.samples} rows asked, but there are {len(rows)} "
            f"({tokens} tokens in them): ask for fewer samples or a smaller length"
        )
    count = min(wanted or len(rows), len(rows))
    if spec.sample == "first":
        return list(range(count))
    generator = np.random.default_rng(spec.seed)
    return sorted(generator.choice(len(rows), size=count, replace=False).tolist())
