"""JSON beside the page: valid under its schema, and equal to the store to the last digit."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

from prunebench.core.plan import PruningPlan
from prunebench.report.render import write_report
from prunebench.store.read import read_results

LAYERS = 6
HOSTILE = '../<script>&%$#_{}~^\\ \u2028näme“剪\x07"|'
SCHEMA = json.loads((Path(__file__).parent.parent / "golden" / "every_eval_ever_0.3.0.json").read_text())
RECORD = {"command": ["prunebench", "run"], "packages": {"prunebench": "9.8.7"}}


@pytest.fixture(scope="module")
def store(build, tmp_path_factory):
    """A plan with values, one whose values are infinite or NaN, a hole, and a hostile name."""
    builder = build(tmp_path_factory.mktemp("exports") / "store", record=RECORD)
    dense = builder.dense()
    text, choice = builder.task("text", 2, {"shots": 5}), builder.task(HOSTILE, 20)
    plan, broken = PruningPlan.without([1], LAYERS), PruningPlan.without([2], LAYERS)
    builder.variant(HOSTILE, plan, 1, params_json=json.dumps({"a": HOSTILE}))
    builder.variant("shortgpt", broken, 1)
    builder.variant("laco", None, 1, status="unreachable", error="no")
    for one, nats in ((dense, 10.0), (plan, 12.0), (broken, math.inf)):
        builder.score(one, text, "perplexity", [-nats, -11.0], weight=10.0)
        builder.score(one, choice, "acc", [math.nan if one is broken else 1.0] * 13 + [0.0] * 7)
        builder.score(one, builder.task("odd", 3), "unheard_of", [-2.0, 3.0, 1.0])
    return builder.finish()


@pytest.fixture(scope="module")
def out(store):
    return write_report(store, store.parent / "out").html.parent


def documents(out, folder):
    """By variant: the name is that of its file, or of the folder around it."""
    files = sorted((out / folder).rglob("*.json"))
    return {
        (path.parent.name if folder == "lm_eval" else path.stem): json.loads(path.read_text())
        for path in files
    }


def test_every_evaluated_variant_has_a_file_of_a_name_that_harms_nothing(out):
    for folder in ("every_eval_ever", "lm_eval"):
        names = sorted(documents(out, folder))
        assert all(re.fullmatch(r"[A-Za-z0-9_-]+_[0-9]_[0-9a-f]{16}", name) for name in names)
        assert len(names) == 3
        assert names[1].startswith("dense_0_")


def test_every_eval_ever_documents_are_valid_and_hold_what_is_finite(out, store):
    results = read_results(store)
    finite = results[results["value"].map(math.isfinite)]
    found = {}
    for document in documents(out, "every_eval_ever").values():
        jsonschema.validate(document, SCHEMA, jsonschema.Draft7Validator)
        key = document["model_info"]["additional_details"]["variant_key"]
        for result in document["evaluation_results"]:
            found[key, result["evaluation_name"], result["metric_config"]["metric_id"]] = result
            low, high = (result["metric_config"][name] for name in ("min_score", "max_score"))
            assert float(low) <= result["score_details"]["score"] <= float(high)
    assert len(found) == len(finite) == 7
    for row in finite.to_dict("records"):
        details = found[row["variant_key"], row["task"], row["metric"]]["score_details"]
        assert details["score"] == row["value"]
        assert details["uncertainty"]["standard_error"]["value"] == row["stderr"]
        assert details["uncertainty"]["num_samples"] == row["num_examples"]


def test_a_metric_without_a_direction_says_so(out):
    dense = next(one for name, one in documents(out, "every_eval_ever").items() if name.startswith("dense"))
    metrics = {one["metric_config"]["metric_id"]: one["metric_config"] for one in dense["evaluation_results"]}
    assert metrics["perplexity"]["lower_is_better"]
    assert (metrics["acc"]["lower_is_better"], metrics["acc"]["max_score"]) == (False, 1.0)
    assert metrics["unheard_of"]["additional_details"] == {"direction": "unknown"}
    assert dense["eval_library"] == {"name": "prunebench", "version": "9.8.7"}


def test_lm_eval_documents_hold_what_is_finite_under_its_own_names(out, store):
    results = {
        (row["variant_key"], row["task"], row["metric"]): row
        for row in read_results(store).to_dict("records")
    }
    count = 0
    for document in documents(out, "lm_eval").values():
        for task, metrics in document["results"].items():
            for name in [name for name in metrics if name.endswith(",none") and "_stderr" not in name]:
                metric = name.removesuffix(",none")
                row = results[document["prunebench"]["variant_key"], task, metric]
                assert metrics[name] == row["value"]
                assert metrics[f"{metric}_stderr,none"] == row["stderr"]
                assert document["n-samples"][task]["effective"] == row["num_examples"]
                count += 1
        names = set(document["results"])
        for part in ("configs", "versions", "n-shot", "higher_is_better", "n-samples", "group_subtasks"):
            assert set(document[part]) == names
    assert count == 7
    dense = next(one for name, one in documents(out, "lm_eval").items() if name.startswith("dense"))
    assert dense["n-shot"]["text"] == 5
    assert dense["higher_is_better"] == {
        "text": {"perplexity": False},
        HOSTILE: {"acc": True},
        "odd": {"unheard_of": None},
    }


def test_equal_stores_give_equal_files_and_nothing_of_an_older_report_stays(out, store, tmp_path):
    copy = tmp_path / "again"
    shutil.copytree(out, copy)
    (copy / "lm_eval" / "older.json").write_text("{}")
    write_report(store, copy)
    for folder in ("every_eval_ever", "lm_eval"):
        assert documents(copy, folder) == documents(out, folder)
    assert not [path for path in copy.iterdir() if path.name.startswith(".tmp")]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX on this machine")
def test_the_latex_tables_compile(out, tmp_path):
    tables = (out / "leaderboard.tex").read_text()
    text = (
        f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{tables}\\end{{document}}\n"
    )
    (tmp_path / "page.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000
