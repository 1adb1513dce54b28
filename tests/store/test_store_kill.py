"""The store under SIGKILL, a full disk and two drivers at once; children run tests/fake_driver.py."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import fake_driver
import prunebench
from prunebench.store.compact import compact
from prunebench.store.diff import diff
from prunebench.store.read import read_samples
from prunebench.store.verify import verify

SCRIPT = Path(fake_driver.__file__)
SOURCE = Path(prunebench.__file__).parent.parent


def start(root: Path, what: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(root), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
    )


def answer(root: Path, what: str) -> dict:
    child = start(root, what)
    told, _ = child.communicate()
    assert child.returncode == 0
    return json.loads(told)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    return answer(tmp_path_factory.mktemp("crashes") / "stores", "crashes")


def test_a_kill_at_any_change_of_the_disk_loses_and_doubles_nothing(crashes):
    assert crashes["wrong"] == []
    # Six units and one text are folded away, and six parts on the way.
    assert crashes["events"].count("unlink") == 13
    assert crashes["events"].count("replace") > 20


def test_a_file_and_its_folder_are_synced_around_each_replacement(crashes):
    events = crashes["events"]
    for place in [i for i, name in enumerate(events) if name == "replace"]:
        assert events[place + 1 : place + 3] == ["open", "fsync"]
        assert events[place - 3 : place] in (["open", "write", "fsync"], ["replace", "open", "fsync"])


@pytest.mark.parametrize("kill_after", [1, 5, 17])
def test_a_driver_killed_from_outside_resumes_to_an_equal_store(root, tmp_path, kill_after):
    fake_driver.drive(tmp_path / "calm", ranges=4)
    child = start(root, "4")
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    units = [line for line, _ in zip(child.stdout, range(1 + kill_after), strict=False)]
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    child.communicate()
    before = read_samples(root)["unit_id"].nunique()
    assert before >= len(units) - 1
    again: list[str] = []
    fake_driver.drive(root, ranges=4, told=again.append)
    assert len(again) == 24 - before
    assert diff(tmp_path / "calm", root) == []


def test_two_drivers_on_one_store_finish_and_double_nothing(root, tmp_path):
    fake_driver.drive(tmp_path / "calm", ranges=20)
    children = [start(root, "20") for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    seen = 0
    while any(child.poll() is None for child in children):
        if (root / "store.json").exists() and any((root / "results").glob("*.parquet")):
            samples = read_samples(root)
            assert not samples.duplicated(["unit_id", "doc_id", "metric"]).any()
            assert len(samples) >= seen
            seen = len(samples)
            assert len(pd.read_parquet(f"{root}/results")) in (0, 12)
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
    assert [child.wait() for child in children] == [0, 0]
    for child in children:
        child.communicate()
    assert diff(tmp_path / "calm", root) == []
    assert len(list((root / "results").iterdir())) == 1
    compact(root)
    assert verify(root) == []
    assert diff(tmp_path / "calm", root) == []


def test_a_full_disk_is_told_in_a_sentence_and_leaves_no_partial_file(root):
    told = answer(root, "full")
    assert all("cannot write" in error and "same command to resume" in error for error in told["errors"])
    assert len(told["errors"]) == 2
    assert told["files"] == []
    assert [line.count("\n") for line in told["lines"]] == [1]
    assert (told["present"], told["again"]) == (False, True)
    assert len(read_samples(root)) == 2
