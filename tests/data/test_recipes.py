import dataclasses
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrors import write_split
from prunebench.data.recipes import RECIPES, recipe_named, recipe_task
from prunebench.data.tasks import Window
from prunebench.errors import InputError

WIKITEXT = RECIPES["lorp_wikitext2"]


def words(seed: int, size: int) -> str:
    generator = random.Random(seed)
    return "".join(generator.choice("abcdefgh  ") for _ in range(size - 1)) + "."


def write(mirror, name, texts):
    recipe = RECIPES[name]
    write_split(mirror, recipe.dataset, recipe.split, texts, column=recipe.column)


def windows_of(task):
    return [document.payload for document in task.documents if isinstance(document.payload, Window)]


def rows_of(task):
    return [window.ids.tolist() for window in windows_of(task)]


@pytest.fixture
def with_bos(codec):
    """A tokenizer that puts 256 before every text when it is called, as Llama's does."""
    return dataclasses.replace(codec, opening=(256,))


@pytest.mark.parametrize(
    ("name", "length"), [("lorp_wikitext2", 2048), ("lorp_ptb", 2048), ("flap_wikitext2", 128)]
)
def test_a_joined_corpus_is_one_text_cut_into_whole_windows(tmp_path, codec, name, length):
    texts = [words(i, 700) for i in range(8)] + [""]
    write(tmp_path, name, texts)
    ids = list("\n\n".join(texts).encode())
    task = recipe_task(name, codec, name="t", mirror=tmp_path)
    assert rows_of(task) == [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
    assert {window.scored_from for window in windows_of(task)} == {1}


def test_a_joined_corpus_starts_once_as_the_tokenizer_starts_a_text(tmp_path, with_bos):
    texts = [words(i, 700) for i in range(8)]
    write(tmp_path, "lorp_wikitext2", texts)
    ids = [256, *"\n\n".join(texts).encode()]
    for windows in (None, 1):
        task = recipe_task("lorp_wikitext2", with_bos, name="t", mirror=tmp_path, windows=windows)
        assert rows_of(task) == [ids[:2048], ids[2048:4096]][: windows or 2]


def test_c4_gives_one_window_at_a_drawn_place_of_each_longer_document(tmp_path, with_bos):
    sizes = [100, 2047, 2048, 5000, 2500, 1, 4000]
    texts = [words(i, size) for i, size in enumerate(sizes)]
    write(tmp_path, "lorp_c4", texts)
    draw = random.Random(0)
    expected = []
    for text in texts:
        ids = [256, *text.encode()]
        if len(ids) >= 2048 + 1:
            start = draw.randint(0, len(ids) - 2048 - 1)
            expected.append(ids[start : start + 2048])
    assert len(expected) == 4
    task = recipe_task("lorp_c4", with_bos, name="t", mirror=tmp_path, windows=4)
    assert rows_of(task) == expected
    assert task.texts == tuple(texts[i] for i in (2, 3, 4, 6))


@pytest.mark.parametrize(
    ("article", "sentence"),
    [
        ("One. Two.", "One."),
        ("The U.S. state of W. is big. It has trees.", "The U.S. state of W. is big."),
        ("\nA heading\n\nText. More.", "A heading"),
        ("no stop", "no stop"),
    ],
)
def test_laco_takes_the_first_sentence_of_each_article(tmp_path, with_bos, article, sentence):
    write(tmp_path, "laco_wikipedia", ["", " \n ", article])
    task = recipe_task("laco_wikipedia", with_bos, name="t", mirror=tmp_path, windows=1)
    assert rows_of(task) == [[256, *sentence.encode()]]
    assert task.texts == (sentence,)


def test_a_sentence_of_one_token_predicts_nothing_and_is_left_out(tmp_path, codec):
    write(tmp_path, "laco_wikipedia", ["x", "xy", "yz"])
    task = recipe_task("laco_wikipedia", codec, name="t", mirror=tmp_path, windows=2)
    assert rows_of(task) == [list(b"xy"), list(b"yz")]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_where_it_is_from_and_everything_it_sets_is_in_the_key(tmp_path, codec, name):
    recipe = RECIPES[name]
    assert recipe.source
    assert recipe.dataset.count("/") == 2
    write(tmp_path, name, [f"{words(i, 5000)} End." for i in range(3)])
    task = recipe_task(name, codec, name="t", mirror=tmp_path, windows=2)
    key = json.loads(task.recipe_json)
    assert key == {
        "recipe": name,
        "dataset": recipe.dataset,
        "split": recipe.split,
        "column": recipe.column,
        "cut": recipe.cut,
        "join": recipe.join,
        "length": recipe.length,
        "stride": None,
        "bos": "tokenizer",
        "unit": "token",
        "windows": 2,
    }
    lengths = {len(row) for row in rows_of(task)}
    assert max(lengths) <= recipe.length
    assert recipe.cut == "sentence_each" or lengths == {recipe.length}


def test_two_recipes_with_the_same_windows_keep_their_own_keys(tmp_path, codec):
    write(tmp_path, "lorp_wikitext2", [words(0, 5000)])
    lorp, simdiff = (
        recipe_task(name, codec, name="t", mirror=tmp_path)
        for name in ("lorp_wikitext2", "simdiff_wikitext2")
    )
    assert [d.doc_hash for d in lorp.documents] == [d.doc_hash for d in simdiff.documents]
    assert lorp.recipe_json != simdiff.recipe_json


@given(whole=st.integers(2, 9), part=st.integers(1, 9))
def test_fewer_windows_are_the_first_ones(tmp_path_factory, codec, whole, part):
    folder = tmp_path_factory.mktemp("mirror")
    write(folder, "flap_wikitext2", [words(i, 40) for i in range(4 * whole)])
    everything = recipe_task("flap_wikitext2", codec, name="t", mirror=folder)
    part = min(part, len(everything.documents))
    some = recipe_task("flap_wikitext2", codec, name="t", mirror=folder, windows=part)
    assert [d.doc_hash for d in some.documents] == [d.doc_hash for d in everything.documents][:part]
    assert some.recipe["windows"] == part


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(
        InputError, match=r"no perplexity recipe 'lorp_wikitext': did you mean 'lorp_wikitext2'\?"
    ):
        recipe_named("lorp_wikitext")


def test_a_missing_corpus_names_its_file_and_how_to_fetch_it(tmp_path, codec):
    with pytest.raises(InputError) as error:
        recipe_task("lorp_ptb", codec, name="t", mirror=tmp_path)
    path = tmp_path / "ptb-text-only/ptb_text_only/penn_treebank"
    assert f"the mirror has no {path}/validation-*.parquet" in str(error.value)
    assert f"prunebench prefetch CONFIG --out {tmp_path}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "windows", "sentence"),
    [
        ("lorp_c4", None, "takes 256 documents with more than 2048 tokens, but"),
        ("lorp_c4", 300, "recipe lorp_c4 has 256 windows, not 300"),
        ("laco_wikipedia", None, "takes 500 documents with a first sentence, but"),
        ("lorp_wikitext2", 3, "3 rows asked, but there are 2"),
    ],
)
def test_a_part_of_a_corpus_does_not_pass_for_the_whole(tmp_path, codec, name, windows, sentence):
    write(tmp_path, name, [words(0, 5000)])
    with pytest.raises(InputError, match=sentence):
        recipe_task(name, codec, name="t", mirror=tmp_path, windows=windows)


def test_the_table_has_the_windows_that_the_papers_print():
    lengths = {name: (recipe.length, recipe.windows) for name, recipe in RECIPES.items()}
    assert lengths == {
        "lorp_wikitext2": (2048, None),
        "lorp_ptb": (2048, None),
        "lorp_c4": (2048, 256),
        "simdiff_wikitext2": (2048, None),
        "flap_wikitext2": (128, None),
        "laco_wikipedia": (2048, 500),
    }
    assert WIKITEXT.dataset == "Salesforce/wikitext/wikitext-2-raw-v1"
