import csv
import html
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.errors import InputError, ResourceError
from prunebench.report.render import environment, write_report
from prunebench.report.tables import leaderboard_table
from prunebench.store.layout import open_store

LAYERS = 6
SCRIPT = "<script>alert('x')</script>"
SPECIALS = r"50% of R&D_costs #1 {a} $x$ ~ ^ \end{table}"


class Page(HTMLParser):
    """The tags that are open at the end, all attributes, and the text outside of style."""

    VOID = frozenset({"meta", "br", "rect", "line", "path", "circle", "polygon"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip() and not {"style", "script"} & set(self.open):
            self.words.append(data.strip())


def without(*removed):
    return PruningPlan.without(removed, LAYERS)


@pytest.fixture(scope="module")
def store(build, tmp_path_factory):
    """Three methods at two budgets, one hole, hostile texts, statistics of a calibration and of weights."""
    builder = build(tmp_path_factory.mktemp("report") / "store")
    calibrated = {"calibration": "default", "calibration_id": "c" * 64}
    builder.calibration(np.full((7, 7), 0.5), "c" * 64)
    builder.calibration(np.full((7, 7), 0.123), "c" * 64, shard=True)
    builder.weights(np.full((LAYERS, LAYERS), 0.25))
    dense = builder.dense()
    text, choice = builder.task("text & more", 2, {"join": "\n\n"}), builder.task("choice", 4)
    plans = {
        ("shortgpt", 1): without(2),
        ("shortgpt", 3): without(2, 3, 5),
        ("lorp", 1): without(2),
        ("lorp", 3): without(2, 4, 5),
    }
    for (method, budget), plan in plans.items():
        builder.variant(method, plan, budget, warnings=(f"scores tie {SCRIPT}",), **calibrated)
    builder.variant("laco", None, 1, status="unreachable", error=SCRIPT)
    builder.variant("laco", None, 3, status="failed", error=SPECIALS)
    for nats, plan in enumerate((dense, *dict.fromkeys(plans.values())), start=1):
        builder.score(plan, text, "perplexity", [-10.0 * nats, -11.0 * nats], weight=10.0)
        builder.score(plan, choice, "acc", [1.0] * (4 - nats) + [0.0] * nats)
    builder.ledger.fail("0" * 64, f"ValueError: {SCRIPT}", f"Traceback {SCRIPT}", 1)
    return builder.finish()


@pytest.fixture(scope="module")
def report(store):
    return write_report(store, store.parent / "out")


@pytest.fixture(scope="module")
def page(report):
    return Page(report.html.read_text())


def test_the_page_is_one_well_formed_file_that_asks_for_nothing(report, page):
    assert page.open == []
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    for name, value in page.attributes:
        assert name not in {"src", "srcset", "href", "xlink:href", "action", "data", "style"}
        assert not name.startswith("on")
        assert "://" not in value
    text = report.html.read_text()
    assert "@import" not in text
    assert "url(" not in text


def test_equal_stores_give_equal_bytes(store, report, tmp_path):
    again = write_report(store, tmp_path / "again")
    for name in ("html", "published", "csv", "markdown", "latex"):
        assert getattr(again, name).read_bytes() == getattr(report, name).read_bytes()


def test_a_report_is_written_over_an_older_one_and_leaves_nothing_else(store, report):
    write_report(store, report.html.parent)
    assert sorted(path.name for path in report.html.parent.iterdir()) == [
        "every_eval_ever",
        "index.html",
        "leaderboard.csv",
        "leaderboard.md",
        "leaderboard.tex",
        "lm_eval",
        "published.html",
    ]


def test_the_first_line_says_that_differences_are_a_demonstration(report, page):
    body = page.words[page.words.index("Structured pruning of tiny") + 1 :]
    assert body[0].startswith("Differences between rows are a demonstration only")
    assert report.markdown.read_text().startswith("_Differences between rows are a demonstration only")
    assert report.latex.read_text().startswith("% Differences between rows are a demonstration only")


def test_text_from_methods_and_errors_is_escaped(report):
    page = report.html.read_text()
    assert SCRIPT not in page
    assert page.count(html.escape(SCRIPT, quote=False).replace("'", "&#39;")) >= 4
    assert SCRIPT not in report.markdown.read_text()


def test_every_value_of_the_leaderboard_is_on_the_page_and_in_the_table(store, report, page):
    titles = {value for name, value in page.attributes if name == "title"}
    written = list(csv.DictReader(report.csv.read_text().splitlines()))
    table = leaderboard_table(store).boards[0]
    for budget in table.tables:
        for row in budget.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                line = next(
                    line
                    for line in written
                    if (line["method"], line["budget_layers"], line["task"])
                    == (row.contender.method, str(row.variant["budget_layers"]), column.task)
                )
                if cell.value is None:
                    assert (line["value"], line["status"]) == ("", cell.reason)
                    continue
                assert cell.text in page.words
                assert str(cell.value) in titles
                assert float(line["value"]) == cell.value
                assert float(line["stderr"]) == cell.stderr
                assert float(line["retained_percent"]) == cell.retained
    assert len(written) == 2 * 7


def test_the_best_values_are_bold_on_the_page_and_in_markdown_and_latex(report):
    best = f"{math.exp(2.1):.2f}"
    assert re.search(rf'<span class="best" title="8\.16\d+">{best}</span>', report.html.read_text())
    assert f"**{best}**" in report.markdown.read_text()
    assert f"\\textbf{{{best}}}" in report.latex.read_text()


def test_holes_are_dashes_with_a_footnote(page, report):
    assert "unreachable: <script>alert('x')</script>" in page.words
    assert "| – [1] | – [1] |" in report.markdown.read_text()
    assert r"& --$^{1}$ &  & --$^{1}$ &  \\" in report.latex.read_text()


def test_latex_is_balanced_and_escapes_special_characters(report):
    latex = report.latex.read_text()
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 2
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert r"text \& more" in latex
    escaped = (
        r"50\% of R\&D\_costs \#1 \{a\} \$x\$ \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{}end\{table\}"
    )
    assert escaped in latex
    widths = [
        line.count("&") for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert set(widths) == {5}


def test_rows_that_share_a_plan_and_nearly_equal_plans_are_named(page):
    assert "same plan as ShortGPT" in page.words
    assert any("ShortGPT and LoRP differ in layers 3 and 4" in words for words in page.words)


def test_the_map_tells_what_happens_to_each_layer(builder, tmp_path):
    dense = builder.dense()
    builder.score(dense, builder.task("choice", 4), "acc", [1.0] * 4)
    merged = LayerSpec(base=1, blend=((1, -1.0), (2, 1.0), (3, 1.0)))
    kept = [
        LayerSpec(base=0),
        merged,
        LayerSpec(base=4, features=Mask.keep(range(3), 8)),
        LayerSpec(base=5, drop=("mlp",)),
    ]
    builder.variant("novel", PruningPlan(num_layers=LAYERS, layers=tuple(kept)), 2)
    told = Page(write_report(builder.finish(), tmp_path / "out").html.read_text()).words
    assert "layer 1: weights -1·L1 +1·L2 +1·L3" in told
    assert "layer 3: merged into layer 1" in told
    assert "layer 4: 3 of 8 MLP features kept" in told
    assert "layer 5: mlp removed" in told
    assert {"merged block", "merged into another", "MLP trimmed (height: kept)", "MLP removed"} <= set(told)
    assert "attention removed" not in told
    assert "layer 2: removed" not in told


def test_similarities_are_shown_of_whole_calibrations_and_of_weights_but_not_of_shards(page):
    assert "Calibration default (4,096 tokens, float32, sdpa)" in page.words
    assert "Weights of layers (WRP)" in page.words
    assert "0, 1: 0.5000" in page.words
    assert "0, 1: 0.1230" not in page.words


def test_statistics_that_belong_to_no_row_are_shown_apart(builder, tmp_path):
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    builder.calibration(np.full((7, 7), 0.5), "f" * 64)
    words = Page(write_report(builder.finish(), tmp_path / "out").html.read_text()).words
    assert "Statistics of other calibrations in the store" in words


def test_curves_have_a_logarithmic_axis_where_values_differ_more_than_twenty_times(builder, tmp_path):
    units = builder.task("text", 2)
    builder.score(builder.dense(), units, "perplexity", [-20.0, -20.0], weight=10.0)
    builder.variant("shortgpt", without(1), 1)
    builder.score(without(1), units, "perplexity", [-60.0, -60.0], weight=10.0)
    words = Page(write_report(builder.finish(), tmp_path / "out").html.read_text()).words
    assert "text: perplexity ↓, logarithmic axis" in words
    assert "ShortGPT, 1 layers: 403.4 ± 0.0" in words


def test_warnings_are_said_once_with_the_rows_they_are_of(page):
    assert page.words.count(f"scores tie {SCRIPT}") == 1
    assert "ShortGPT at 1, 3; LoRP at 1, 3" in page.words


def test_runs_and_remaining_failures_are_shown(page):
    assert "prunebench run" in page.words
    assert f"ValueError: {SCRIPT}" in page.words
    assert f"Traceback {SCRIPT}" in page.words


def test_the_resolved_configuration_is_shown(build, tmp_path):
    record = {"command": ["prunebench", "run", "a b.yaml"], "experiment": {"budgets": [3, "ratio:0.25"]}}
    builder = build(tmp_path / "store", record=record)
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    words = Page(write_report(builder.finish(), tmp_path / "out").html.read_text()).words
    assert "budgets:\n- 3\n- ratio:0.25" in words
    assert "prunebench run 'a b.yaml'" in words


def test_a_store_with_the_dense_model_alone_gives_a_page_without_pictures_of_plans(builder, tmp_path):
    builder.score(builder.dense(), builder.task("choice", 4), "acc", [1.0] * 4)
    page = Page(write_report(builder.finish(), tmp_path / "out").html.read_text())
    assert "6 layers; only the dense model was evaluated." in page.words
    assert "svg" not in page.tags


def test_an_empty_store_is_refused_and_nothing_is_written(tmp_path):
    store = open_store(tmp_path / "store")
    with pytest.raises(InputError, match="has no results yet"):
        write_report(store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_statistics_file_is_named(store, tmp_path):
    copy = shutil.copytree(store, tmp_path / "store")
    path = next((copy / "stats").glob("*.npz"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=re.escape(f"{path} is damaged")):
        write_report(copy, tmp_path / "out")


def test_a_file_in_the_way_of_the_folder_is_named(store, tmp_path):
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(ResourceError, match="cannot make the folder"):
        write_report(store, tmp_path / "out")


def test_templates_are_part_of_the_package():
    import prunebench.report

    folder = Path(prunebench.report.__file__).parent / "templates"
    assert sorted(path.name for path in folder.iterdir()) == environment().list_templates()


def test_a_broken_model_leaves_the_picture_with_its_value_beside_its_name(builder, tmp_path):
    units = builder.task("text", 2)
    builder.score(builder.dense(), units, "perplexity", [-10.0, -12.0], weight=10.0)
    for method, removed, value in (("shortgpt", 0, -30.0), ("lorp", 1, -400.0)):
        plan = PruningPlan.without([removed], 6)
        builder.variant(method, plan, 1)
        builder.score(plan, units, "perplexity", [value] * 2, weight=10.0)
    page = write_report(builder.finish(), tmp_path / "out").html.read_text()
    picture = next(part for part in page.split("<svg")[1:] if "perplexity" in part.split("</title>")[0])
    assert "LoRP ↑ 2.35e17" in picture
    assert "ShortGPT ↑" not in picture
    assert "e+" not in picture.split("</svg>")[0]
