"""The parts on the page, with what readers and stores may throw at them."""

import math
import re

import numpy as np
import pytest

import papers_store
from prunebench.core.fingerprint import canonical_json
from prunebench.core.plan import PruningPlan
from prunebench.report.render import write_report

SCRIPT = "<script>alert('x')</script>"
SPECIALS = r"50% of R&D_costs #1 {a} $x$ ~ ^ \end{table}"


def without(*removed):
    return PruningPlan.without(removed, 6)


def page_of(store, tmp_path):
    paths = write_report(store, tmp_path / "out")
    return paths.html.read_text(), paths


def words(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("</style>")[1]))


def test_a_page_with_every_part_is_well_formed_and_carries_them(build, tmp_path):
    builder = build(tmp_path / "store", model="Llama-3.1-8B", shape=papers_store.LLAMA)
    found = papers_store.ask(builder)
    papers_store.zero_shot(builder, found, {**dict.fromkeys(papers_store.COMMON_SENSE, 20), "copa": 100})
    papers_store.reasoning(builder, found, (("aime25", 30),))
    builder.calibration(np.full((33, 33), 0.5), "c" * 64)
    page, paths = page_of(builder.finish(), tmp_path)
    told = words(page)
    for part in (
        "Which method at which budget",
        "Ranks over tasks",
        "critical difference",
        "Zero-shot accuracy as LoRP (Table 3) and WRP (Table 1) print it",
        "Reasoning and code as LayerTrim prints it (Table 1): 1 of 5 columns measured",
        "Published beside measured",
        "numbers of the papers have a measured counterpart",
        "Quality against cost",
        "Where redundancy lies",
        "sample standard deviation over 3 seeds (sd)",
    ):
        assert part in told
    assert page.count("<table") == page.count("</table>")
    assert page.count("<svg") == page.count("</svg>")
    assert page.count("<details") == page.count("</details>")
    assert "style=" not in page
    assert "href=" not in page
    published = paths.published.read_text()
    assert "stand beside measured ones in index.html" in words(published)
    assert "LoRP, Table 3: zero-shot accuracy, %" in words(published)
    assert "src=" not in published


def test_without_a_match_the_published_tables_are_marked_as_not_measured(builder, tmp_path):
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    page, paths = page_of(builder.finish(), tmp_path)
    published = words(paths.published.read_text())
    assert "published and not measured here" in published
    assert "None has a measured counterpart" in published
    assert "SUSPECT: equal to the row of SimDiff on Qwen2.5-1.5B at this budget" in published
    assert "Published beside measured" not in page


def test_names_with_markup_and_latex_specials_are_escaped_in_every_part(build, tmp_path):
    builder = build(tmp_path / "store", model=SCRIPT)
    units = builder.task(SPECIALS, 20)
    builder.score(builder.dense(), units, "acc", [1.0] * 18 + [0.0] * 2)
    for place, name in enumerate((SCRIPT, SPECIALS)):
        for number in (0, 1):
            plan = without(2 * place + number)
            builder.variant("novel", plan, 1, params_json=canonical_json({"x": name, "y": number}))
            builder.score(plan, units, "acc", [1.0] * (10 + place + number) + [0.0] * (10 - place - number))
    page, paths = page_of(builder.finish(), tmp_path)
    assert SCRIPT not in page
    assert SCRIPT not in paths.markdown.read_text()
    latex = "\n".join(line for line in paths.latex.read_text().splitlines() if not line.startswith("%"))
    assert latex.count(r"\end{table}") == latex.count(r"\begin{table}") == 1
    assert "R&D" not in latex.replace(r"R\&D", "")


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_metric_that_is_no_number_is_shown_and_ranked_last_or_not_at_all(builder, tmp_path, odd):
    units = builder.task("choice", 20)
    builder.score(builder.dense(), units, "acc", [1.0] * 18 + [0.0] * 2)
    for place, (method, values) in enumerate(
        {"shortgpt": [1.0] * 10 + [0.0] * 10, "lorp": [-odd] * 20, "wrp": [1.0] * 12 + [0.0] * 8}.items()
    ):
        builder.variant(method, without(place), 1)
        builder.score(without(place), units, "acc", values)
    told = words(page_of(builder.finish(), tmp_path)[0])
    assert ("NaN" if math.isnan(odd) else "-∞") in told
    assert "no measure shows a row to be worse than its best: choose by what else counts." in told
    assert "WRP has the best value." in told


def test_a_store_whose_units_all_failed_has_a_page_that_says_so(builder, tmp_path):
    dense, pruned = builder.dense(), without(1)
    builder.variant("shortgpt", pruned, 1)
    for plan in (dense, pruned):
        for unit in builder.task("choice", 4):
            builder.ledger.fail(unit.for_plan(plan.plan_id).unit_id, "ValueError: no", "Traceback", 1)
    told = words(page_of(builder.finish(), tmp_path)[0])
    assert "nothing has a value yet." in told
    assert "No task with a direction has a value: nothing is ranked." in told


def test_one_document_and_one_method_are_no_reason_to_fail(builder, tmp_path):
    units = builder.task("choice", 1)
    builder.score(builder.dense(), units, "acc", [1.0])
    builder.variant("shortgpt", without(1), 1)
    builder.score(without(1), units, "acc", [0.0])
    told = words(page_of(builder.finish(), tmp_path)[0])
    assert "only one row has a value: there is nothing to choose." in told


def test_identical_scores_and_one_document_of_several_methods_are_all_best(builder, tmp_path):
    units = builder.task("choice", 1)
    builder.score(builder.dense(), units, "acc", [1.0])
    for place, method in enumerate(("shortgpt", "lorp", "wrp")):
        builder.variant(method, without(place), 1)
        builder.score(without(place), units, "acc", [1.0])
    told = words(page_of(builder.finish(), tmp_path)[0])
    assert "worse than its best (the documents are too few): choose by what else counts." in told
    assert "ShortGPT, LoRP, WRP have the best value." in told


def test_two_hundred_methods_are_drawn_by_their_best(build, tmp_path):
    builder = build(tmp_path / "store")
    tasks = [builder.task(name, 60, size=60) for name in ("a", "b")]
    dense = builder.dense()
    plans = [without(*(i for i in range(6) if number >> i & 1)) for number in range(1, 51)]
    for number, plan in enumerate((dense, *plans)):
        for units in tasks:
            builder.score(plan, units, "acc", [1.0] * (60 - number) + [0.0] * number)
        for copy in range(4 if number else 0):
            builder.variant(f"method{number:02d}{copy}", plan, 1)
    told = words(page_of(builder.finish(), tmp_path)[0])
    assert "200 rows at 1 budget" in told
    assert "the best 40 of 50" in told
    assert re.search(
        r"choose one of method01\d \(the same plan as .*\), method02.* and \d+ more: no measure", told
    )
