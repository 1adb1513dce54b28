"""Token ids of requests against those of lm-eval's own wrapper, whatever the tokenizer puts around a text."""

import numpy as np
import pytest
from tokenizers import processors

from lm_eval_stock import stock_lm
from prunebench.errors import InputError
from prunebench.evaluation.harness.tokens import HarnessEncoder, cut
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model, load_tokenizer
from prunebench.models.rows import Row
from prunebench.models.tokenizer import Encoder

PAIRS = [
    ("Question: what?\nAnswer:", " the river"),
    ("ends with spaces  ", "and goes on"),
    ("ends with a line\n\n", " x"),
    ("über 日本", " café"),
    ("", " from nothing"),
    ("", "<s> begins itself"),
    ("<s>it begins with the token", " already"),
    ("a", "b"),
]
AROUND = {
    "nothing": None,
    "before": processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]),
    "both": processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]),
}


@pytest.fixture(scope="module", params=AROUND)
def checkpoint(request, tiny, tmp_path_factory):
    """The tiny llama with another tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    for path in tiny("llama").iterdir():
        (folder / path.name).symlink_to(path)
    tokenizer = load_tokenizer(Checkpoint.open(folder))
    if AROUND[request.param] is not None:
        tokenizer.backend_tokenizer.post_processor = AROUND[request.param]
    for path in folder.glob("tokenizer*"):
        path.unlink()
    tokenizer.save_pretrained(folder)
    return Checkpoint.open(folder)


def test_every_pair_is_split_as_lm_eval_splits_it(checkpoint):
    dense = load_model(checkpoint, dtype="float32")
    lm = stock_lm(dense.model, dense)
    asked = []
    lm._loglikelihood_tokens = lambda requests, **_: [asked.append(request[1:]) for request in requests]

    class Request:
        def __init__(self, *args):
            self.args = args

    lm.loglikelihood([Request(*pair) for pair in PAIRS])
    encoder = HarnessEncoder(Encoder(checkpoint))
    for pair, (before, after) in zip(PAIRS, asked, strict=True):
        row = encoder.row(*pair)
        assert (row.ids[: row.scored_from].tolist(), row.ids[row.scored_from :].tolist()) == (before, after)


def test_nothing_to_score_and_nothing_before_it_are_named(tiny):
    encoder = HarnessEncoder(Encoder(Checkpoint.open(tiny("llama"))))
    with pytest.raises(InputError, match="no token to score, or none to predict it from: context 'a'"):
        encoder.row("a", "")
    with pytest.raises(InputError, match="no token to score"):
        encoder.row("\n", "x")


def test_a_row_is_cut_from_the_left_to_what_the_context_predicts_from():
    row = Row(np.arange(10), 7)
    assert cut(row, 9) is row
    shorter = cut(row, 5)
    assert (shorter.ids.tolist(), shorter.scored_from) == ([4, 5, 6, 7, 8, 9], 3)
    assert cut(row, 3).scored_from == 1
    with pytest.raises(
        InputError, match="a continuation of 3 tokens is longer than the model's context of 2"
    ):
        cut(row, 2)
