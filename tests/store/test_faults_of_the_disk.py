"""Runs of units of no work on a disk that fills up, on a torn file, and under a clock that is set back."""

import os
import resource
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fake_driver
import fault_driver
import prunebench
from prunebench.store import runs
from prunebench.store.diff import diff
from prunebench.store.read import read_runs, units_present
from prunebench.store.verify import verify

SCRIPT = Path(fault_driver.__file__)


def run(store, orders, limit=None):
    """The exit code and the words of a driver; `limit` bytes are the most that it may write to one file."""
    path = os.pathsep.join([str(SCRIPT.parent), str(Path(prunebench.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(store), "local", str(orders), "1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))),
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def calm(tmp_path):
    assert run(tmp_path / "calm", tmp_path) == (0, "")
    return tmp_path / "calm"


def test_a_disk_that_fills_up_ends_the_run_with_4_and_the_same_command_resumes(calm, tmp_path):
    store = tmp_path / "store"
    code, said = run(store, tmp_path, limit=6_000)
    assert code == 4
    assert f"cannot write {store}/" in said
    assert "bytes are free in" in said
    assert "the same command to resume" in said
    assert 0 < len(units_present(store)) < 36
    assert not [finding for finding in verify(store) if "readable" in finding.problem]
    assert run(store, tmp_path) == (0, "")
    assert diff(calm, store) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 100 KiB, mounted where that is allowed; and what makes it larger."""
    folder = tmp_path / "small"
    folder.mkdir()

    def mount(options):
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    if not mount("size=100k"):
        pytest.skip("mounting is not allowed here")
    yield folder, lambda: mount("remount,size=8m")
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_file_system_ends_the_run_with_4_and_the_same_command_resumes(small_disk, calm, tmp_path):
    folder, grow = small_disk
    store = folder / "store"
    code, said = run(store, tmp_path)
    assert code == 4
    assert "No space left on device (0 bytes are free in" in said
    assert 0 < len(units_present(store)) < 36
    assert not [finding for finding in verify(store) if "readable" in finding.problem]
    assert grow()
    assert run(store, tmp_path) == (0, "")
    assert diff(calm, store) == []


def test_a_torn_unit_is_named_and_made_again_once_it_is_deleted(calm, tmp_path):
    store = tmp_path / "store"
    assert run(store, tmp_path)[0] == 0
    (part,) = (store / "samples").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-20])
    code, said = run(store, tmp_path)
    assert code == 2
    assert f"{part} is not a readable Parquet file of this store" in said
    assert "delete it and run" in said
    assert [finding.path for finding in verify(store) if "samples" in finding.path] == [str(part)]
    part.unlink()
    assert run(store, tmp_path) == (0, "")
    assert diff(calm, store) == []


def test_a_clock_that_is_set_back_between_two_runs_changes_nothing(tmp_path, monkeypatch):
    fake_driver.drive(tmp_path / "calm", ranges=3)
    store = tmp_path / "store"
    fake_driver.drive(store, ranges=1)
    back = timedelta(days=400)
    monkeypatch.setattr(runs, "_now", lambda: datetime.now(UTC) - back)
    fake_driver.drive(store, ranges=3)
    started = read_runs(store)["started_at"].sort_values()
    assert started.iloc[0][:4] < started.iloc[1][:4]
    assert diff(tmp_path / "calm", store) == []
