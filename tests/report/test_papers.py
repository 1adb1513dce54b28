import math
import re

import numpy as np
import pytest

import papers_store
from prunebench.report.documents import read_documents
from prunebench.report.papers import paper_tables
from prunebench.report.recipes import TABLE_RECIPES
from prunebench.report.source import read_source
from prunebench.report.tables import leaderboard
from prunebench.report.tested import Pairer, with_tests
from prunebench.report.text import to_csv, to_latex, to_markdown

FEW = dict.fromkeys(papers_store.COMMON_SENSE, 40)


def boards_of(store):
    pairer = Pairer(read_documents(store, read_source(store).groups))
    board = with_tests(leaderboard(read_source(store)), pairer).boards[0]
    return board, {paper.recipe.name: paper for paper in paper_tables(board, pairer)}


@pytest.fixture(scope="module")
def store(build, tmp_path_factory):
    """A model of 32 layers with every task of the papers' tables but perplexities and two benchmarks."""
    builder = build(
        tmp_path_factory.mktemp("papers") / "store", model="Llama-3.1-8B", shape=papers_store.LLAMA
    )
    found = papers_store.ask(builder)
    builder.variant("wrp", None, 7, status="unreachable", error="no such count")
    papers_store.zero_shot(builder, found, FEW)
    papers_store.reasoning(builder, found)
    papers_store.efficiency(builder, found)
    return builder.finish()


@pytest.fixture(scope="module")
def board_and_papers(store):
    return boards_of(store)


@pytest.fixture(scope="module")
def papers(board_and_papers):
    return board_and_papers[1]


def test_each_shape_of_table_is_there_once_under_the_setting_of_its_columns(papers):
    assert list(papers) == ["lorp, wrp", "simdiff", "layertrim", "layertrim_efficiency"]
    assert papers["lorp, wrp"].setting["harness"] == "lm-eval 0.4.13"
    assert papers["layertrim"].setting["backend"] == "vllm"
    assert papers["layertrim_efficiency"].setting["execution"] == "deployed"


def test_lorp_takes_acc_norm_where_it_is_offered_and_simdiff_acc(board_and_papers):
    board, papers = board_and_papers
    metrics = {one.title: column.metric.name for one, column in zip_columns(papers["lorp, wrp"])}
    assert metrics == {
        "ARC-E": "acc_norm",
        "ARC-C": "acc_norm",
        "HellaSwag": "acc_norm",
        "WinoGrande": "acc",
        "BoolQ": "acc",
        "OBQA": "acc_norm",
        "RTE": "acc",
        "COPA": "acc",
        "RACE": "acc",
    }
    assert {column.metric.name for _, column in zip_columns(papers["simdiff"])} == {"acc"}
    hellaswag = [c for c in board.columns if c.task == "hellaswag"]
    assert len(hellaswag) == 2


def zip_columns(paper):
    return list(zip(paper.asked, paper.columns, strict=True))


def test_the_average_is_over_the_recipe_s_tasks_alone_and_retained_of_its_dense_one(papers):
    for name in ("lorp, wrp", "simdiff"):
        rows = {row.contender.method: row for row in papers[name].blocks[0].rows}
        for method in ("dense", "lorp"):
            values = [cell.value for cell in rows[method].cells]
            assert rows[method].means[0].value == pytest.approx(np.mean(values))
        retained = 100 * rows["lorp"].means[0].value / rows["dense"].means[0].value
        assert rows["lorp"].means[0].retained == pytest.approx(retained)
    assert papers["simdiff"].complete
    assert papers["simdiff"].absent == ("WikiText-2",)


def test_a_part_of_a_recipe_has_no_average_and_says_what_is_missing(papers):
    paper = papers["layertrim"]
    assert not paper.complete
    assert paper.absent == ("AIME26", "HumanEval", "MBPP+")
    average = paper.blocks[0].rows[0].means[0]
    assert average.value is None
    told = paper.blocks[0].notes[average.note - 1]
    assert told == "no average: 2 of 5 tasks have a value (missing: AIME26, HumanEval, MBPP+)"


def test_a_row_without_a_plan_is_holes_with_its_reason_in_every_column(papers):
    block = papers["lorp, wrp"].blocks[0]
    row = next(row for row in block.rows if row.contender.method == "wrp")
    reasons = {block.notes[cell.note - 1] for cell in row.all_cells}
    assert reasons == {"unreachable: no such count"}
    assert block.standing.covered(row) == "0 of 9"


def test_marks_and_ranks_are_over_the_columns_of_the_table(papers):
    block = papers["lorp, wrp"].blocks[0]
    assert block.tests.number == 10 * 3
    for place in range(10):
        cells = [row.all_cells[place] for row in block.rows if not row.label.dense]
        values = [cell.value for cell in cells if cell.value is not None]
        assert {cell.value for cell in cells if cell.best} == {max(values)}
        assert all(cell.holm >= 0.05 for cell in cells if cell.tie)
    random = next(row for row in block.rows if row.contender.method == "random")
    assert not any(cell.best for cell in random.all_cells)
    ranks = [rank for row in block.rows if (rank := block.standing.rank(row)) is not None]
    assert sum(ranks) == pytest.approx(1 + 2 + 3 + 4)


def test_seeds_are_one_column_with_an_sd(papers):
    paper = papers["layertrim"]
    assert paper.seeds == 3
    assert [len(column.seeds) for column in paper.columns] == [3, 3]
    assert all(cell.sd is not None and cell.stderr is not None for cell in paper.blocks[0].rows[0].cells)


def test_costs_stand_beside_times_faster_and_shares_of_the_dense_model(papers):
    paper = papers["layertrim_efficiency"]
    dense, pruned = paper.blocks[0].rows[:2]
    assert [paper.bracket(i, cell) for i, cell in enumerate(dense.cells)] == ["1.00×", "1.00×", "100 %"]
    assert [paper.bracket(i, cell) for i, cell in enumerate(pruned.cells)] == ["1.18×", "1.18×", "85 %"]
    assert pruned.means[0].value is None


def test_columns_under_unlike_settings_are_in_unlike_tables_and_a_second_of_one_is_left_out(build, tmp_path):
    builder = build(tmp_path / "store", model="m", shape=papers_store.LLAMA)
    dense = builder.dense()
    for harness, count in (("lm-eval 0.4.13", 4), ("lm-eval 0.4.9", 4), ("lm-eval 0.4.13", 8)):
        recipe = {"harness": harness, "harness_task": "copa", "shots": 0, "limit": count}
        units = builder.task("copa" if count == 4 else "copa_more", count, recipe)
        builder.score(dense, units, "acc", [1.0] * count)
    few = builder.task("copa_shown", 4, {"harness": "lm-eval 0.4.13", "harness_task": "copa", "shots": 5})
    builder.score(dense, few, "acc", [1.0] * 4)
    pairer = Pairer(read_documents(builder.finish(), read_source(builder.root).groups))
    board = with_tests(leaderboard(read_source(builder.root)), pairer).boards[0]
    tables = paper_tables(board, pairer)
    assert [(one.setting["harness"], one.columns[0].num_examples) for one in tables] == [
        ("lm-eval 0.4.13", 8),
        ("lm-eval 0.4.9", 4),
    ]
    (left_out,) = tables[0].left_out
    assert re.fullmatch(r"copa.* \(4 documents\): a column of its own in the leaderboard", left_out)


def test_recipes_name_a_metric_with_a_direction_for_each_task():
    names = [recipe.name for recipe in TABLE_RECIPES]
    assert len(set(names)) == len(names)
    for recipe in TABLE_RECIPES:
        assert all(one.metric.better for one in recipe.columns)
        assert recipe.borrowed in {"", *names[: names.index(recipe.name)]}


def test_the_texts_carry_the_papers_tables_and_the_new_columns(store, board_and_papers):
    board, papers = board_and_papers
    pairer = Pairer(read_documents(store, read_source(store).groups))
    table = with_tests(leaderboard(read_source(store)), pairer)
    tables = {board.weights_id: tuple(papers.values())}
    markdown, latex = to_markdown(table, tables), to_latex(table, tables)
    average = papers["lorp, wrp"].blocks[0].rows[0].means[0]
    assert "## Zero-shot accuracy as LoRP (Table 3) and WRP (Table 1) print it" in markdown
    assert f"| {average.text} ± {average.error} | 100.0 |" in markdown
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 1 + 4
    header, *lines = to_csv(table).splitlines()
    names = header.split(",")
    assert names[-7:] == ["seeds", "sd", "mark", "p_holm", "average_rank", "win_rate", "coverage"]
    assert len(lines) == 6 * len(board.columns)
    for line in latex.split(r"\toprule")[2:]:
        body = line.split(r"\bottomrule")[0]
        widths = {
            row.count("&") for row in body.splitlines() if row.endswith(r"\\") and "multicolumn" not in row
        }
        assert len(widths) == 1


def test_a_perplexity_average_has_a_value_and_no_mark(build, tmp_path):
    builder = build(tmp_path / "store", model="m", shape=papers_store.LLAMA)
    found = papers_store.ask(builder)
    for name, shift in (("wikitext2", 0.0), ("c4", 0.5), ("ptb", 1.0)):
        units = builder.task(name, 40, {"recipe": f"lorp_{name}"}, size=40)
        for number, plan in enumerate(found.values()):
            builder.score(plan, units, "perplexity", [-10.0 * (1 + shift + number)] * 40, weight=10.0)
    _, papers = boards_of(builder.finish())
    block = papers["lorp_perplexity"].blocks[0]
    average = block.rows[0].means[0].value
    assert average == pytest.approx((math.e + math.exp(1.5) + math.exp(2)) / 3)
    assert block.tests.detectable[-1] is None
    assert not any(row.means[0].tie for row in block.rows)
    assert block.rows[1].means[0].best
