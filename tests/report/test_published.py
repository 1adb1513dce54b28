import csv
from pathlib import Path

import pytest

import papers_store
from prunebench.report.beside import beside_measured, model_names
from prunebench.report.documents import read_documents
from prunebench.report.papers import paper_tables
from prunebench.report.published import published_table, published_tables
from prunebench.report.source import read_source
from prunebench.report.tables import leaderboard
from prunebench.report.tested import Pairer, with_tests

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "papers" / "published_results.csv"
NOT_CARRIED = {("layertrim", "T8"), ("layertrim", "T9"), ("layertrim", "T10")}
"""Token counts of single examples."""


def test_the_tables_are_those_of_the_shared_file_number_by_number():
    if not SOURCE.exists():
        pytest.skip(f"the papers' numbers as they were typed are not here: {SOURCE}")
    with SOURCE.open() as file:
        lines = [line for line in csv.DictReader(file) if not line["table"].startswith("text")]
    wanted = sorted(
        (
            line["paper"],
            line["table"].lower(),
            line["model"],
            line["method"],
            line["budget_layers"],
            line["total_layers"],
            f"{line['dataset']}:{line['metric']}",
            float(line["value"]),
            float(line["std"]) if line["std"] else -1.0,
            line["value_is_lower_bound"] == "true",
        )
        for line in lines
        if (line["paper"], line["table"]) not in NOT_CARRIED
    )
    carried = sorted(
        (
            table.paper,
            table.table,
            row.model,
            row.method,
            "" if row.budget is None else str(row.budget),
            str(row.layers),
            column,
            number.value,
            -1.0 if number.sd is None else number.sd,
            number.bound,
        )
        for table in published_tables()
        for row in table.rows
        for column, number in row.values.items()
    )
    assert carried == wanted


def test_every_file_of_the_package_is_a_table_and_every_table_a_file():
    import prunebench.report

    folder = Path(prunebench.report.__file__).parent / "published"
    names = {f"{table.paper}_{table.table}.csv" for table in published_tables()}
    assert {path.name for path in folder.iterdir()} == {*names, "tables.yaml"}


def test_every_number_has_the_digits_that_were_printed():
    row = next(
        row
        for row in published_table("layertrim", "t1").rows
        if (row.model, row.method, row.budget) == ("Qwen/Qwen3-14B", "layertrim", 7)
    )
    number = row.values["aime25:acc"]
    assert (number.value, number.sd, number.text) == (64.4, 5.1, "64.4 ± 5.1")
    capped = next(
        row for row in published_table("lorp", "t2").rows if row.method == "shortgpt" and row.budget == 9
    )
    assert (capped.values["avg:ppl"].bound, capped.values["avg:ppl"].text) == (True, "≥ 2000")


def test_averages_are_those_of_their_rows():
    for paper, table in (("lorp", "t3"), ("wrp", "t1"), ("simdiff", "t3")):
        for row in published_table(paper, table).rows:
            tasks = [n.value for name, n in row.values.items() if name.endswith(":acc") and name != "avg:acc"]
            assert row.values["avg:acc"].value == pytest.approx(sum(tasks) / len(tasks), abs=0.02)


def test_what_does_not_reconcile_is_a_footnote_of_its_rows():
    table = published_table("simdiff", "t5")
    marked = {
        (row.model, row.method, row.budget): [table.footnotes[n - 1] for n in row.footnotes]
        for row in table.rows
    }
    copied = marked["Qwen/Qwen2.5-3B", "shortgpt", 10]
    assert len(copied) == 1
    assert copied[0].startswith("SUSPECT: equal to the row of SimDiff on Qwen2.5-1.5B")
    assert marked["Qwen/Qwen2.5-3B", "shortgpt", 8] == []
    assert any("acc, not acc_norm" in remark for remark in table.remarks)


def test_every_footnote_has_a_row_and_every_table_is_named_by_a_file():
    for table in published_tables():
        used = {number for row in table.rows for number in row.footnotes}
        assert used == set(range(1, len(table.footnotes) + 1)), table.title
        assert table.rows


@pytest.mark.parametrize(
    ("model", "path", "known"),
    [
        ("Llama-3.1-8B", "", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "", "meta-llama/llama-3.1-8b"),
        ("small", "meta-llama/Llama-3.1-8B", "meta-llama/llama-3.1-8b"),
        ("small", "/cache/models--meta-llama--Llama-3.1-8B", "meta-llama/llama-3.1-8b"),
        ("small", "/models/meta-llama/Llama-3.1-8B/", "meta-llama/llama-3.1-8b"),
    ],
)
def test_a_model_is_known_by_its_name_or_by_the_path_that_it_was_loaded_from(model, path, known):
    entry = {"name": model if path else "", "path": path or model}
    record = f'{{"experiment": {{"models": [{{"name": "{entry["name"]}", "path": "{entry["path"]}"}}]}}}}'
    assert known in model_names(model, [{"record_json": record}])
    assert known not in model_names("other", [{"record_json": record}])


@pytest.fixture(scope="module")
def matched(build, tmp_path_factory):
    """COPA and RTE whole, HellaSwag and the rest in part; the whole of WikiText-2."""
    builder = build(
        tmp_path_factory.mktemp("published") / "store",
        model="Llama-3.1-8B",
        shape=papers_store.LLAMA,
        record={"experiment": {"models": [{"path": "meta-llama/Llama-3.1-8B", "name": ""}], "tasks": {}}},
    )
    found = papers_store.ask(builder)
    sizes = dict.fromkeys(papers_store.COMMON_SENSE, 20)
    papers_store.zero_shot(builder, found, {**sizes, "copa": 100, "rte": 277})
    papers_store.perplexity(builder, found)
    return _matched(builder.finish())


def _matched(store):
    source, pairer = read_source(store), Pairer(read_documents(store, read_source(store).groups))
    board = with_tests(leaderboard(source), pairer).boards[0]
    return beside_measured(board, paper_tables(board, pairer), source)


def test_numbers_are_compared_where_all_but_the_run_is_the_same(matched):
    told = {(one.source, one.name, one.column) for one in matched.numbers}
    rows = ("Dense", "ShortGPT", "LaCo", "LoRP")
    assert told == {
        *(("LoRP, Table 3", name, column) for name in rows for column in ("RTE", "COPA")),
        *(("LoRP, Table 2", name, "WikiText-2") for name in rows),
        # WRP's table has 6 and 8 layers, not 7; its dense model is the same.
        *(("WRP, Table 1", "Dense", column) for column in ("RTE", "COPA")),
    }


def test_differences_are_in_points_and_flagged_beyond_three_standard_errors(matched):
    for one in matched.numbers:
        assert one.errors is not None
        assert one.flagged == (abs(one.errors) > 3)
    copa = next(one for one in matched.numbers if (one.name, one.column) == ("Dense", "COPA"))
    measured = float(copa.measured.split()[0])
    assert copa.published == "87.00"
    assert float(copa.difference) == pytest.approx(measured - 87.0, abs=0.06)
    assert matched.flagged == sum(one.flagged for one in matched.numbers)


def test_parts_of_a_benchmark_are_not_compared_and_say_so(matched):
    assert "hellaswag: 20 documents are not the whole of hellaswag" in matched.reasons
    assert not any(one.column == "Avg." for one in matched.numbers)


def test_footnotes_of_a_published_row_stand_beside_its_numbers(matched):
    laco = next(one for one in matched.numbers if one.name == "LaCo")
    assert any("without thresholds" in note for note in laco.notes)


@pytest.mark.parametrize("other", ["model", "layers", "limit", "version"])
def test_another_model_depth_or_document_set_is_no_match(build, tmp_path, other):
    tasks = {"wikitext2": {"windows": 100 if other == "limit" else None}}
    record = {"experiment": {"models": [], "tasks": tasks}}
    builder = build(
        tmp_path / "store",
        model="Llama-3.1-70B" if other == "model" else "Llama-3.1-8B",
        record=record,
        **({} if other == "layers" else {"shape": papers_store.LLAMA}),
    )
    dense = builder.dense()
    version = "1-deadbeef" if other == "version" else "1-8a970098"
    units = builder.task("wikitext2", 4, {"recipe": "lorp_wikitext2"}, task_version=version)
    builder.score(dense, units, "perplexity", [-10.0, -11.0, -12.0, -13.0], weight=10.0)
    assert _matched(builder.finish()).numbers == ()
