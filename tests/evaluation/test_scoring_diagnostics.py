"""Diagnostics on sequences and sentences made for the purpose."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.unit import Generation
from prunebench.evaluation.scoring.arithmetic import equalities
from prunebench.evaluation.scoring.base import Graded
from prunebench.evaluation.scoring.diagnostics import diagnosed, is_unclosed, repeats
from prunebench.evaluation.versions import DIAGNOSTICS


def loop(period, length):
    return [place % period for place in range(length)]


def free(length, start=1000):
    return list(range(start, start + length))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (loop(101, 1024), True),  # 101 of 505 different: exactly 0.8
        (loop(102, 1024), False),
        (loop(1, 1024), True),
        (loop(1, 1023), False),  # the second window is incomplete
        (loop(1, 512), False),
        (free(512) + loop(3, 1024), True),
        (free(300) + loop(3, 1200), False),  # of 1,500 tokens 2 windows are whole, and the first is half free
        (free(300) + loop(3, 1300), True),
        (loop(3, 512) + free(512) + loop(3, 512), False),
        (free(5000), False),
        ([], False),
    ],
)
def test_repetition_is_two_windows_in_a_row(tokens, expected):
    assert repeats(tokens) is expected


def test_incoherent_text_that_never_repeats_is_not_flagged():
    draw = random.Random(0)
    assert not repeats([draw.randrange(50_000) for _ in range(32_256)])


@given(period=st.integers(1, 101), shift=st.integers(0, 1000), windows=st.integers(2, 4))
def test_every_short_loop_is_flagged_wherever_it_starts(period, shift, windows):
    assert repeats([(place + shift) % period for place in range(512 * windows)])


@pytest.mark.parametrize(
    ("text", "in_thought", "expected"),
    [
        ("<think>a</think>b", False, False),
        ("<think>a", False, True),
        ("a</think>b", True, False),
        ("a", True, True),
        ("a", False, False),
        ("<think>a</think><think>b", False, True),
    ],
)
def test_a_thought_is_unclosed_where_its_last_tag_opens(text, in_thought, expected):
    assert is_unclosed(text, in_thought=in_thought) is expected


def test_every_generation_gets_the_four_diagnostics():
    generation = Generation(
        prompt_hash="", text="<think>", num_prompt_tokens=1, num_tokens=1024, finish_reason="length"
    )
    whole = diagnosed(Graded(metrics={"acc": 1.0}, detail={}), generation, loop(2, 1024), in_thought=False)
    assert whole.metrics == {
        "acc": 1.0,
        "token_limit_hit": 1.0,
        "repetition": 1.0,
        "unclosed_think": 1.0,
        "tokens": 1024.0,
    }
    assert set(whole.metrics) - {"acc"} == set(DIAGNOSTICS)


@pytest.mark.parametrize(
    ("text", "held", "total"),
    [
        ("so 3+4=8.", 0, 1),
        ("2*3 = 6 = 5 + 1", 2, 2),
        ("1458 * 18 = 1458*10 + 1458*8 = 14580 + 11664 = 26244", 3, 3),
        ("17*7 = 119, 119*11 = 1309, 1309*13 = 17017", 3, 3),
        (r"\frac{1}{2} + \frac{1}{3} = \frac{5}{6}", 1, 1),
        (r"2^{10} = 1024, \(3 \times 4 = 12\) and $5 \cdot 6 = 31$", 2, 3),
        (r"\left(3+4\right)\cdot 2 &= 14 \\", 1, 1),
        ("12 ÷ 5 = 2.4 and 0.1 + 0.2 = 0.3", 2, 2),
        ("1,000 + 1 = 1,001", 1, 1),
        ("$5 * 3 = $15", 1, 1),
        ("12 * 3\n= 36", 1, 1),
        ("1) 3 + 4 = 7\n2. 4 + 4 = 8", 2, 2),
        ("3+4=7, again 3 + 4 = 7", 1, 1),
        ("2(3+4) = 14 and (2+3)(4+5) = 45", 2, 2),
        ("-2^2 = -4 and 2^3^2 = 512 and 2^-1 = 0.5", 3, 3),
        ("x = 3 + 4 = 7", 1, 1),
        ("77*13 = 100", 0, 1),
        ("1/3 = 0.33", 0, 1),
    ],
)
def test_equalities_are_found_and_evaluated_exactly(text, held, total):
    assert equalities(text) == (held, total)


@pytest.mark.parametrize(
    "text",
    [
        "2x = 14",
        "5y + 3 = 8",
        "3 + 4 = 7x",
        "3 + 4 = 7 x",
        "f(3) + 4 = 11",
        "C(5,2) = 10",
        "|3 - 5| = 2",
        "17 * 3 = 1 (mod 50)",
        "17 + 3 \\equiv 0, 20 = 4*5",
        "the remainder of 17 / 5 = 2",
        "17/5 = 3 R 2",
        "1/3 ≈ 0.333",
        "1/3 = 0.333...",
        "4! + 1 = 25",
        "20% of 50 + 1 = 11",
        "5 times 3 + 1 = 16",
        "10 * 20% = 2",
        "\\sqrt{16} + 1 = 5",
        "sin 30 + 1 = 1.5",
        "5 cm * 3 cm = 15 cm^2",
        "9:00 + 2 = 11",
        "3 >= 2 + 1",
        "5 = 5",
        "x -3 + 4 = 1",
        "2 3 + 4 = 7",
        "1/0 = 3",
        "9^9^9 = 3",
        "10^6 = 1 million",
        "",
    ],
)
def test_what_is_no_equality_of_numbers_is_left_out(text):
    assert equalities(text) == (0, 0)


@given(terms=st.lists(st.tuples(st.sampled_from("+-*"), st.integers(-99, 999)), min_size=1, max_size=6))
def test_sums_that_python_writes_hold(terms):
    expression = "7" + "".join(f" {sign} ({number})" for sign, number in terms)
    value = eval(expression)
    assert equalities(f"Then {expression} = {value}, indeed.") == (1, 1)
    assert equalities(f"Then {expression} = {value + 1}, indeed.") == (0, 1)


def test_endless_formulas_take_time_that_grows_with_them():
    started = time.process_time()
    for text in ("1+" * 60_000, "(" * 60_000 + "= 1", "1=1+" * 5_000, "= " * 60_000, "9" * 120_000 + "=1+1"):
        equalities(text)
    assert time.process_time() - started < 5
