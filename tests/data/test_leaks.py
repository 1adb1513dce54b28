import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from prunebench.data.corpus import load_corpus
from prunebench.data.leaks import check_leaks, find_overlaps
from prunebench.data.passages import choice_task
from prunebench.data.pydoc import SPLITS, pydoc_texts
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import perplexity_task
from prunebench.errors import InputError


def prose(seed: int) -> str:
    letters = random.Random(seed)
    return " ".join("".join(letters.choices("abcdefghij", k=6)) for _ in range(80)) + "."


TESTED = [prose(n) for n in range(3)]
"""Documents of about 560 characters: none holds a blank line."""


@pytest.fixture
def task(tmp_path, codec):
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TESTED))
    return perplexity_task(parse_spec("jsonl:test.jsonl?length=64", tmp_path), codec, name="exam")


@pytest.mark.parametrize(
    "text",
    [
        "\n\n".join(TESTED),
        " ".join(TESTED),
        f"{prose(7)} {TESTED[1]} {prose(8)}",
        f"{prose(7)}\n\n{TESTED[2].upper()}\n\n{prose(8)}",
        TESTED[0].replace(" ", "\n"),
        f"{prose(7)} {TESTED[1][100:350]} {prose(8)}",
    ],
    ids=["same", "other joiner", "inside", "capitals", "wrapped", "a piece"],
)
def test_test_text_under_another_name_is_refused(tmp_path, codec, task, text):
    (tmp_path / "calibration.txt").write_text(text)
    corpus = load_corpus(parse_spec("text:calibration.txt?length=32", tmp_path), codec)
    with pytest.raises(
        InputError, match=r"calibration shares text with the test task exam: [123] of its 3 documents"
    ):
        check_leaks({"calibration": corpus.texts}, [task])


def test_the_sentence_names_corpus_task_number_and_example(task):
    with pytest.raises(InputError) as error:
        check_leaks({"traces": [TESTED[1]], "alpha": [TESTED[0], TESTED[1]]}, [task])
    assert str(error.value) == (
        "traces shares text with the test task exam: 1 of its 3 documents, for example "
        f"'{TESTED[1][:60]}' (and 1 more); choose other text, or set allow_overlap to mark the rows instead"
    )


def test_an_allowed_overlap_is_returned_for_the_row(task):
    (overlap,) = check_leaks({"calibration": [TESTED[0], TESTED[2]]}, [task], allow_overlap=True)
    assert (overlap.corpus, overlap.task, overlap.shared, overlap.total) == ("calibration", "exam", 2, 3)
    assert overlap.example == TESTED[0][:60]


def test_other_text_and_selection_tasks_are_no_overlap(tmp_path, codec, task):
    assert check_leaks({"calibration": [prose(9)], "nothing": []}, [task]) == ()
    spec = parse_spec("jsonl:test.jsonl?length=64", tmp_path)
    selection = perplexity_task(spec, codec, name="choice", role="selection")
    assert check_leaks({"calibration": TESTED}, [selection]) == ()


def test_token_files_are_read_back_as_text(tmp_path, codec, task):
    ids = np.frombuffer(TESTED[1][:512].encode(), dtype=np.uint8).reshape(-1, 64)
    np.save(tmp_path / "t.npy", ids)
    corpus = load_corpus(parse_spec("tokens:t.npy", tmp_path), codec)
    assert [overlap.shared for overlap in find_overlaps({"golden": corpus.texts}, [task])] == [1]


def test_a_question_inside_the_chat_markers_of_a_trace_is_found(tmp_path, codec):
    question = "How many positive integers below one thousand have an even sum of digits?"
    (tmp_path / "exam.jsonl").write_text(json.dumps({"text": question}) + "\n")
    exam = perplexity_task(parse_spec("jsonl:exam.jsonl?length=8", tmp_path), codec, name="exam")
    trace = {
        "prompt": f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
        "generation": "500.",
    }
    (tmp_path / "traces.jsonl").write_text(json.dumps(trace) + "\n")
    corpus = load_corpus(parse_spec("traces:traces.jsonl", tmp_path), codec)
    assert [overlap.shared for overlap in find_overlaps({"traces": corpus.texts}, [exam])] == [1]


def test_the_splits_of_the_built_in_text_are_sealed_from_its_tests(codec):
    tasks = [
        perplexity_task(parse_spec("builtin:pydoc:perplexity?length=512", Path()), codec, name="perplexity"),
        choice_task(parse_spec("builtin:pydoc:choice", Path()), codec, name="choice"),
    ]
    chosen_with = {split: pydoc_texts(split) for split in SPLITS if split not in ("perplexity", "choice")}
    assert check_leaks(chosen_with, tasks) == ()
    everything = check_leaks({"all": pydoc_texts()}, tasks, allow_overlap=True)
    assert [(o.task, o.shared == o.total) for o in everything] == [("perplexity", True), ("choice", True)]
    for one, other in itertools.permutations(("perplexity", "choice")):
        assert all(o.task == one for o in find_overlaps({other: pydoc_texts(one)}, tasks))
