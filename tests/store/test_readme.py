"""The README's one-liners, run as they stand there."""

import re
from pathlib import Path

import pandas as pd
import pytest

README = (Path(__file__).parent.parent.parent / "README.md").read_text()
SECTION = README.split("## Reading a store")[1].split("\n## ")[0]


def lines(language, store):
    (block,) = re.findall(rf"```{language}\n(.*?)```", SECTION, flags=re.S)
    return block.replace("stores/quickstart", str(store)).strip().splitlines()


def test_pandas_reads_a_store(undisturbed):
    told = lines("python", undisturbed)
    table, samples, holes = (eval(line, {"pd": pd}) for line in told)
    results = pd.read_parquet(f"{undisturbed}/results")
    assert table.loc["dense", "0"] == results.query("metric == 'acc' and method == 'dense'")["value"].iloc[0]
    assert samples["count"].sum() == len(pd.read_parquet(f"{undisturbed}/samples"))
    assert len(holes) == 0


def test_duckdb_reads_a_store(undisturbed):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    ordered, joined, hardest = (duckdb.sql(line.rstrip(";")).fetchall() for line in lines("sql", undisturbed))
    results = pd.read_parquet(f"{undisturbed}/results").query("metric == 'perplexity'")
    assert [row[2] for row in ordered] == sorted(results["value"])
    assert {row[0] for row in joined} == set(pd.read_parquet(f"{undisturbed}/results")["method"])
    assert hardest
