import json

import numpy as np
import pytest

from prunebench.data.representation import representation_task
from prunebench.data.spec import parse_spec
from prunebench.data.tasks import Measured, ranges
from prunebench.errors import InputError


def payloads(task):
    for document in task.documents:
        assert isinstance(document.payload, Measured)
        yield document.payload


@pytest.fixture
def traces(tmp_path):
    """Three traces with prompts of 4, 8 and 12 bytes and generations of 300."""
    lines = [{"prompt": "abcd" * n, "generation": chr(96 + n) * 300} for n in (1, 2, 3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return parse_spec("traces:t.jsonl", tmp_path)


def test_positions_are_drawn_from_the_generation_of_each_trace(traces, codec):
    task = representation_task(traces, codec, name="states", positions=50, tokens=200)
    assert ranges(task) == ((0, 1), (1, 2), (2, 3))
    drawn = list(payloads(task))
    for prompt, row in zip((4, 8, 12), drawn, strict=True):
        assert row.ids.size == 200
        assert row.positions.size == 50
        assert (np.diff(row.positions) > 0).all()
        assert prompt <= row.positions[0] < row.positions[-1] < 200
    assert len({tuple(row.positions) for row in drawn}) == 3
    assert task.recipe == {"positions": 50, "tokens": 200, "rows": 3, "length": None, "bos": False, "seed": 0}
    assert task.texts


def test_a_row_with_no_more_positions_is_measured_whole(traces, codec):
    task = representation_task(traces, codec, name="states", tokens=100)
    assert [row.positions.tolist() for row in payloads(task)] == [list(range(n, 100)) for n in (4, 8, 12)]


def test_every_position_of_a_text_is_one_of_continuation(tmp_path, codec):
    (tmp_path / "text.txt").write_text("abcdefgh" * 20)
    spec = parse_spec("text:text.txt?length=64", tmp_path)
    task = representation_task(spec, codec, name="states")
    assert [row.positions.tolist() for row in payloads(task)] == [list(range(64))] * 2


def test_another_draw_is_another_document_and_the_same_draw_the_same(traces, codec):
    def hashes(**settings):
        task = representation_task(traces, codec, name="states", **settings)
        return [document.doc_hash for document in task.documents]

    first = hashes(positions=20)
    assert first == hashes(positions=20)
    assert not set(first) & {*hashes(positions=20, seed=1), *hashes(positions=21), *hashes(tokens=100)}


def test_a_row_that_ends_within_its_prompt_is_refused(traces, codec):
    with pytest.raises(InputError, match=r"task states: row 1 of .* has a prompt of 8 tokens.*raise tokens"):
        representation_task(traces, codec, name="states", tokens=8)
