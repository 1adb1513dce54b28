"""Programs: which code a response gives, and whether it passes the tests."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.unit import Generation
from prunebench.data.questions import question_task
from prunebench.data.tasks import Question
from prunebench.evaluation.scoring.code_grader import ProgramGrader
from prunebench.evaluation.scoring.fences import defines, fenced_blocks, program_of
from prunebench.evaluation.scoring.sandbox import missing_guard
from prunebench.evaluation.versions import GRADED, GRADERS

DATA = Path(__file__).parents[3] / "shared" / "data"
PROMPT = 'import math\n\ndef area(r: float) -> float:\n    """The area of a circle."""\n'
BEFORE = "import math\n\n"
FULL = "def area(r):\n    return math.pi * r * r"
BODY = "    return math.pi * r * r"
LINES = st.text(
    st.characters(exclude_characters="`~", exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20
)


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (fenced(FULL), f"{BEFORE}{FULL}\n"),
        ("\n".join([fenced("draft = 1"), "then", fenced(FULL), "and", fenced("area(2)")]), FULL),
        ("<think>\n" + fenced("area = None") + "</think>\n" + fenced(FULL), FULL),
        (fenced("def area(r):\n    return 1") + "\n" + fenced(FULL), FULL),
        (fenced(FULL) + "\n" + fenced("def area(r: return"), FULL),
        ("```\n" + FULL, FULL),
        ("~~~~py\n" + FULL + "\n~~~~", FULL),
        ("1. So:\n\n   ```python\n   def area(r):\n       return math.pi * r * r\n   ```", FULL),
        (FULL, FULL),
        ("import math\narea = lambda r: math.pi * r * r", "area = lambda"),
        (fenced(BODY), f"{PROMPT}{BODY}"),
        (BODY, f"{PROMPT}{BODY}"),
        (f"<think>a</think>\n\n{BODY}\n", f"{PROMPT}\n"),
    ],
)
def test_the_program_is_the_last_block_that_defines_the_function_or_a_body(response, expected):
    program = program_of(response, "area", PROMPT, BEFORE)
    assert program is not None
    assert expected in program
    assert defines(program, "area")
    assert program.startswith(BEFORE)
    names: dict = {}
    exec(program, names)
    assert names["area"](1) == pytest.approx(3.14159, abs=1e-5)


@pytest.mark.parametrize(
    "response",
    ["", "It multiplies pi by r squared.", "```python\n```", "<think>\n" + fenced(FULL) + "\n</think> ok"],
)
def test_a_response_without_code_gives_no_program(response):
    assert program_of(response, "area", PROMPT, BEFORE) is None


@pytest.mark.parametrize(
    "code", ["return math.pi * r * r", "def volume(r):\n    return r", "def area(r: return"]
)
def test_a_last_block_that_does_not_define_the_function_is_a_program_that_does_not_either(code):
    program = program_of(fenced(code), "area", PROMPT, BEFORE)
    assert program == f"{BEFORE}{code}\n"
    assert not defines(program, "area")


def test_a_body_goes_on_after_a_prompt_only_where_there_is_one():
    assert program_of(BODY, "area", "", "") is None
    assert program_of(fenced(BODY), "area", "", "") == f"{BODY}\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(): pass", True),
        ("async def f(): pass", True),
        ("class f: pass", True),
        ("f = g = 1", True),
        ("f: int = 1", True),
        ("f: int", False),
        ("if True:\n    def f(): pass", False),
        ("def g():\n    def f(): pass", False),
        ("def f(): pass\nreturn", False),
        ("def f(): pass\n\0", False),
        ("(" * 90_000, False),
        ("f = " + "-" * 50_000 + "1", False),
        ("f = 1\n" + "#" * 100_000, False),
    ],
)
def test_definitions_stand_at_the_outermost_level_of_what_compiles(source, expected):
    assert defines(source, "f") is expected


@given(blocks=st.lists(st.lists(LINES, max_size=4), max_size=4), around=LINES)
def test_fenced_blocks_come_back_as_they_were_written(blocks, around):
    text = "".join(
        f"{around}\n```python\n" + "".join(f"{line}\n" for line in block) + "```\n" for block in blocks
    )
    assert fenced_blocks(text) == ["".join(f"{line}\n" for line in block) for block in blocks]


def question(**changes) -> Question:
    reference = {
        "entry_point": "area",
        "prompt": PROMPT,
        "before": BEFORE,
        "setup": BEFORE,
        "test": "def check(candidate):\n    assert abs(candidate(1) - math.pi) < 1e-9\n\ncheck(area)\n",
        "cpu_seconds": 1,
        **changes,
    }
    return Question(prompt="?", raw=False, grader="program", reference=reference)


def graded(text: str, asked: Question, *, cut: bool = False):
    generation = Generation(
        prompt_hash="",
        text=text,
        num_prompt_tokens=1,
        num_tokens=1,
        finish_reason="length" if cut else "stop",
    )
    return ProgramGrader().grade(asked, generation)


@pytest.fixture
def jail():
    if guard := missing_guard():
        pytest.skip(guard)


@pytest.mark.usefixtures("jail")
@pytest.mark.parametrize(
    ("text", "cut", "verdict", "compilable"),
    [
        (fenced(FULL), False, "right", 1),
        (fenced(FULL), True, "right", 1),
        (fenced(BODY), False, "right", 1),
        (fenced(BODY.strip()), False, "wrong", 0),
        (fenced("def area(r):\n    return r"), False, "wrong", 1),
        (fenced("def area(r):\n    while True:\n        pass"), False, "timed_out", 1),
        ("No code.", False, "no_answer", 0),
        ("<think>\n" + fenced(FULL), True, "right", 1),
        ("<think> hm", True, "limit_hit", 0),
        (fenced("def area(r: return"), True, "wrong", 0),
    ],
)
def test_programs_are_graded_and_what_compiles_is_counted(text, cut, verdict, compilable):
    graded_one = graded(text, question(), cut=cut)
    assert graded_one.detail["verdict"] == verdict
    assert list(graded_one.metrics) == list(GRADED["program"])
    assert graded_one.metrics["acc"] == graded_one.metrics["acc_compilable"] == (verdict == "right")
    assert graded_one.metrics["compilable"] == graded_one.weights["acc_compilable"] == compilable
    assert graded_one.metrics["timed_out"] == (verdict == "timed_out")


def test_the_graders_version_is_the_one_of_the_keys():
    assert ProgramGrader().version == GRADERS["program"]


@pytest.mark.usefixtures("jail")
@pytest.mark.parametrize(
    ("benchmark", "folder", "places"),
    [
        ("humaneval", "openai/openai_humaneval/openai_humaneval", (0, 10, 32, 38, 50)),
        ("humaneval_plus", "evalplus/humanevalplus/default", (0, 38)),
        ("mbpp_plus", "evalplus/mbppplus/default", (0, 1, 2)),
    ],
)
def test_reference_solutions_pass_the_real_tests_and_spoilt_ones_do_not(benchmark, folder, places):
    if not DATA.is_dir():
        pytest.skip("no mirror with the real benchmarks beside the repository")
    task = question_task(benchmark, name=benchmark, mirror=DATA)
    rows = pq.read_table(DATA / folder / "test-00000-of-00001.parquet").to_pylist()
    for place in places:
        asked: Any = task.documents[place].payload
        row = rows[place]
        code = row["code"] if "code" in row else row["prompt"] + row["canonical_solution"]
        assert graded(fenced(code), asked).detail["verdict"] == "right"
        if "canonical_solution" in row:
            assert graded(fenced(row["canonical_solution"]), asked).detail["verdict"] == "right"
        name = asked.reference["entry_point"]
        assert (
            graded(fenced(f"{code}\n\ndef {name}(*args):\n    return 'no'"), asked).detail["verdict"]
            == "wrong"
        )
