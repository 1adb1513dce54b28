from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.data.spec import KINDS, parse_spec
from prunebench.errors import InputError

BASE = Path("/base")


def test_a_file_spec_starts_from_the_base_folder_and_has_defaults():
    spec = parse_spec("text:notes/a.txt", BASE)
    assert (spec.kind, spec.source, spec.column) == ("text", "/base/notes/a.txt", "")
    assert (spec.samples, spec.length, spec.seed, spec.sample) == (None, None, 0, "first")
    assert (spec.bos, spec.join) == (False, "\n\n")


def test_an_absolute_path_stays():
    assert parse_spec("tokens:/x/t.npy", BASE).source == "/x/t.npy"


def test_all_options_are_read():
    spec = parse_spec(
        "jsonl:a.jsonl#body?samples=64&length=512&seed=7&sample=random&bos=1&join=%0A-%26-", BASE
    )
    assert (spec.source, spec.column) == ("/base/a.jsonl", "body")
    assert (spec.samples, spec.length, spec.seed, spec.sample) == (64, 512, 7, "random")
    assert (spec.bos, spec.join) == (True, "\n-&-")


def test_the_column_may_also_stand_after_the_options():
    before, after = (
        parse_spec("jsonl:a.jsonl#body?samples=4", BASE),
        parse_spec("jsonl:a.jsonl?samples=4#body", BASE),
    )
    assert replace(before, text=after.text) == after


def test_datasets_have_an_optional_config_a_split_and_a_column():
    spec = parse_spec("mirror:allenai/c4/en:train#text?samples=8", BASE)
    assert (spec.source, spec.split, spec.column, spec.samples) == ("allenai/c4/en", "train", "text", 8)
    assert parse_spec("hub:openai/gsm8k:test", BASE).column == "text"


def test_builtin_text_has_an_optional_split():
    assert (parse_spec("builtin:pydoc", BASE).source, parse_spec("builtin:pydoc", BASE).split) == (
        "pydoc",
        "",
    )
    assert parse_spec("builtin:pydoc:alpha?length=128", BASE).split == "alpha"


def test_join_none_keeps_documents_apart():
    assert parse_spec("jsonl:a?join=none", BASE).join is None


def test_the_last_hash_is_the_column_and_escapes_are_decoded():
    spec = parse_spec("jsonl:a#b%3Fc%2523.jsonl#the%20column", BASE)
    assert (spec.source, spec.column) == ("/base/a#b?c%23.jsonl", "the column")


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_every_escaped_file_name_comes_back(name):
    spec = parse_spec(f"text:/{quote(name, safe='')}?samples=1", BASE)
    assert spec.source == str(Path(f"/{name}"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("corpus.txt", "does not say what it is: write for example text:corpus.txt"),
        ("/a:b/corpus.txt", "does not say what it is"),
        ("txt:corpus", "unknown kind 'txt': did you mean 'text'?"),
        ("text:", "nothing follows 'text:'"),
        ("text:a?lenght=4", "option 'lenght' is unknown to text: did you mean 'length'?"),
        ("tokens:a.npy?bos=1", "option 'bos' does not apply to tokens: valid: samples, length, seed, sample"),
        ("text:a?samples=1&samples=2", "option 'samples' is given twice"),
        ("text:a?samples", "option 'samples' has no value"),
        ("text:a?samples=0", "samples must be a whole number, at least 1, not '0'"),
        ("text:a?samples=many", "samples must be a whole number, at least 1, not 'many'"),
        ("text:a?samples=" + "9" * 5000, "samples must be a whole number"),
        ("text:a?length=1", "length must be a whole number, at least 2, not '1'"),
        ("text:a?seed=-1", "seed must be a whole number, at least 0, not '-1'"),
        ("text:a?sample=frist", "sample is 'frist': did you mean 'first'?"),
        ("text:a?bos=yes", "bos is 'yes': valid: 0, 1"),
        ("text:a#column", "text has no columns; write %23 for a # in a name"),
        ("jsonl:a#b?join=#", "a second # stands in the options"),
        ("mirror:wikitext:train#text", "'wikitext' is not ORG/NAME or ORG/NAME/CONFIG"),
        ("mirror:a/../..:train#text", "is not ORG/NAME or ORG/NAME/CONFIG"),
        ("mirror:a/b#text", "names no split: write mirror:a/b:SPLIT#COLUMN"),
        ("mirror:a/b%00:train", "no name holds a NUL"),
        ("mirror:../../outside:train", "is not ORG/NAME or ORG/NAME/CONFIG"),
        ("mirror:a/..%2f..%2foutside:train", "is not ORG/NAME or ORG/NAME/CONFIG"),
        ("mirror:a/b:..%2ftrain", "names no split"),
        ("text:%ff", "the escapes in '%ff' are not UTF-8"),
    ],
)
def test_a_bad_spec_is_explained(text, sentence):
    with pytest.raises(InputError) as error:
        parse_spec(text, BASE)
    assert sentence in str(error.value)
    assert text in str(error.value)


def test_every_kind_is_named_when_none_is_given():
    with pytest.raises(InputError, match=", ".join(KINDS)):
        parse_spec("somewhere", BASE)
