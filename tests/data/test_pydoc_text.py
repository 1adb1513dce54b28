import hashlib
import itertools
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from prunebench.data.codec import TextCodec
from prunebench.data.content import content_of_all
from prunebench.data.corpus import load_corpus
from prunebench.data.passages import make_items
from prunebench.data.pydoc import SPLITS, pydoc_texts
from prunebench.data.spec import parse_spec
from prunebench.errors import InputError

# A token of any usual tokenizer is under eight characters of this text on average (SmolLM2's: 4.1).
CHARACTERS_A_TOKEN = 8


def test_the_whole_text_is_every_topic_sorted_by_name():
    assert pydoc_texts() == tuple(topics[name] for name in sorted(topics))


def test_every_topic_is_in_exactly_one_split():
    dealt = [text for split in SPLITS for text in pydoc_texts(split)]
    assert sorted(dealt) == sorted(topics.values())


def test_no_two_splits_share_text():
    contents = {split: content_of_all(pydoc_texts(split)) for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        assert contents[one].isdisjoint(contents[other]), (one, other)


@pytest.mark.parametrize(
    ("split", "tokens"),
    [
        ("calibration", 8 * 512),
        ("perplexity", 2048),
        ("selection", 2048),
        ("probe", 1024),
        ("alpha", 1024),
        ("merge", 320),
    ],
)
def test_every_split_holds_what_the_quickstart_takes(split, tokens):
    assert sum(map(len, pydoc_texts(split))) >= tokens * CHARACTERS_A_TOKEN


def test_the_choice_split_gives_at_least_64_items():
    assert len(make_items(pydoc_texts("choice"))) >= 64


def test_an_unknown_split_is_refused_by_name():
    with pytest.raises(InputError, match="no split 'test'"):
        pydoc_texts("test")


@pytest.mark.real
def test_the_leading_rows_are_the_recorded_ones(smollm2: Path):
    """The recordings under tests/golden were made on these ids (Python 3.11.7)."""
    from tokenizers import Tokenizer

    text = "\n\n".join(pydoc_texts())
    if not hashlib.sha256(text.encode()).hexdigest().startswith("71f2ff5d"):
        pytest.skip("this Python's help topics differ from those of 3.11.7")
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    codec = TextCodec(
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        decode=tokenizer.decode,
        vocab_size=tokenizer.get_vocab_size(),
    )
    for rows, recorded in (16, "86133d863bf353f1"), (4, "f624c6e8fd22ba19"):
        corpus = load_corpus(parse_spec(f"builtin:pydoc?samples={rows}&length=256", Path()), codec)
        ids = np.stack(corpus.rows).astype("<i4")
        assert hashlib.sha256(ids.tobytes()).hexdigest()[:16] == recorded
