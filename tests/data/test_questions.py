"""Benchmarks as questions: what is asked, what is true, and whose question it is."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrors import write_rows
from prunebench.data.benchmarks import BENCHMARKS, BOXED, LETTERS, benchmark_named, permutation_of
from prunebench.data.questions import question_task, source_in
from prunebench.data.tasks import Question, TaskData, ranges
from prunebench.errors import InputError
from prunebench.evaluation.versions import GRADERS

DATA = Path(__file__).parents[3] / "shared" / "data"
GPQA = "idavidrein/gpqa/gpqa_diamond"
AIME = {
    "Maxwell-Jia/AIME_2024/default": ("train", {"ID": "I-1", "Problem": "What is 3 + 4?", "Answer": 7}),
    "math-ai/aime24/default": ("test", {"id": 60, "problem": "What is 3 + 4?", "solution": "\\boxed{073}"}),
    "math-ai/aime25/default": ("test", {"id": "0", "problem": "What is 3 + 4?", "answer": "7"}),
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'import math\n\ndef half(x):\n    return x / 2\n\ndef area(r):\n    """Of a circle."""\n',
    "canonical_solution": "    return math.pi * r * r\n",
    "test": "def check(candidate):\n    assert candidate(0) == 0\n",
    "entry_point": "area",
}
MBPP = {
    "task_id": 2,
    "code": "def helper(x):\n    return x\n\ndef twice(x):\n    return helper(x) * 2\n",
    "prompt": "Write a function that doubles.",
    "test_imports": ["import math"],
    "test_list": ["assert twice(2) == 4", "assert math.isclose(twice(1.5), 3)"],
    "test": "assert twice(3) == 6\n",
}


def physics(number: int) -> dict:
    return {
        "Record ID": f"rec{number}",
        "Question": f"What is the energy of level {number} of this well?\n",
        "Correct Answer": f"{number} eV",
        **{f"Incorrect Answer {i}": f"{number + i} eV" for i in (1, 2, 3)},
    }


def questions(task: TaskData) -> list[Question]:
    return [document.payload for document in task.documents if isinstance(document.payload, Question)]


def only(benchmark: str, mirror: Path) -> Question:
    (question,) = questions(question_task(benchmark, name="t", mirror=mirror))
    return question


@pytest.mark.parametrize(
    ("benchmark", "source", "answer"),
    [
        ("aime24", "Maxwell-Jia/AIME_2024/default", 7),
        ("aime24", "math-ai/aime24/default", 73),
        ("aime25", "math-ai/aime25/default", 7),
    ],
)
def test_aime_asks_for_a_box_and_knows_an_integer(tmp_path, benchmark, source, answer):
    write_rows(tmp_path, source, AIME[source][0], [AIME[source][1]])
    question = only(benchmark, tmp_path)
    assert question.prompt == f"What is 3 + 4?\n\n{BOXED}"
    assert (question.reference, question.grader, question.raw) == (answer, "integer", False)


def test_gsm8k_knows_the_number_after_the_mark(tmp_path):
    row = {"question": "How much?", "answer": "80 + 50 = <<80+50=130>>130\n#### 70,000"}
    write_rows(tmp_path, "openai/gsm8k/main", "test", [row])
    question = only("gsm8k", tmp_path)
    assert (question.prompt, question.reference) == (f"How much?\n\n{BOXED}", "70000")


def test_gpqa_shows_the_choices_in_the_stored_order(tmp_path):
    rows = [physics(number) for number in range(24)]
    write_rows(tmp_path, GPQA, "train", rows)
    task = question_task("gpqa_diamond", name="t", mirror=tmp_path)
    letters = set()
    for row, question in zip(rows, questions(task), strict=True):
        reference: Any = question.reference
        answers = [row["Correct Answer"], *(row[f"Incorrect Answer {i}"] for i in (1, 2, 3))]
        lines = [
            f"{letter}. {answers[i]}" for letter, i in zip(LETTERS, reference["permutation"], strict=True)
        ]
        assert "\n".join([row["Question"], *lines]) in question.prompt
        assert f"{reference['letter']}. {row['Correct Answer']}" in lines
        letters.add(reference["letter"])
    assert letters == set(LETTERS)
    assert [q.reference for q in questions(question_task("gpqa_diamond", name="u", mirror=tmp_path))] == [
        q.reference for q in questions(task)
    ]


@given(answers=st.lists(st.text(max_size=8), min_size=4, max_size=4), question=st.text(max_size=8))
def test_a_permutation_can_be_undone_and_follows_from_the_question(answers, question):
    permutation = permutation_of(question, answers)
    shown = [answers[place] for place in permutation]
    assert [shown[permutation.index(place)] for place in range(4)] == answers
    assert permutation == permutation_of(question, answers)


def test_humaneval_is_asked_as_a_chat_and_keeps_what_stands_above_the_function(tmp_path):
    write_rows(tmp_path, "openai/openai_humaneval/openai_humaneval", "test", [HUMANEVAL])
    question = only("humaneval", tmp_path)
    assert question.prompt.endswith(f"```python\n{HUMANEVAL['prompt'].strip()}\n```")
    above = "import math\n\ndef half(x):\n    return x / 2\n\n"
    assert question.reference == {
        "entry_point": "area",
        "prompt": HUMANEVAL["prompt"],
        "before": above,
        "setup": above,
        "test": f"{HUMANEVAL['test']}\n\ncheck(area)\n",
        "cpu_seconds": 15,
    }


def test_mbpp_plus_shows_one_assertion_and_is_graded_by_the_plus_tests(tmp_path):
    write_rows(tmp_path, "evalplus/mbppplus/default", "test", [MBPP])
    question = only("mbpp_plus", tmp_path)
    assert "```python\nassert twice(2) == 4\n```" in question.prompt
    assert "isclose" not in question.prompt
    assert question.reference == {
        "entry_point": "twice",
        "prompt": "",
        "before": "import math\n",
        "setup": "import math\n",
        "test": "assert twice(3) == 6\n",
        "cpu_seconds": 90,
    }


def test_a_limit_takes_the_first_questions_of_the_same_version(tmp_path):
    write_rows(tmp_path, GPQA, "train", [physics(number) for number in range(5)])
    whole = question_task("gpqa_diamond", name="t", mirror=tmp_path)
    part = question_task("gpqa_diamond", name="t", limit=2, role="selection", mirror=tmp_path)
    assert (part.version, part.role, part.kind) == (whole.version, "selection", "generate")
    assert [d.doc_hash for d in part.documents] == [d.doc_hash for d in whole.documents[:2]]
    assert (part.recipe["documents"], whole.recipe["documents"]) == (2, 5)
    assert ranges(part) == ((0, 1), (1, 2))
    assert part.texts == tuple(f"What is the energy of level {number} of this well?" for number in (0, 1))
    write_rows(tmp_path, GPQA, "train", [physics(number) for number in range(4)])
    assert question_task("gpqa_diamond", name="t", limit=2, mirror=tmp_path).version != whole.version


def test_document_hashes_tell_truths_and_prompts_apart(tmp_path):
    changed = {**physics(0), "Correct Answer": "9 eV"}
    write_rows(tmp_path, GPQA, "train", [physics(0), physics(0), changed])
    first, second, third = question_task("gpqa_diamond", name="t", mirror=tmp_path).documents
    assert first.doc_hash == second.doc_hash != third.doc_hash


@pytest.mark.parametrize(
    ("benchmark", "source", "row", "sentence"),
    [
        (
            "aime25",
            "math-ai/aime25/default",
            {"problem": "a", "answer": "1/2"},
            "is no integer from 0 to 999",
        ),
        (
            "aime25",
            "math-ai/aime25/default",
            {"problem": "a", "solution": "7"},
            "no value in column 'answer'",
        ),
        (
            "aime25",
            "math-ai/aime25/default",
            {"problem": 7, "answer": "7"},
            "'problem' holds a value that is no",
        ),
        (
            "gsm8k",
            "openai/gsm8k/main",
            {"question": "a", "answer": "7"},
            "does not end with #### and a number",
        ),
        ("mbpp_plus", "evalplus/mbppplus/default", {**MBPP, "code": "x = 1"}, "call none of the functions"),
        ("mbpp_plus", "evalplus/mbppplus/default", {**MBPP, "code": "x ="}, "code that is no Python"),
        ("humaneval_plus", "evalplus/humanevalplus/default", {**HUMANEVAL, "prompt": "x = 1"}, "not define"),
    ],
)
def test_a_row_that_is_no_question_is_named(tmp_path, benchmark, source, row, sentence):
    write_rows(tmp_path, source, "test", [row])
    with pytest.raises(InputError) as error:
        question_task(benchmark, name="t", mirror=tmp_path)
    assert sentence in str(error.value)
    assert str(error.value).startswith(f"task t, row 0 of {source.removesuffix('/default')}: ")


def test_missing_data_is_named_with_the_command_that_fetches_it(tmp_path):
    with pytest.raises(InputError) as error:
        question_task("gpqa_diamond", name="t", mirror=tmp_path)
    assert f"{tmp_path}/Idavidrein/gpqa/gpqa_diamond/train-*.parquet" in str(error.value)
    assert f"prunebench prefetch CONFIG --out {tmp_path}" in str(error.value)


def test_too_few_questions_and_unknown_benchmarks_are_refused(tmp_path):
    write_rows(tmp_path, GPQA, "train", [physics(0)])
    with pytest.raises(InputError, match="2 questions asked, but idavidrein/gpqa/gpqa_diamond has 1 here"):
        question_task("gpqa_diamond", name="t", limit=2, mirror=tmp_path)
    with pytest.raises(InputError, match="unknown benchmark 'aime': did you mean 'aime2"):
        benchmark_named("aime")


def test_the_source_that_a_mirror_has_is_read(tmp_path):
    aime = benchmark_named("aime24")
    assert source_in(aime, None).dataset == source_in(aime, tmp_path).dataset == "Maxwell-Jia/AIME_2024"
    write_rows(tmp_path, "math-ai/aime24/default", "test", [AIME["math-ai/aime24/default"][1]])
    assert source_in(aime, tmp_path).dataset == "math-ai/aime24"


def test_every_benchmark_has_a_grader_and_its_instruction_in_its_prompts(tmp_path):
    assert {benchmark.grader for benchmark in BENCHMARKS.values()} <= set(GRADERS)
    assert [name for name, benchmark in BENCHMARKS.items() if benchmark.runs_code] == [
        "humaneval",
        "humaneval_plus",
        "mbpp_plus",
    ]


@pytest.mark.parametrize(
    ("benchmark", "count"),
    [
        ("aime24", 30),
        ("aime25", 30),
        ("aime26", 30),
        ("gsm8k", 200),
        ("humaneval", 164),
        ("humaneval_plus", 164),
        ("mbpp_plus", 100),
    ],
)
def test_the_real_rows_are_all_questions(benchmark, count):
    if not DATA.is_dir():
        pytest.skip("no mirror with the real benchmarks beside the repository")
    task = question_task(benchmark, name="t", mirror=DATA)
    asked = questions(task)
    assert len(asked) == len({document.doc_hash for document in task.documents}) == count
    assert all(BENCHMARKS[benchmark].instruction in question.prompt for question in asked)
    if benchmark.startswith("aime"):
        assert all(isinstance(q.reference, int) and 0 <= q.reference <= 999 for q in asked)


def test_both_copies_of_aime_2024_have_the_same_answers():
    if not DATA.is_dir():
        pytest.skip("no mirror with the real benchmarks beside the repository")
    first, second = benchmark_named("aime24").sources
    answers = []
    for source in (first, second):
        (path,) = (DATA / source.dataset).glob(f"default/{source.split}-*.parquet")
        answers.append(
            sorted(int(str(source.read(row).reference)) for row in pq.read_table(path).to_pylist())
        )
    assert answers[0] == answers[1]
