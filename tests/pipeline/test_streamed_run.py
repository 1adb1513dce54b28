"""Experiments on a model that is read block by block: an equal store, and what is refused."""

import numpy as np
import pytest
import yaml

from prunebench.config.experiment import load_experiment
from prunebench.core.lease import Leases
from prunebench.core.shape import ModelShape
from prunebench.core.unit import CalibrateItem, StatsDone, TogetherItem
from prunebench.errors import InputError
from prunebench.evaluation.worker import Worker
from prunebench.pipeline import together
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.together import shards_together
from prunebench.store.diff import diff

SHARDS = [
    CalibrateItem(key=f"k{i}", model="m", source="s", rows=(np.arange(4), np.arange(4))) for i in range(3)
]


def streamed_copy(path, folder, **changes):
    settings = yaml.safe_load(path.read_text())
    settings["models"][0]["streamed"] = True
    copy = folder / "streamed.yaml"
    copy.write_text(yaml.safe_dump({**settings, **changes}))
    return copy


def test_a_streamed_run_gives_the_same_store(finished, tmp_path):
    path, store = finished
    experiment = load_experiment(streamed_copy(path, tmp_path))
    outcome = run_benchmark(
        experiment,
        tmp_path / "store",
        lambda setups: LocalExecutor(lambda: Worker(setups, 1)),
        Silent(),
    )
    assert outcome.failures == 0
    assert diff(store, tmp_path / "store") == []


def test_what_needs_the_whole_model_is_refused_before_anything_starts(finished, tmp_path):
    task = {"kind": "efficiency", "protocol": "layertrim"}
    path = streamed_copy(finished[0], tmp_path, tasks={"speed": task})
    with pytest.raises(InputError, match=r"task speed .efficiency. needs llama whole in memory"):
        load_experiment(path)


def test_shards_fill_passes_up_to_the_scratch_space(monkeypatch):
    shape = ModelShape(
        num_layers=3, hidden_size=8, intermediate_size=8, num_heads=1, num_kv_heads=1, head_dim=8
    )
    one = 4 * 8 * 2 * 8  # boundaries, hidden size, bytes, tokens
    monkeypatch.setattr(together, "SCRATCH_BYTES", 2 * one)
    passes = shards_together(SHARDS, shape, "bfloat16")
    assert [len(each.items) for each in passes] == [2, 1]
    monkeypatch.setattr(together, "SCRATCH_BYTES", one - 1)
    assert [len(each.items) for each in shards_together(SHARDS, shape, "bfloat16")] == [1, 1, 1]


def test_a_lost_pass_comes_back_with_what_was_not_delivered():
    leases = Leases([TogetherItem(model="m", items=tuple(SHARDS))])
    lease = leases.take()
    assert lease is not None
    lease.delivered(StatsDone(key="k1", data=b"", seconds=0.0))
    assert lease.remaining == ("k0", "k2")
    assert leases.lost(lease, "killed") is None
    again = leases.take()
    assert again is not None
    assert again.remaining == ("k0", "k2")
    assert leases.lost(again, "killed") is None
    # It may be one shard that kills workers: now each is a lease of its own.
    assert {lease.remaining for lease in (leases.take(), leases.take()) if lease} == {("k0",), ("k2",)}
