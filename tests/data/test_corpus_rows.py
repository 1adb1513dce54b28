import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunebench.data.codec import TextCodec
from prunebench.data.corpus import cut, load_corpus
from prunebench.data.spec import parse_spec
from prunebench.errors import InputError


@pytest.fixture
def load(tmp_path, codec):
    def load(text, **options):
        return load_corpus(parse_spec(text, tmp_path), codec, **options)

    return load


def written(corpus):
    return [bytes(row.tolist()).decode() for row in corpus.rows]


def jsonl(path: Path, *rows: dict) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_text_is_cut_into_complete_rows(tmp_path, load):
    (tmp_path / "a.txt").write_text("abcdefgh")
    corpus = load("text:a.txt?length=3")
    assert written(corpus) == ["abc", "def"]
    assert corpus.rows[0].dtype == np.int64
    assert (corpus.texts, corpus.num_tokens) == (("abcdefgh",), 6)


def test_documents_are_joined_before_they_are_cut(tmp_path, load):
    jsonl(tmp_path / "a.jsonl", {"text": "ab"}, {"text": "cd"}, {"text": "e"})
    assert written(load("jsonl:a.jsonl?length=4")) == ["ab\n\n", "cd\n\n"]
    assert written(load("jsonl:a.jsonl?length=4&join=%2B")) == ["ab+c"]
    assert written(load("jsonl:a.jsonl?length=5&join=")) == ["abcde"]


def test_join_none_makes_one_row_a_document_and_skips_what_predicts_nothing(tmp_path, load):
    jsonl(tmp_path / "a.jsonl", {"text": "abcdef"}, {"text": ""}, {"text": "x"}, {"text": "gh"})
    assert written(load("jsonl:a.jsonl?length=4&join=none")) == ["abcd", "gh"]
    with_bos = load("jsonl:a.jsonl?length=4&join=none&bos=1")
    assert [row.tolist() for row in with_bos.rows] == [[256, 97, 98, 99], [256, 120], [256, 103, 104]]


def test_bos_starts_every_row_and_counts(tmp_path, load):
    (tmp_path / "a.txt").write_text("abcdef")
    assert [row.tolist() for row in load("text:a.txt?length=3&bos=1").rows] == [
        [256, 97, 98],
        [256, 99, 100],
        [256, 101, 102],
    ]


def test_bos_without_a_token_for_it_is_refused(tmp_path, codec):
    bare = TextCodec(encode=codec.encode, decode=codec.decode, vocab_size=258)
    with pytest.raises(InputError, match="no beginning-of-sequence token; write bos=0"):
        load_corpus(parse_spec("text:a.txt?bos=1", tmp_path), bare)


def test_the_rows_of_a_token_file_are_used_as_they_are(tmp_path, load):
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    np.save(tmp_path / "t.npy", array)
    assert np.array_equal(load("tokens:t.npy").rows, array)
    assert np.array_equal(load("tokens:t.npy?samples=2&length=3").rows, array[:2, :3])


def test_a_vector_of_tokens_is_one_stream(tmp_path, load):
    np.save(tmp_path / "t.npy", np.arange(7, dtype=np.uint16))
    assert [row.tolist() for row in load("tokens:t.npy?length=3").rows] == [[0, 1, 2], [3, 4, 5]]


def test_a_token_file_is_compared_with_tests_as_text(tmp_path, load):
    np.save(tmp_path / "t.npy", np.frombuffer(b"abcdefgh", dtype=np.uint8).reshape(2, 4))
    assert load("tokens:t.npy").texts == ("abcdefgh",)


def test_a_trace_is_the_whole_prompt_and_the_start_of_the_generation(tmp_path, load):
    jsonl(
        tmp_path / "t.jsonl",
        {"prompt": "p" * 3000, "generation": "g" * 3000, "seed": 0},
        {"prompt_ids": [1, 2], "generation_ids": [3, 4, 5], "prompt": "unused"},
    )
    corpus = load("traces:t.jsonl")
    assert written(corpus)[0] == "p" * 3000 + "g" * 2048
    assert corpus.rows[1].tolist() == [1, 2, 3, 4, 5]
    assert load("traces:t.jsonl?length=2&bos=1").rows[1].tolist() == [256, 1, 2, 3, 4]
    assert len(load("traces:t.jsonl?samples=1").rows) == 1
    assert load("traces:t.jsonl?length=2&bos=1").prompts[1] == 3


def test_at_most_64_rows_are_taken_from_text_unless_told(tmp_path, load):
    (tmp_path / "a.txt").write_text("ab" * 100)
    assert len(load("text:a.txt?length=2").rows) == 64
    assert len(load("text:a.txt?length=2", limit=None).rows) == 100
    assert len(load("text:a.txt?length=2&samples=80").rows) == 80


def test_random_rows_depend_on_the_seed_and_keep_the_order_of_the_text(tmp_path, load):
    (tmp_path / "a.txt").write_bytes(bytes(range(32, 96)))
    first, again, other = (
        written(load(f"text:a.txt?length=2&samples=8&sample=random&seed={s}")) for s in "001"
    )
    assert first == again != other
    assert first == sorted(set(first))
    assert first != written(load("text:a.txt?length=2&samples=8"))
    assert written(load("text:a.txt?length=2&samples=32&sample=random")) == written(
        load("text:a.txt?length=2")
    )


def test_the_same_ids_have_the_same_corpus_id_under_any_spec(tmp_path, load):
    (tmp_path / "a.txt").write_text("abcdef")
    jsonl(tmp_path / "b.jsonl", {"body": "abcdef and more"})
    np.save(tmp_path / "c.npy", np.array([[97, 98, 99], [100, 101, 102]], dtype=np.uint8))
    corpora = [
        load("text:a.txt?length=3"),
        load("text:a.txt?length=3&seed=5"),
        load("jsonl:b.jsonl#body?length=3&samples=2"),
        load("tokens:c.npy"),
    ]
    assert len({corpus.corpus_id for corpus in corpora}) == 1
    assert len({load(f"text:a.txt?length={n}").corpus_id for n in (2, 3, 6)}) == 3


@given(text=st.text("ab c\n", min_size=8), few=st.integers(1, 4), length=st.integers(2, 8))
@settings(max_examples=30)
def test_fewer_samples_are_the_leading_ones_of_more(tmp_path_factory, codec, text, few, length):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(8)))
    more = load_corpus(parse_spec(f"jsonl:a.jsonl?samples=8&length={length}", folder), codec)
    less = load_corpus(parse_spec(f"jsonl:a.jsonl?samples={few}&length={length}", folder), codec)
    assert [row.tolist() for row in less.rows] == [row.tolist() for row in more.rows[:few]]


@given(size=st.integers(0, 60), length=st.integers(1, 10))
def test_windows_partition_the_stream_up_to_a_rest_shorter_than_one(size, length):
    windows = cut(np.arange(size), length, length)
    assert [i for window in windows for i in window.tolist()] == list(range(size - size % length))


def test_only_as_many_documents_are_read_as_the_rows_need(tmp_path, load):
    jsonl(tmp_path / "a.jsonl", *({"text": "x" * 100} for _ in range(1000)))
    assert len(load("jsonl:a.jsonl?samples=2&length=50").texts) < 20
    assert len(load("jsonl:a.jsonl?samples=2&length=50&sample=random").texts) == 1000


def test_enough_is_read_for_a_tokenizer_with_very_long_tokens(tmp_path, codec):
    jsonl(tmp_path / "a.jsonl", *({"text": "word " * 40} for _ in range(100)))
    whole = TextCodec(encode=lambda text: [1] * (len(text) // 100), decode=codec.decode, vocab_size=2)
    corpus = load_corpus(parse_spec("jsonl:a.jsonl?samples=4&length=32", tmp_path), whole)
    assert len(corpus.rows) == 4


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("text:none.txt", "there is no file"),
        ("text:.", "cannot be read"),
        ("text:latin.txt", "latin.txt is not UTF-8 text (byte 1)"),
        ("text:empty.txt", "is empty: it holds no tokens"),
        ("text:short.txt?length=16", "holds 5 tokens, but one row needs 16: set a smaller length"),
        ("text:short.txt?samples=3&length=2", "3 rows asked, but there are 2 (4 tokens in them)"),
        ("jsonl:broken.jsonl", "line 2 is not JSON"),
        ("jsonl:list.jsonl", "line 1 is not a JSON object"),
        ("jsonl:rows.jsonl#txet", "line 1 has no column 'txet': did you mean 'text'? valid: text, id"),
        ("jsonl:rows.jsonl#id", "column 'id' of line 1 is int, not text"),
        ("jsonl:half.jsonl", "column 'text' of line 1 holds half a surrogate pair"),
        ("tokens:none.npy", "there is no file"),
        ("tokens:pickled.npy", "is no plain .npy array (pickled objects are refused)"),
        ("tokens:short.txt", "is no plain .npy array"),
        ("tokens:archive.npz", "is an archive of arrays; save one array"),
        ("tokens:float.npy", "holds float64 numbers; token ids are integers"),
        ("tokens:cube.npy", "has 3 dimensions"),
        ("tokens:nothing.npy", "holds no tokens (shape (0, 4))"),
        ("tokens:matrix.npy?length=5", "length=5, but the rows of"),
        ("tokens:matrix.npy?samples=3", "3 rows asked, but there are 2"),
        (
            "tokens:outside.npy",
            "row 1, position 2 holds token id 258, but the model's vocabulary has 258 ids",
        ),
        ("tokens:negative.npy", "row 0, position 1 holds token id -1"),
        ("traces:rows.jsonl", "line 1 has neither prompt nor prompt_ids; it has text, id"),
        ("traces:silent.jsonl", "the generation of line 1 is empty"),
        ("traces:words.jsonl", "prompt_ids of line 1 is no list of token ids"),
        ("mirror:a/b:train#text", "needs a mirror folder"),
        ("builtin:pydocs", "there is no built-in text 'pydocs'; there is builtin:pydoc"),
        ("builtin:pydoc:callibration", "no split 'callibration': did you mean 'calibration'?"),
    ],
)
def test_a_bad_source_is_explained(tmp_path, load, spec, sentence):
    (tmp_path / "latin.txt").write_bytes(b"a\xe9b")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("abcde")
    (tmp_path / "broken.jsonl").write_text('{"text": "a"}\n{"text":\n')
    (tmp_path / "list.jsonl").write_text("[1]\n")
    (tmp_path / "half.jsonl").write_text('{"text": "\\ud800"}\n')
    jsonl(tmp_path / "rows.jsonl", {"text": "abc", "id": 3})
    jsonl(tmp_path / "silent.jsonl", {"prompt": "p", "generation": ""})
    jsonl(tmp_path / "words.jsonl", {"prompt_ids": ["p"], "generation": "g"})
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "archive.npz", a=np.zeros(3, dtype=int))
    np.save(tmp_path / "float.npy", np.zeros((2, 2)))
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2), dtype=int))
    np.save(tmp_path / "nothing.npy", np.zeros((0, 4), dtype=int))
    np.save(tmp_path / "matrix.npy", np.zeros((2, 4), dtype=int))
    np.save(tmp_path / "outside.npy", np.array([[0, 1, 2], [3, 4, 258]]))
    np.save(tmp_path / "negative.npy", np.array([0, -1, 2]))
    with pytest.raises(InputError) as error:
        load(spec)
    assert sentence in str(error.value)
    assert f"'{spec}'" in str(error.value) or spec.startswith("builtin")


def test_a_tokenizer_of_another_model_is_noticed(tmp_path, codec):
    (tmp_path / "a.txt").write_text("abc")
    small = TextCodec(encode=codec.encode, decode=codec.decode, vocab_size=98)
    with pytest.raises(InputError, match="row 0, position 1 holds token id 98"):
        load_corpus(parse_spec("text:a.txt?length=3", tmp_path), small)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"text": ' + "9" * 5000 + "}"], ids=["deep", "long number"])
def test_json_that_python_refuses_is_named(tmp_path, load, line):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match="line 1 is not readable JSON"):
        load("jsonl:a.jsonl")


def test_a_name_that_no_file_can_have_is_refused(load):
    with pytest.raises(InputError, match="cannot be read"):
        load("text:a%00b")
