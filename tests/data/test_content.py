import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.data.content import MIN_PARAGRAPH, content_of, content_of_all, document_hash

WORDS = [f"word{n}" for n in range(3000)]


def prose(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def test_layout_case_and_punctuation_do_not_count():
    text = prose(0, 60)
    assert content_of(text) == content_of(text.upper().replace(" ", ",\n") + "!")


def test_an_equal_paragraph_is_found_between_other_paragraphs():
    paragraph = "It has a little more than fifty letters and digits, this paragraph, has it not?"
    assert len("".join(filter(str.isalnum, paragraph))) >= MIN_PARAGRAPH
    content = content_of(f"{prose(1, 40)}\n \n{paragraph}\n\n{prose(2, 40)}")
    assert content & content_of(paragraph)


def test_a_short_paragraph_is_no_evidence():
    heading = "Background and recording"
    assert not content_of(heading)
    assert not content_of(f"{heading}\n\n{prose(1, 60)}") & content_of(f"{heading}\n\n{prose(2, 60)}")


@given(seed=st.integers(0, 10**6), before=st.integers(0, 50), after=st.integers(0, 50))
def test_a_common_run_is_found_wherever_it_stands(seed, before, after):
    common = "".join(random.Random(seed).choices("abcdefgh", k=159))
    one, other = f"{prose(seed + 1, before)} {common} {prose(seed + 2, after)}", prose(seed + 3, 30) + common
    assert content_of(one) & content_of(other)


@given(seed=st.integers(0, 10**6))
def test_texts_that_share_less_than_a_run_are_apart(seed):
    common = "".join(random.Random(seed).choices("abcdefgh", k=127))
    assert not content_of(f"{prose(seed, 50)}X{common}Y{prose(seed + 1, 50)}") & content_of(f"1{common}2")


@pytest.mark.parametrize("length", [0, 49, 50, 127, 128, 129, 159, 160])
def test_texts_of_every_length_around_a_run_have_a_content(length):
    letters = "".join(random.Random(1).choices("abc", k=length))
    assert bool(content_of(letters)) == (length >= 50)


def test_the_content_of_many_is_the_union():
    assert content_of_all([prose(0, 60), prose(1, 60)]) == content_of(prose(0, 60)) | content_of(prose(1, 60))
    assert content_of_all([]) == frozenset()


def test_document_hashes_ignore_white_space_only():
    assert document_hash(" a\n b ") == document_hash("a b") != document_hash("A b")
    # echo -n "a b" | sha256sum
    assert document_hash("a b") == "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65"
