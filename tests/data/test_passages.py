import json
from collections import Counter
from pathlib import Path

import pytest

from prunebench.data.codec import TextCodec
from prunebench.data.passages import choice_task, make_items
from prunebench.data.pydoc import pydoc_texts
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import Choice, TaskData
from prunebench.errors import InputError

SPEC = parse_spec("builtin:pydoc:choice", Path())


def choices(task: TaskData) -> list[Choice]:
    return [document.payload for document in task.documents if isinstance(document.payload, Choice)]


def words(start: int, count: int) -> str:
    return " ".join(f"W{n}" for n in range(start, start + count))


def paragraph(start: int, count: int = 64) -> str:
    return words(start, count) + "."


FOUR = [paragraph(100), paragraph(300), paragraph(500), paragraph(700)]


def test_an_item_shows_48_words_and_continues_with_16():
    items = make_items(FOUR)
    assert sorted(item.context for item in items) == sorted(words(n, 48) for n in (100, 300, 500, 700))
    for item in items:
        start = int(item.context.split()[0][1:])
        assert item.continuations[item.gold] == words(start + 48, 16) + "."
        assert sorted(item.continuations) == sorted(words(n + 48, 16) + "." for n in (100, 300, 500, 700))


def test_code_lists_tables_and_headings_are_no_prose():
    heading, code, bullet = "Assertions\n**********", "   assert expression.", "* one.\n\n* two."
    document = f"{heading}\n\n{words(100, 60)}.\n\n{code}\n\n{bullet}\n\n{words(160, 4)}:"
    items = make_items([document, *FOUR[1:]])
    assert words(100, 48) in [item.context for item in items]


def test_a_rest_shorter_than_a_passage_is_left_out():
    assert len(make_items([paragraph(100, 127), *FOUR[1:]])) == 4
    assert len(make_items([paragraph(100, 128), *FOUR[1:]])) == 5


def test_repeated_text_gives_one_item():
    assert len(make_items([*FOUR, FOUR[0]])) == 4


def test_under_four_passages_give_no_items():
    assert make_items(FOUR[:3]) == []


@pytest.mark.parametrize("split", ["choice", "selection", "calibration"])
def test_gold_positions_are_balanced_and_distractors_are_untrue_and_alike(split):
    items = make_items(pydoc_texts(split))
    for block in range(0, len(items) - 3, 4):
        assert sorted(item.gold for item in items[block : block + 4]) == [0, 1, 2, 3]
    assert (
        len(Counter(tuple(item.gold for item in items[b : b + 4]) for b in range(0, len(items) - 3, 4))) > 3
    )
    for item in items:
        assert len(set(item.continuations)) == 4
        assert all(len(continuation.split()) == 16 for continuation in item.continuations)
    near = sum(max(map(len, i.continuations)) - min(map(len, i.continuations)) <= 12 for i in items)
    assert near > 0.7 * len(items)


def test_the_truth_follows_its_context_in_the_text_and_distractors_do_not():
    prose = " ".join(" ".join(text.split()) for text in pydoc_texts("choice"))
    followed = Counter()
    for item in make_items(pydoc_texts("choice")):
        for position, continuation in enumerate(item.continuations):
            followed[position == item.gold] += f"{item.context} {continuation}" in prose
    assert followed[True] > 20
    assert followed[False] == 0


def test_items_do_not_depend_on_the_order_of_the_documents():
    assert make_items(FOUR) == make_items(FOUR[::-1])


def test_fewer_items_are_the_leading_ones_of_more(codec):
    few, more = (choice_task(SPEC, codec, name="c", items=n) for n in (8, 32))
    assert [d.doc_hash for d in few.documents] == [d.doc_hash for d in more.documents[:8]]
    assert few.version == more.version
    assert json.loads(more.recipe_json)["items"] == 32


def test_an_item_is_tokenized_once_for_the_context_and_once_a_continuation(codec):
    task = choice_task(SPEC, codec, name="c", items=4)
    assert len(choices(task)) == 4
    for item, choice in zip(make_items(pydoc_texts("choice")), choices(task), strict=False):
        assert codec.decode(choice.context.tolist()) == item.context
        spoken = [codec.decode(continuation.tolist()) for continuation in choice.continuations]
        assert spoken == [f" {continuation}" for continuation in item.continuations]
        assert choice.num_bytes == tuple(len(continuation.encode()) for continuation in item.continuations)
        assert choice.gold == item.gold


def test_bos_starts_the_context(codec):
    spec = parse_spec("builtin:pydoc:choice?bos=1", Path())
    (with_bos,) = choices(choice_task(spec, codec, name="c", items=1))
    (without,) = choices(choice_task(SPEC, codec, name="c", items=1))
    assert with_bos.context.tolist() == [256, *without.context.tolist()]


def test_a_tokenizer_that_merges_over_the_border_splits_there_instead():
    """Words are ids, and the last word of any text has another id than inside it."""
    vocabulary: dict[str, int] = {}

    def encode(text):
        spelled = text.strip().split(" ")
        spelled[-1] += "$"
        return [vocabulary.setdefault(word, len(vocabulary)) for word in spelled]

    codec = TextCodec(encode=encode, decode=lambda ids: "", vocab_size=10**6)
    for choice in choices(choice_task(SPEC, codec, name="c", items=4)):
        assert choice.context.size == 48
        assert [continuation.size for continuation in choice.continuations] == [16] * 4


@pytest.mark.parametrize(
    ("spec", "items", "sentence"),
    [
        ("builtin:pydoc:choice", 10**6, "1000000 items asked, but 'builtin:pydoc:choice' gives"),
        ("builtin:pydoc:choice", 0, "0 items asked"),
        ("builtin:pydoc:choice?length=3", 4, "only bos applies to multiple choice"),
        ("text:a.txt", None, "gives no items: it needs at least 4 passages of prose"),
        ("tokens:a.npy", None, "tokens holds no documents of text"),
    ],
)
def test_a_bad_choice_task_is_explained(tmp_path, codec, spec, items, sentence):
    (tmp_path / "a.txt").write_text("One sentence.")
    with pytest.raises(InputError) as error:
        choice_task(parse_spec(spec, tmp_path), codec, name="c", items=items)
    assert sentence in str(error.value)
