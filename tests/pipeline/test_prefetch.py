"""Mirrors are filled whole or not at all, and what is in them is what the manifest says."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from mirrors import write_manifest, write_split
from prunebench.config.experiment import load_experiment
from prunebench.data.manifest import listed
from prunebench.errors import InputError
from prunebench.evaluation.worker import Worker
from prunebench.pipeline import prefetch as module
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.prefetch import named_splits, prefetch
from prunebench.pipeline.progress import Silent
from prunebench.report.columns import columns_of
from prunebench.store.read import read_samples

ROOT = Path(__file__).parents[2]
WIKITEXT = "Salesforce/wikitext/wikitext-2-raw-v1"
TEXT = [f"Line {i} of a text that is long enough for windows of tokens, number {i * i}." for i in range(60)]
NOTES = [f"Another {i}th note about quite other things, such as {i} kinds of trees." for i in range(30)]


@pytest.fixture
def mirror(tmp_path):
    folder = tmp_path / "theirs"
    write_split(folder, WIKITEXT, "test", TEXT)
    write_split(folder, WIKITEXT, "train", TEXT[:3])
    write_split(folder, "org/notes/default", "train", NOTES[:15], NOTES[15:])
    write_manifest(folder, license="CC0")
    return folder


@pytest.fixture
def experiment_of(write_config):
    def experiment_of(mirror="theirs", **changes):
        path = write_config(
            **{
                "mirror": mirror,
                "calibrations": {"default": "mirror:org/notes:train#text?samples=2&length=32"},
                "probes": {"other": "builtin:pydoc:merge?samples=1"},
                "methods": [{"method": "shortgpt"}],
                "budgets": [2],
                "tasks": {"wiki": {"kind": "perplexity", "recipe": "lorp_wikitext2", "windows": 1}},
                **changes,
            }
        )
        return load_experiment(path)

    return experiment_of


def fetch(experiment, out, **options):
    return [(str(done.split), done.origin, done.rows) for done in prefetch(experiment, out, **options)]


def run(experiment, store):
    return run_benchmark(experiment, store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent())


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_every_split_that_a_config_names_is_found_once(experiment_of):
    experiment = experiment_of(
        calibrations={"default": "hub:a/b/c:train#text", "tokens": "tokens:x.npy"},
        probes={"one": "mirror:a/b/c:train#other", "two": "mirror:d/e:test"},
        tasks={
            "recipe": {"kind": "perplexity", "recipe": "lorp_ptb"},
            "text": {"kind": "perplexity", "text": "mirror:f/g:validation#page"},
            "choice": {"kind": "choice", "text": "hub:h/i:test"},
        },
    )
    assert list(map(str, named_splits(experiment))) == [
        "a/b/c:train",
        "d/e:test",
        "f/g:validation",
        "h/i:test",
        "ptb-text-only/ptb_text_only/penn_treebank:validation",
    ]


def test_what_is_fetched_from_a_mirror_serves_a_run_alone(experiment_of, mirror, tmp_path):
    out = tmp_path / "ours"
    assert fetch(experiment_of(), out) == [
        (f"{WIKITEXT}:test", "copied", 60),
        ("org/notes:train", "copied", 30),
    ]
    copied = [path for path in contents(out) if path.endswith(".parquet")]
    assert all((out / path).read_bytes() == (mirror / path).read_bytes() for path in copied)
    assert len(copied) == 3, "the split that nothing names stays behind"
    for file, entry in listed(out).items():
        assert entry["sha256"] == hashlib.sha256((out / file).read_bytes()).hexdigest()
        assert entry["license"] == "CC0"
        assert entry["first_rows"] is None
    assert {entry["rows"] for entry in listed(out).values()} == {60, 15}
    from_theirs, from_ours = tmp_path / "store a", tmp_path / "store b"
    assert run(experiment_of(), from_theirs).failures == 0
    mirror.rename(tmp_path / "gone")
    assert run(experiment_of(mirror="ours"), from_ours).failures == 0
    assert set(read_samples(from_ours)["unit_id"]) == set(read_samples(from_theirs)["unit_id"])


def test_what_is_there_is_kept_and_a_second_call_changes_nothing(experiment_of, mirror, tmp_path):
    out = tmp_path / "ours"
    fetch(experiment_of(), out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != ".lock"}
    assert [origin for _, origin, _ in fetch(experiment_of(), out)] == ["kept", "kept"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != ".lock"} == before


def test_an_interrupted_call_goes_on_where_it_stopped(experiment_of, mirror, tmp_path):
    out = tmp_path / "ours"
    steps = prefetch(experiment_of(), out)
    next(steps)
    steps.close()
    (out / ".tmp-dead").mkdir()
    (out / ".tmp-dead" / "0.parquet").write_bytes(b"half")
    assert [origin for _, origin, _ in fetch(experiment_of(), out)] == ["kept", "copied"]
    assert not list(out.glob(".tmp-*"))


def test_a_split_with_a_file_missing_is_fetched_again(experiment_of, mirror, tmp_path):
    out = tmp_path / "ours"
    fetch(experiment_of(), out)
    whole = contents(out)
    (out / "org/notes/default/train-00001-of-00002.parquet").unlink()
    assert [origin for _, origin, _ in fetch(experiment_of(), out)] == ["kept", "copied"]
    assert contents(out) == whole


def test_files_of_another_number_do_not_stay_beside_the_new_ones(experiment_of, mirror, tmp_path):
    out = tmp_path / "ours"
    write_split(out, WIKITEXT, "test", TEXT[:9], TEXT[9:])[1].unlink()
    assert [origin for _, origin, _ in fetch(experiment_of(), out)] == ["copied", "copied"]
    assert [path.name for path in (out / WIKITEXT).iterdir()] == ["test-00000-of-00001.parquet"]


def test_the_configs_own_mirror_can_be_completed_in_place(experiment_of, mirror):
    (mirror / "MANIFEST.json").unlink()
    assert [origin for _, origin, _ in fetch(experiment_of(), mirror)] == ["kept", "kept"]
    assert len(listed(mirror)) == 3, "the files that were named, now with their hashes"


def test_a_changed_file_is_named_by_prefetch_and_by_a_run(experiment_of, mirror, tmp_path):
    out = tmp_path / "ours"
    fetch(experiment_of(), out)
    (damaged,) = write_split(out, WIKITEXT, "test", [*TEXT[:-1], "another end"])
    sentence = rf"{damaged} has sha256 [0-9a-f]{{16}}, but .*MANIFEST.json says [0-9a-f]{{16}}"
    with pytest.raises(InputError, match=sentence):
        fetch(experiment_of(), out)
    with pytest.raises(InputError, match=sentence):
        run(experiment_of(mirror="ours"), tmp_path / "store")
    assert not (tmp_path / "store").exists()
    damaged.unlink()
    assert [origin for _, origin, _ in fetch(experiment_of(), out)] == ["copied", "kept"]


def test_a_damaged_source_is_not_copied(experiment_of, mirror, tmp_path):
    write_split(mirror, "org/notes/default", "train", NOTES[:14], NOTES[15:])
    out = tmp_path / "ours"
    with pytest.raises(
        InputError, match=r"theirs/org/notes/default/train-00000-of-00002\.parquet has sha256"
    ):
        fetch(experiment_of(), out)
    assert not (out / "org").exists()
    assert not list(out.glob(".tmp-*"))


def test_recipes_with_equal_windows_and_parts_of_one_never_share_a_column(experiment_of, mirror, tmp_path):
    """Three runs into one store under one task name."""
    recipes = [("lorp_wikitext2", 1), ("simdiff_wikitext2", 1), ("lorp_wikitext2", 2)]
    for recipe, windows in recipes:
        task = {"kind": "perplexity", "recipe": recipe, "windows": windows}
        assert run(experiment_of(tasks={"wiki": task}), tmp_path / "store").failures == 0
    results = pd.read_parquet(tmp_path / "store" / "results")
    dense = results[results["method"] == "dense"]
    assert sorted(dense["num_examples"]) == [1, 1, 2]
    assert dense["value"].nunique() == 2
    rows = [{str(k): v for k, v in row.items()} for row in results.to_dict("records")]
    columns = columns_of(rows, {})
    assert sorted(column.name for column in columns) == [
        "wiki (recipe lorp_wikitext2, windows 1)",
        "wiki (recipe lorp_wikitext2, windows 2)",
        "wiki (recipe simdiff_wikitext2, windows 1)",
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"datasets": [{"file": "x"}]}', '{"datasets": {}}'])
def test_a_manifest_that_is_none_is_refused(experiment_of, mirror, tmp_path, text):
    (mirror / "MANIFEST.json").write_text(text)
    with pytest.raises(InputError, match=r"MANIFEST.json (cannot be read|is no manifest of a mirror)"):
        fetch(experiment_of(), tmp_path / "ours")


def test_a_file_that_is_no_parquet_is_named(experiment_of, mirror, tmp_path):
    (mirror / "MANIFEST.json").unlink()
    (mirror / WIKITEXT / "test-00000-of-00001.parquet").write_bytes(b"not Parquet")
    with pytest.raises(InputError, match="is no readable Parquet file"):
        fetch(experiment_of(), tmp_path / "ours")


def test_splits_of_many_rows_become_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD_ROWS", 2)
    (source,) = write_split(tmp_path, "a/b/c", "train", list("abcde"))
    table = pq.read_table(source)
    parts = module._write_parts([table[:1], table[1:2], table[2:4], table[4:]], tmp_path)
    assert [pq.read_table(part)["text"].to_pylist() for part in parts] == [["a", "b"], ["c", "d"], ["e"]]


def command(*words, folder, **environment):
    """The command line in a process of its own: the hub's client reads its settings when it is imported."""
    script = "from prunebench.cli import main; main()"
    paths = [str(ROOT / "platform"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_json(experiment_of, mirror, tmp_path):
    experiment_of()
    words = ("prefetch", "experiment.yaml", "--out", "ours", "--json")
    done = command(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["out"] == "ours"
    assert printed["datasets"][0] == {
        "dataset": WIKITEXT,
        "split": "test",
        "files": [f"{WIKITEXT}/test-00000-of-00001.parquet"],
        "rows": 60,
        "first_rows": None,
        "origin": "copied",
    }


def test_without_a_mirror_and_the_network_the_command_says_what_to_do(experiment_of, tmp_path):
    experiment_of(mirror=None)
    done = command("prefetch", "experiment.yaml", "--out", "ours", folder=tmp_path, HF_HOME=str(tmp_path))
    assert done.returncode == 4
    assert f"dataset {WIKITEXT}:test " in done.stderr
    assert "needs the datasets package and network" in done.stderr or "cannot be fetched" in done.stderr
    assert "prunebench prefetch CONFIG --out FOLDER" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs the datasets package")
def test_splits_are_streamed_from_the_hub_in_part_or_whole(experiment_of, mirror, tmp_path):
    """Offline, the library finds ORG/NAME in the working directory: a stand-in for the hub."""
    hub = tmp_path / "hub"
    fetch(experiment_of(), hub)
    experiment_of(mirror=None, calibrations={"default": "hub:org/notes/default:train#text?samples=2"})

    def call(*words):
        done = command(
            "prefetch", tmp_path / "experiment.yaml", "--out", tmp_path / "ours", "--json", *words,
            folder=hub, HF_HOME=str(tmp_path / "hf"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [(d["origin"], d["rows"], d["first_rows"]) for d in json.loads(done.stdout)["datasets"]]

    assert call("--rows", "40") == [("downloaded", 40, 40), ("downloaded", 30, None)]
    assert call("--rows", "10") == [("kept", 40, 40), ("kept", 30, None)]
    assert call() == [("downloaded", 60, None), ("kept", 30, None)]
    fetched = pq.read_table(tmp_path / "ours" / WIKITEXT)["text"].to_pylist()
    assert fetched == TEXT
