"""Generative tasks: questions and grades against lm-eval's own, for the same writings."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lm_eval_stock import simple_evaluate
from prunebench.core.unit import Generation
from prunebench.data.tasks import Question
from prunebench.errors import InputError
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.evaluation.scoring import grader_named
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.tokenizer import Encoder

REAL_MIRROR = Path(__file__).parents[3] / "shared" / "data"
WRITTEN = [
    " 1 + 1000 = 1001\n#### 1,001",
    " It is 2002, that is all.",
    " #### 3003.",
    " I do not know.",
    "",
    " She pays $6,006.00 in the end\n#### $6006",
    " 7 then 14 then 99",
]
RIGHT = {
    "exact_match_strict_match": [1, 0, 1, 0, 0, 0, 0],
    "exact_match_flexible_extract": [1, 1, 1, 0, 0, 1, 0],
}


def written(text, finish_reason="stop"):
    return Generation(
        prompt_hash="p", text=text, num_prompt_tokens=1, num_tokens=9, finish_reason=finish_reason
    )


@pytest.fixture
def task(tiny, harness_mirror):
    return harness_task("gsm8k", Encoder(Checkpoint.open(tiny("llama"))), name="g", mirror=harness_mirror)


@pytest.fixture
def grader():
    return grader_named("harness", allow_code_execution=False)


def question_of(document):
    assert isinstance(document.payload, Question)
    return document.payload


def compare(task, grader, mirror, cache, texts):
    """Equal prompts, extracted answers and grades for these writings; gives the grades by metric."""
    from lm_eval.api.model import LM

    class Writer(LM):
        """Writes what it is told to."""

        def generate_until(self, requests, **_):
            return texts[: len(requests)]

        def loglikelihood(self, requests, **_):
            raise AssertionError("nothing to score")

        loglikelihood_rolling = loglikelihood

    stock = simple_evaluate(Writer(), ["gsm8k"], mirror, cache, limit=len(texts))["samples"]["gsm8k"]
    assert len(stock) == 2 * len(texts)
    seen = {}
    for theirs in stock:
        document = task.documents[theirs["doc_id"]]
        question = question_of(document)
        context, settings = theirs["arguments"][0]
        assert (question.prompt, list(question.stop)) == (context, settings["until"])
        graded = grader.grade(question, written(texts[document.doc_id]))
        metric = f"exact_match_{theirs['filter'].replace('-', '_')}"
        assert graded.metrics[metric] == theirs["exact_match"]
        assert graded.detail["extracted"][theirs["filter"]] == theirs["filtered_resps"][0]
        seen.setdefault(metric, []).append(graded.metrics[metric])
    return seen


def test_gsm8k_is_asked_and_graded_as_by_lm_eval(task, grader, harness_mirror, hf_cache):
    assert compare(task, grader, harness_mirror, hf_cache, WRITTEN) == RIGHT


@pytest.mark.skipif(not REAL_MIRROR.is_dir(), reason="no ../shared/data beside the repository")
def test_real_questions_too(tiny, grader, hf_cache):
    task = harness_task("gsm8k", Encoder(Checkpoint.open(tiny("llama"))), name="g", mirror=REAL_MIRROR)
    answers = pq.read_table(REAL_MIRROR / "openai/gsm8k/main/test-00000-of-00001.parquet")[
        "answer"
    ].to_pylist()
    seen = compare(task, grader, REAL_MIRROR, hf_cache, answers[:5] + [text[:-1] for text in answers[5:9]])
    assert seen["exact_match_strict_match"][:5] == [1] * 5


def test_questions_carry_what_grading_and_sampling_need(task, harness_mirror):
    assert task.kind == "generate"
    assert dict(task.recipe) == {
        "harness_task": "gsm8k",
        "dataset": "openai/gsm8k/main:test",
        "documents": 7,
        "shots": 5,
        "fewshot_seed": 1234,
    }, "without lm-eval's version, which is the grader's: a new one needs no new writing"
    question = question_of(task.documents[2])
    assert (question.raw, question.grader) == (True, "harness")
    assert question.prompt.count("Question:") == 6
    assert question.reference == {
        "task": "gsm8k",
        "shots": 5,
        "mirror": str(harness_mirror),
        "index": 2,
        "doc_hash": task.documents[2].doc_hash,
        "generation": {"do_sample": False, "temperature": 0.0, "max_gen_toks": 256},
    }


def test_the_grader_says_what_it_saw(task, grader):
    question = question_of(task.documents[0])

    def verdict(text, finish_reason="stop"):
        return grader.grade(question, written(text, finish_reason)).detail["verdict"]

    assert verdict("#### 1001") == "right"
    assert verdict("#### 1002") == "wrong"
    assert verdict("1001 said in words") == "right"
    assert verdict("nothing") == "no_answer"
    assert verdict("so 5 and", "length") == "limit_hit"
    assert grader.version == "harness-1 lm-eval 0.4.13"


def test_another_question_than_the_runs_is_not_graded(task, grader):
    question = question_of(task.documents[0])
    assert isinstance(question.reference, dict)
    other = replace(question, reference={**question.reference, "index": 1})
    with pytest.raises(InputError, match="document 1 of lm-eval's gsm8k is another one here"):
        grader.grade(other, written("#### 1"))
