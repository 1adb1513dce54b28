import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.data.spec import parse_spec
from prunebench.data.tasks import Document, TaskData, Window, perplexity_task, range_hash, ranges
from prunebench.errors import InputError


@pytest.fixture
def task_of(tmp_path, codec):
    def task_of(text, options, **settings) -> TaskData:
        (tmp_path / "a.txt").write_text(text)
        return perplexity_task(parse_spec(f"text:a.txt?{options}", tmp_path), codec, name="t", **settings)

    return task_of


def payloads(task: TaskData) -> list[Window]:
    return [document.payload for document in task.documents if isinstance(document.payload, Window)]


def windows(task: TaskData) -> list[tuple[str, int]]:
    return [(bytes(i % 256 for i in window.ids).decode(), window.scored_from) for window in payloads(task)]


def test_windows_of_a_text_without_stride_do_not_overlap(task_of):
    assert windows(task_of("abcdefgh", "length=3")) == [("abc", 1), ("def", 1)]


def test_a_stride_scores_what_no_earlier_window_scored(task_of):
    assert windows(task_of("abcdefgh", "length=4", stride=2)) == [("abcd", 1), ("cdef", 2), ("efgh", 2)]
    assert windows(task_of("abcdefgh", "length=4", stride=4)) == [("abcd", 1), ("efgh", 1)]


def test_bos_counts_towards_the_length_and_is_not_scored(task_of):
    assert windows(task_of("abcdef", "length=4&bos=1")) == [("\0abc", 1), ("\0def", 1)]
    assert windows(task_of("abcdef", "length=4&bos=1", stride=1))[:2] == [("\0abc", 1), ("\0bcd", 3)]


def test_windows_are_limited_by_samples_and_unlimited_without(task_of):
    assert len(task_of("ab" * 100, "length=2").documents) == 100
    assert len(task_of("ab" * 100, "length=2&samples=3").documents) == 3


@given(data=st.data(), length=st.integers(2, 12), size=st.integers(12, 60), bos=st.booleans())
def test_a_stride_below_the_length_scores_every_token_but_the_first_once(
    tmp_path_factory, codec, data, length, size, bos
):
    content = length - bos
    stride = data.draw(st.integers(1, max(1, content - 1)))
    folder = tmp_path_factory.mktemp("stride")
    (folder / "a.txt").write_bytes(bytes(range(32, 32 + size)))
    spec = parse_spec(f"text:a.txt?length={length}&bos={int(bos)}", folder)
    task = perplexity_task(spec, codec, name="t", stride=stride)
    scored = [int(i) for window in payloads(task) for i in window.ids[window.scored_from :]]
    first = 32 if bos else 33
    overlapping = stride < content
    if overlapping:
        assert scored == list(range(first, first + len(scored)))
        assert size - (first - 32) - len(scored) < stride
    assert len(set(scored)) == len(scored)


def test_the_recipe_holds_every_setting_of_the_numbers(task_of):
    recipe = json.loads(task_of("abcdefgh", "length=4&bos=1&samples=2", stride=2).recipe_json)
    assert recipe == {
        "bos": True,
        "join": "\n\n",
        "length": 4,
        "sample": "first",
        "seed": 0,
        "stride": 2,
        "windows": 2,
    }


def test_the_version_names_the_text_and_not_its_file(task_of, tmp_path, codec):
    task = task_of("abcdefgh", "length=4")
    (tmp_path / "other name.txt").write_text("abcdefgh")
    renamed = perplexity_task(parse_spec("text:other%20name.txt?length=4", tmp_path), codec, name="u")
    assert renamed.version == task.version
    assert [d.doc_hash for d in renamed.documents] == [d.doc_hash for d in task.documents]
    assert task_of("abcdefgi", "length=4").version != task.version


def test_document_hashes_tell_apart_what_is_scored(task_of):
    whole, strided = task_of("abcdefgh", "length=4"), task_of("abcdefgh", "length=4", stride=2)
    assert whole.documents[0].doc_hash == strided.documents[0].doc_hash
    assert len({d.doc_hash for d in (*whole.documents, *strided.documents)}) == 4


def test_token_rows_and_traces_are_windows_too(tmp_path, codec):
    np.save(tmp_path / "t.npy", np.arange(8).reshape(2, 4))
    task = perplexity_task(parse_spec("tokens:t.npy", tmp_path), codec, name="t")
    assert [window.ids.tolist() for window in payloads(task)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (task.recipe["length"], task.recipe["join"]) == (4, None)


def numbered(count: int, kind) -> TaskData:
    payload = Window(ids=np.zeros(2, dtype=np.int64), scored_from=1)
    documents = tuple(Document(doc_id=i, doc_hash=f"{i:064}", payload=payload) for i in range(count))
    return TaskData(name="t", version="1", role="test", kind=kind, recipe={}, documents=documents, texts=())


@given(count=st.integers(0, 100), kind=st.sampled_from(["perplexity", "choice"]))
def test_ranges_partition_the_documents_in_order(count, kind):
    task = numbered(count, kind)
    assert [i for start, stop in ranges(task) for i in range(start, stop)] == list(range(count))
    sizes = {"perplexity": 4, "choice": 16}
    assert all(stop - start == sizes[kind] for start, stop in ranges(task)[:-1])


def test_ranges_of_a_longer_task_begin_with_those_of_a_shorter_one():
    assert ranges(numbered(12, "perplexity")) == (*ranges(numbered(8, "perplexity")), (8, 12))
    assert ranges(numbered(9, "perplexity")) == ((0, 4), (4, 8), (8, 9))


def test_the_hash_of_a_range_depends_on_its_documents_alone():
    short, long = numbered(8, "perplexity"), numbered(12, "perplexity")
    assert range_hash(short, 0, 4) == range_hash(long, 0, 4) != range_hash(long, 4, 8)


@pytest.mark.parametrize(
    ("options", "stride", "sentence"),
    [
        ("length=4", 0, "stride 0 must lie between 1 and the 4 tokens of a row"),
        ("length=4", 5, "stride 5 must lie between 1 and the 4 tokens of a row"),
        ("length=4&bos=1", 4, "stride 4 must lie between 1 and the 3 tokens of a row"),
        ("length=4&sample=random", 2, "a stride needs consecutive windows of one text"),
        ("length=16", None, "holds 8 tokens, but one row needs 16"),
    ],
)
def test_a_bad_task_is_explained(task_of, options, stride, sentence):
    with pytest.raises(InputError) as error:
        task_of("abcdefgh", options, stride=stride)
    assert sentence in str(error.value)


def test_rows_that_predict_nothing_or_take_no_stride_are_refused(tmp_path, codec):
    np.save(tmp_path / "t.npy", np.zeros((2, 1), dtype=int))
    with pytest.raises(InputError, match="a row of 1 token, which predicts nothing"):
        perplexity_task(parse_spec("tokens:t.npy", tmp_path), codec, name="t")
    with pytest.raises(InputError, match="no stride applies to them"):
        perplexity_task(parse_spec("tokens:t.npy", tmp_path), codec, name="t", stride=1)
