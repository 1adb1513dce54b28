r"""Answers are read by one rule: after the last think tag, the last box whose braces balance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.unit import Generation
from prunebench.data.tasks import Document, Question
from prunebench.evaluation.scoring import grader_named
from prunebench.evaluation.scoring.answers import final_part, integer, last_box, plain
from prunebench.evaluation.versions import GRADED, GRADERS

PROSE = st.text(st.characters(exclude_characters="\\{}<", exclude_categories=["Cs"]), max_size=40)
INTEGERS = st.integers(0, 999)


def generation(text, *, cut=False) -> Generation:
    return Generation(
        prompt_hash="0" * 64,
        text=text,
        num_prompt_tokens=1,
        num_tokens=9,
        finish_reason="length" if cut else "stop",
    )


def graded(grader, text, reference, *, cut=False):
    question = Question(prompt="?", raw=False, grader=grader, reference=reference)
    return grader_named(grader, allow_code_execution=False).grade(question, generation(text, cut=cut))


def verdict(grader, text, reference, **more) -> str:
    return str(graded(grader, text, reference, **more).detail["verdict"])


# The forms of responses on which lm-eval 0.4.13 and math-verify 0.9.0 were measured; theirs in the margin.
@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        (r"\boxed{073}", 73, "right"),  # lm-eval: wrong
        (r"\boxed{\text{204}}", 204, "right"),  # lm-eval: wrong
        (r"\boxed{204.0}", 204, "right"),  # lm-eval: wrong
        (r"\boxed{m+n=204}", 204, "right"),  # lm-eval: wrong
        (r"\boxed{1,234}", 234, "wrong"),  # beyond 999
        ("The answer is 204.", 204, "no_answer"),  # math-verify: right
        ("**204**", 204, "no_answer"),  # math-verify: right
        (r"\boxed{12} then wait, \boxed{204}", 204, "right"),  # math-verify: 12204
        (r"\boxed{204} \boxed{204} and \boxed{12}", 204, "wrong"),  # math-verify: the set {12, 204}
        (r"\boxed{204.}", 204, "right"),  # both: wrong
        (r"\boxed {204}", 204, "right"),  # both: wrong
        (r"\fbox{204}", 204, "right"),  # both: wrong
        (r"\boxed{20", 204, "no_answer"),
        (r"\boxed{204} or \boxed{20", 204, "right"),
        (r"\boxed{204\%}", 204, "right"),
        (r"<think>\boxed{204}</think> unsure", 204, "no_answer"),  # both: right
        (r"<think>\boxed{12}</think> \boxed{204}", 204, "right"),
        (r"a</think>\boxed{12}</think>\boxed{204}", 204, "right"),
        (r"\boxed{204^\circ}", 204, "right"),
        (r"\boxed{204^{\circ}}", 204, "right"),
        (r"\boxed{x = 204}", 204, "right"),
        (r"\boxed{$204$}", 204, "right"),
        (r"\boxed{204 \text{ minutes}}", 204, "right"),
        (r"\boxed{204\ \text{cm}^2}", 204, "right"),
        (r"\boxed{\textbf{204}}", 204, "right"),
        (r"\boxed{{204}}", 204, "right"),
        (r"\boxed{\boxed{204}}", 204, "right"),
        (r"\boxed{-204}", 204, "wrong"),
        (r"\boxed{204 or 205}", 204, "wrong"),
        (r"\boxed{\frac{408}{2}}", 204, "wrong"),
        (r"\boxed{?}", 204, "wrong"),
        (r"\boxed{}", 204, "no_answer"),
        ("", 204, "no_answer"),
    ],
)
def test_integers_are_read_from_the_last_box_alone(text, gold, expected):
    assert verdict("integer", text, gold) == expected


def test_a_cut_response_counts_by_its_box_and_is_else_a_limit_hit():
    assert verdict("integer", r"so \boxed{204}. But wait", 204, cut=True) == "right"
    assert verdict("integer", r"so \boxed{205}. But wait", 204, cut=True) == "wrong"
    assert verdict("integer", "But wait", 204, cut=True) == "limit_hit"


def test_verdicts_exclude_each_other_and_wrong_ones_are_the_rest():
    def flags(text, **more):
        metrics = graded("integer", text, 7, **more).metrics
        return [metrics[name] for name in ("acc", "no_answer", "limit_hit", "timed_out")]

    assert flags(r"\boxed{7}") == [1, 0, 0, 0]
    assert flags("seven") == [0, 1, 0, 0]
    assert flags("seven", cut=True) == [0, 0, 1, 0]
    assert flags(r"\boxed{8}") == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        (r"\boxed{70{,}000}", "70000", "right"),
        (r"\boxed{\$70,000}", "70000", "right"),
        (r"\boxed{2.50}", "2.5", "right"),
        (r"\boxed{18} and then 20", "18", "right"),
        ("He pays 3 + 4 = 7 dollars.", "7", "right"),
        ("It costs $1,250.", "1250", "right"),
        ("It is 10-5", "5", "right"),
        ("It is -5", "5", "wrong"),
        ("It is 7. </think> I cannot say.", "7", "no_answer"),
        (r"\boxed{none} of 7", "7", "wrong"),
    ],
)
def test_numbers_come_from_the_box_or_are_the_last_ones_written(text, gold, expected):
    assert verdict("number", text, gold) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{B}", "right"),
        (r"\boxed{\text{B}}", "right"),
        (r"\boxed{\textbf{(B)}}", "right"),
        (r"\boxed{B: the second}", "right"),
        (r"\boxed{\text{B. }-12\hbar/25}", "right"),
        (r"\boxed{\text{Option B}}", "right"),
        (r"\boxed{A} no, \boxed{B}", "right"),
        (r"\boxed{A} Answer: B", "wrong"),
        (r"\boxed{A, B}", "wrong"),
        (r"\boxed{\text{B particle}}", "wrong"),
        (r"\boxed{E}", "wrong"),
        (r"\boxed{-12/25} Answer: B", "right"),
        ("The answer is (B).", "right"),
        ("**Answer: B**", "right"),
        ("(A) is false, so (B)", "right"),
        ("Answer: B is likely", "no_answer"),
        ("Answer: A particle", "no_answer"),
        ("A", "no_answer"),
    ],
)
def test_letters_come_from_the_box_or_are_stated_as_the_answer(text, expected):
    assert verdict("letter", text, {"letter": "B", "permutation": [1, 0, 2, 3]}) == expected


def test_what_a_cut_response_says_outside_of_a_box_is_no_answer():
    assert verdict("number", "so 7", "7", cut=True) == "limit_hit"
    assert verdict("number", r"so \boxed{7}, or 8", "7", cut=True) == "right"
    reference = {"letter": "B", "permutation": [1, 0, 2, 3]}
    assert verdict("letter", "maybe (B)", reference, cut=True) == "limit_hit"
    assert verdict("letter", r"\boxed{B} or", reference, cut=True) == "right"


@given(before=PROSE, after=PROSE, value=INTEGERS)
def test_text_without_boxes_around_a_box_changes_nothing(before, after, value):
    assert last_box(f"{before}\\boxed{{{value}}}{after}") == str(value)


@given(boxes=st.lists(INTEGERS, min_size=1, max_size=6), between=PROSE)
def test_the_last_box_wins(boxes, between):
    text = between.join(rf"\boxed{{{value}}}" for value in boxes)
    assert last_box(text) == str(boxes[-1])
    assert last_box(final_part(f"{text}</think>{between}")) is None


@given(inner=st.recursive(PROSE, lambda s: st.builds("{}{{{}}}{}".format, s, s, s), max_leaves=8))
def test_a_box_holds_its_braces_in_balance(inner):
    assert last_box(rf"so \boxed{{{inner}}} }} \boxed{{ {{ {inner}") == inner


@given(value=INTEGERS, zeros=st.integers(0, 3))
def test_mark_up_does_not_change_a_plain_answer(value, zeros):
    for form in (
        "{}",
        r"\text{{{}}}",
        "$ {} $",
        "x = {}",
        "{}.",
        r"{}\%",
        "{}.00",
        r"\mathbf{{{}}} \text{{ km}}",
    ):
        assert integer(plain(form.format("0" * zeros + str(value))), 10**7) == value
    assert plain(plain(str(value))) == plain(str(value))


def test_long_texts_are_read_in_time_that_grows_with_them():
    assert last_box("\\boxed{" * 50_000) is None
    assert last_box("{" * 50_000 + r"\boxed{7}" + "}" * 50_000) == "7"
    assert integer("9" * 100_000, 999) is None
    assert verdict("number", "9" * 100_000, "9") == "no_answer"


def test_samples_hold_metrics_weights_and_the_detail_once():
    graded_one = graded("integer", r"2 + 2 = 4, 2 + 2 = 5. \boxed{7}", 7)
    document = Document(
        doc_id=3, doc_hash="h", payload=Question(prompt="?", raw=False, grader="", reference=7)
    )
    samples = {sample.metric: sample for sample in graded_one.samples(document)}
    assert (samples["arithmetic"].value, samples["arithmetic"].weight) == (1, 2)
    assert (samples["acc"].value, samples["acc"].weight, samples["acc"].doc_id) == (1, 1, 3)
    assert [sample.metric for sample in samples.values() if sample.detail != "{}"] == ["acc"]
    assert samples["acc"].detail == '{"answer":7,"box":"7","equalities":[1,2],"verdict":"right"}'


@pytest.mark.parametrize("name", sorted(set(GRADERS) - {"program", "harness"}))
def test_every_grader_has_its_version_and_gives_its_metrics_always(name):
    grader = grader_named(name, allow_code_execution=False)
    assert grader.version == GRADERS[name]
    reference = {"integer": 1, "number": "1", "letter": {"letter": "A", "permutation": [0, 1, 2, 3]}}[name]
    for text in ("", r"\boxed{1}", "x"):
        assert list(graded(name, text, reference).metrics) == list(GRADED[name])
