r"""The benchmarks of open questions: where their rows are, what is asked and what is true.

The wording of each instruction stands here and nowhere else, and is part of the recipe. The papers print
none; these are the customary ones: reason step by step, and put the answer within `\boxed{}`; for code, one
block.
"""

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prunebench.core.fingerprint import Json, sha256_json
from prunebench.data.spec import nearest
from prunebench.errors import InputError

_FILE = "<benchmark>"
# Published code has invalid escapes, of which nobody here has to be warned.
warnings.filterwarnings("ignore", module=_FILE)
Row: TypeAlias = Mapping[str, Any]
LETTERS: Final = "ABCD"
BOXED: Final = r"Please reason step by step, and put your final answer within \boxed{}."
BOXED_LETTER: Final = r"Please reason step by step, and put the letter of the correct choice within \boxed{}."
COMPLETE: Final = (
    "Complete the following Python function. Answer with one Python code block that holds the whole function "
    "and the imports it needs."
)
WRITE: Final = (
    "Answer with one Python code block that holds a self-contained solution of the following problem."
)
EXAMPLE: Final = "It has to satisfy this assertion:"
ORIGINAL_SECONDS: Final = 15
"""CPU time of a program for HumanEval's tests: ten times what the slowest reference solution takes."""
PLUS_SECONDS: Final = 90
"""The same for the plus tests, where one of MBPP+'s own solutions (599) takes 26 s of a 2024 processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A split of a hub dataset that holds the benchmark, and how its rows are read."""

    dataset: str
    """ORG/NAME or ORG/NAME/CONFIG."""
    split: str
    read: "Callable[[Row], Item]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question."""

    problem: str
    """The question itself, without instruction."""
    prompt: str
    reference: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark; of its sources the first that a mirror has is read."""

    name: str
    grader: str
    instruction: str
    sources: tuple[Source, ...]

    @property
    def runs_code(self) -> bool:
        """Whether grading executes what a model wrote."""
        return self.grader == "program"


def permutation_of(question: str, answers: Sequence[str]) -> list[int]:
    """Where each shown choice comes from: choice `i` is `answers[permutation[i]]`.

    It follows from the question's hash alone, so it is the same everywhere, and is stored with the reference.
    """
    seed = sha256_json([question, *answers])
    return sorted(range(len(answers)), key=lambda place: sha256_json([seed, place]))


def benchmark_named(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        InputError: there is none; the nearest is named.
    """
    if name not in BENCHMARKS:
        raise InputError(f"unknown benchmark '{name}': {nearest(name, BENCHMARKS)}")
    return BENCHMARKS[name]


def _aime(problem: str, answer: str) -> Callable[[Row], Item]:
    """Reads the columns that hold problem and answer; the answer is an integer, boxed or not."""

    def read(row: Row) -> Item:
        text = _text(row, problem)
        match = re.fullmatch(r"(?:\\boxed\{)?([0-9]{1,3})\}?", str(_value(row, answer)).strip())
        if match is None:
            raise InputError(f"'{_value(row, answer)}' in column '{answer}' is no integer from 0 to 999")
        return Item(problem=text, prompt=f"{text}\n\n{BOXED}", reference=int(match[1]))

    return read


def _gsm8k(row: Row) -> Item:
    text = _text(row, "question")
    _, mark, answer = _text(row, "answer").rpartition("####")
    answer = answer.strip().replace(",", "")
    if not mark or not re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", answer):
        raise InputError("column 'answer' does not end with #### and a number")
    return Item(problem=text, prompt=f"{text}\n\n{BOXED}", reference=answer)


def _gpqa(row: Row) -> Item:
    question = _text(row, "Question").strip()
    columns = ("Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3)))
    answers = [_text(row, column).strip() for column in columns]
    permutation = permutation_of(question, answers)
    choices = [answers[place] for place in permutation]
    shown = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=True))
    return Item(
        problem=question,
        prompt=f"{question}\n\n{shown}\n\n{BOXED_LETTER}",
        reference={"letter": LETTERS[permutation.index(0)], "permutation": permutation},
    )


def _humaneval(seconds: int) -> Callable[[Row], Item]:
    """Reads HumanEval's columns; EvalPlus keeps them, with other tests.

    HumanEval/32 of the published plus tests cannot be passed: they unpack its result, which is a number.
    """

    def read(row: Row) -> Item:
        prompt, entry_point = _text(row, "prompt"), _text(row, "entry_point")
        before = _above(prompt, entry_point)
        return Item(
            problem=prompt,
            prompt=f"{COMPLETE}\n\n```python\n{prompt.strip()}\n```",
            reference={
                "entry_point": entry_point,
                "prompt": prompt,
                "before": before,
                "setup": before,
                "test": f"{_text(row, 'test')}\n\ncheck({entry_point})\n",
                "cpu_seconds": seconds,
            },
        )

    return read


def _mbpp_plus(row: Row) -> Item:
    text, tests = _text(row, "prompt"), list(_value(row, "test_list"))
    imports = "".join(f"{line}\n" for line in _value(row, "test_imports"))
    return Item(
        problem=text,
        prompt=f"{WRITE}\n\n{text.strip()}\n\n{EXAMPLE}\n\n```python\n{tests[0]}\n```",
        reference={
            "entry_point": _tested_function(_text(row, "code"), tests),
            "prompt": "",
            "before": imports,
            "setup": imports,
            "test": _text(row, "test"),
            "cpu_seconds": PLUS_SECONDS,
        },
    )


def _above(prompt: str, entry_point: str) -> str:
    """What stands above the entry point in a prompt that is code: imports and helper functions."""
    for statement in _parsed(prompt).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == entry_point:
            return "".join(prompt.splitlines(keepends=True)[: statement.lineno - 1])
    raise InputError(f"column 'prompt' does not define the function {entry_point}")


def _tested_function(code: str, tests: Sequence[str]) -> str:
    """The last function of the reference solution that its tests call."""
    called = {
        node.func.id
        for test in tests
        for node in ast.walk(_parsed(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    defined = [node.name for node in _parsed(code).body if isinstance(node, ast.FunctionDef)]
    tested = [name for name in defined if name in called]
    if not tested:
        raise InputError(
            f"the tests call none of the functions that column 'code' defines ({', '.join(defined)})"
        )
    return tested[-1]


def _parsed(code: str) -> ast.Module:
    try:
        return ast.parse(code, _FILE)
    except SyntaxError as error:
        raise InputError(f"there is code that is no Python: {error}") from error


def _value(row: Row, column: str) -> Any:  # noqa: ANN401 (whatever a file holds)
    if row.get(column) is None:
        raise InputError(f"there is no value in column '{column}': {nearest(column, row)}")
    return row[column]


def _text(row: Row, column: str) -> str:
    value = _value(row, column)
    if not isinstance(value, str):
        raise InputError(f"column '{column}' holds a value that is no text")
    return value


BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="aime24",
            grader="integer",
            instruction=BOXED,
            sources=(
                Source(dataset="Maxwell-Jia/AIME_2024", split="train", read=_aime("Problem", "Answer")),
                Source(dataset="math-ai/aime24", split="test", read=_aime("problem", "solution")),
            ),
        ),
        Benchmark(
            name="aime25",
            grader="integer",
            instruction=BOXED,
            sources=(Source(dataset="math-ai/aime25", split="test", read=_aime("problem", "answer")),),
        ),
        Benchmark(
            name="aime26",
            grader="integer",
            instruction=BOXED,
            sources=(Source(dataset="math-ai/aime26", split="test", read=_aime("problem", "answer")),),
        ),
        Benchmark(
            name="gpqa_diamond",
            grader="letter",
            instruction=BOXED_LETTER,
            sources=(
                Source(dataset="Idavidrein/gpqa/gpqa_diamond", split="train", read=_gpqa),
                Source(dataset="idavidrein/gpqa/gpqa_diamond", split="train", read=_gpqa),
            ),
        ),
        Benchmark(
            name="gsm8k",
            grader="number",
            instruction=BOXED,
            sources=(Source(dataset="openai/gsm8k/main", split="test", read=_gsm8k),),
        ),
        Benchmark(
            name="humaneval",
            grader="program",
            instruction=COMPLETE,
            sources=(
                Source(
                    dataset="openai/openai_humaneval/openai_humaneval",
                    split="test",
                    read=_humaneval(ORIGINAL_SECONDS),
                ),
            ),
        ),
        Benchmark(
            name="humaneval_plus",
            grader="program",
            instruction=COMPLETE,
            sources=(Source(dataset="evalplus/humanevalplus", split="test", read=_humaneval(PLUS_SECONDS)),),
        ),
        Benchmark(
            name="mbpp_plus",
            grader="program",
            instruction=WRITE,
            sources=(Source(dataset="evalplus/mbppplus", split="test", read=_mbpp_plus),),
        ),
    )
}
"""The menu."""
