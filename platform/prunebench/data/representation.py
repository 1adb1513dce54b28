"""Held-out rows with the positions at which the states of pruned models are compared with the dense ones.

LayerTrim, appendix D: dense-model traces of AIME 2025, cut to 2,048 tokens (32K for attention), with 256
continuation positions sampled from each. How they are sampled is not stated; here without replacement, by a
seed and the row's place. Rows of text have no prompt: all of their positions are continuation.
"""

from pathlib import Path

import numpy as np

from prunebench.core.fingerprint import Json, sha256_arrays
from prunebench.data.codec import Ids, TextCodec
from prunebench.data.corpus import load_corpus
from prunebench.data.spec import CorpusSpec
from prunebench.data.tasks import Document, Measured, Role, TaskData, version_of
from prunebench.errors import InputError

REPRESENTATION_VERSION = 1


def representation_task(
    spec: CorpusSpec,
    codec: TextCodec,
    *,
    name: str,
    role: Role = "test",
    positions: int = 256,
    tokens: int = 2048,
    seed: int = 0,
    mirror: Path | None = None,
) -> TaskData:
    """Rows of a SPEC with their measured positions.

    Args:
        spec: the rows; of traces, positions lie in the generation.
        codec: the model's tokenizer.
        name: the task's name in the store.
        role: `test`, or `selection` where a search may look.
        positions: positions drawn of each row; all where it has no more.
        tokens: leading tokens of a row that are run.
        seed: of the draw.
        mirror: folder that `mirror:` SPECs read.

    Raises:
        InputError: as `load_corpus`, and a row that ends within its prompt.
    """
    corpus = load_corpus(spec, codec, mirror=mirror)
    documents = []
    for number, row in enumerate(corpus.rows):
        prompt = corpus.prompts[number] if corpus.prompts else 0
        row = row[:tokens]
        if row.size <= prompt:
            raise InputError(
                f"task {name}: row {number} of '{spec.text}' has a prompt of {prompt} tokens, which leaves "
                f"nothing to measure in its first {tokens}: raise tokens"
            )
        documents.append(_document(number, row, _drawn(np.arange(prompt, row.size), positions, seed, number)))
    recipe: dict[str, Json] = {
        "positions": positions,
        "tokens": tokens,
        "rows": len(documents),
        "length": spec.length,
        "bos": spec.bos,
        "seed": seed,
    }
    return TaskData(
        name=name,
        version=version_of(REPRESENTATION_VERSION, corpus.texts),
        role=role,
        kind="representation",
        recipe=recipe,
        documents=tuple(documents),
        texts=corpus.texts,
    )


def _drawn(available: Ids, count: int, seed: int, number: int) -> Ids:
    if available.size <= count:
        return available
    return np.sort(np.random.default_rng([seed, number]).choice(available, count, replace=False))


def _document(number: int, ids: Ids, positions: Ids) -> Document:
    return Document(
        doc_id=number,
        doc_hash=sha256_arrays(ids, positions),
        payload=Measured(ids=ids, positions=positions),
    )
