"""The built-in multiple-choice task: which of four continuations is the true one of a passage?

Passages are runs of 64 words of prose: 48 are shown, 16 continue them. The three distractors are
continuations of other passages of the same text, those nearest in length. Order, distractors and gold
positions follow from hashes, so equal text gives equal items everywhere, and fewer items are the leading
ones of more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prunebench.core.fingerprint import sha256_json, sha256_text
from prunebench.data.codec import Ids, TextCodec
from prunebench.data.content import content_of
from prunebench.data.read import read_documents
from prunebench.data.spec import CorpusSpec
from prunebench.data.tasks import Choice, Document, Role, TaskData, version_of
from prunebench.errors import InputError

CHOICES = 4
_VERSION = 1
_CONTEXT_WORDS = 48
_CONTINUATION_WORDS = 16


@dataclass(frozen=True, slots=True)
class Item:
    """One question in words. `continuations[gold]` follows `context` in the text."""

    context: str
    continuations: tuple[str, ...]
    gold: int


def choice_task(
    spec: CorpusSpec,
    codec: TextCodec,
    *,
    name: str,
    role: Role = "test",
    items: int | None = None,
    mirror: Path | None = None,
) -> TaskData:
    """The multiple-choice task of a text, `builtin:pydoc:choice` for instance.

    Args:
        spec: the text; of its options only `bos` applies.
        codec: the model's tokenizer.
        name: the task's name in the store.
        role: `test`, or `selection` where a search may look.
        items: how many; None for as many as the text gives.
        mirror: folder that `mirror:` SPECs read.

    Raises:
        InputError: a text that gives fewer items, or none; an option that does not apply.
    """
    if (spec.samples, spec.length, spec.sample, spec.join) != (None, None, "first", "\n\n"):
        raise InputError(f"task {name}: of the options of '{spec.text}' only bos applies to multiple choice")
    texts = tuple(read_documents(spec, mirror))
    questions = make_items(texts)
    if items is not None and not 1 <= items <= len(questions):
        raise InputError(f"task {name}: {items} items asked, but '{spec.text}' gives {len(questions)}")
    if not questions:
        raise InputError(
            f"task {name}: '{spec.text}' gives no items: it needs at least {CHOICES} passages of prose"
        )
    prefix = codec.prefix(spec.bos, f"task {name}")
    documents = tuple(
        Document(
            doc_id=number,
            doc_hash=sha256_json([item.context, list(item.continuations), item.gold]),
            payload=_tokenized(item, codec, prefix),
        )
        for number, item in enumerate(questions[:items])
    )
    for document in documents:
        if isinstance(document.payload, Choice):
            rows = [document.payload.context, *document.payload.continuations]
            codec.check(rows, f"task {name}, document {document.doc_id}")
    return TaskData(
        name=name,
        version=version_of(_VERSION, texts),
        role=role,
        kind="choice",
        recipe={
            "items": len(documents),
            "choices": CHOICES,
            "context_words": _CONTEXT_WORDS,
            "continuation_words": _CONTINUATION_WORDS,
            "bos": spec.bos,
        },
        documents=documents,
        texts=texts,
    )


def make_items(texts: Sequence[str]) -> list[Item]:
    """All items of the documents, in the order of their passages' hashes; none from under four passages."""
    passages = sorted(_passages(texts), key=lambda passage: sha256_text(" ".join(passage)))
    endings = sorted({continuation for _, continuation in passages})
    if len(endings) < CHOICES:
        return []
    items = []
    for number, (context, truth) in enumerate(passages):
        gold = _gold(passages[number - number % CHOICES][0], number % CHOICES)
        others = _distractors(context, truth, endings)
        items.append(Item(context, (*others[:gold], truth, *others[gold:]), gold))
    return items


def _gold(block: str, place: int) -> int:
    """Position of the truth: each of the four once in every block of four items."""
    return sorted(range(CHOICES), key=lambda position: sha256_json([block, position]))[place]


def _distractors(context: str, truth: str, endings: Sequence[str]) -> list[str]:
    """The three other endings nearest in length, ties and order by hash."""

    def draw(ending: str) -> str:
        return sha256_json([context, ending])

    def distance(ending: str) -> int:
        return abs(len(ending) - len(truth))

    others = [ending for ending in endings if ending != truth]
    farthest = sorted(map(distance, others))[CHOICES - 2]
    near = [ending for ending in others if distance(ending) <= farthest]
    nearest = sorted(near, key=lambda ending: (distance(ending), draw(ending)))
    return sorted(nearest[: CHOICES - 1], key=draw)


def _passages(texts: Sequence[str]) -> list[tuple[str, str]]:
    """(context, continuation) of every run of 64 words of prose that repeats no earlier one."""
    passages = []
    seen: set[int] = set()
    for text in texts:
        words = [
            word
            for paragraph in re.split(r"\n\s*\n", text)
            if _is_prose(paragraph)
            for word in paragraph.split()
        ]
        for start in range(
            0, len(words) - _CONTEXT_WORDS - _CONTINUATION_WORDS + 1, _CONTEXT_WORDS + _CONTINUATION_WORDS
        ):
            middle, stop = start + _CONTEXT_WORDS, start + _CONTEXT_WORDS + _CONTINUATION_WORDS
            passage = " ".join(words[start:middle]), " ".join(words[middle:stop])
            content = content_of("\n\n".join(passage))
            if seen.isdisjoint(content):
                passages.append(passage)
            seen |= content
    return passages


def _is_prose(paragraph: str) -> bool:
    """Sentences from the margin on: no code, list, table or heading."""
    return bool(re.match(r"[A-Z]", paragraph.lstrip("\n"))) and paragraph.rstrip().endswith((".", ":"))


def _tokenized(item: Item, codec: TextCodec, prefix: Ids) -> Choice:
    """The item as ids. A continuation is what the joint text has beyond the context, as lm-eval splits it."""
    context = codec.ids(item.context)
    joint = [codec.ids(f"{item.context} {continuation}") for continuation in item.continuations]
    if all(np.array_equal(row[: context.size], context) for row in joint):
        continuations = tuple(row[context.size :] for row in joint)
    else:
        continuations = tuple(codec.ids(f" {continuation}") for continuation in item.continuations)
    return Choice(
        context=np.concatenate([prefix, context]),
        continuations=continuations,
        num_bytes=tuple(len(continuation.encode()) for continuation in item.continuations),
        gold=item.gold,
    )
