"""Checkpoints in the real vLLM: one process serves all of them, in float32."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.errors import ExportError, ResourceError, UnsupportedError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.export import export, write
from prunebench.models.proof import MANIFEST, Export, prove
from prunebench.models.vllm_plugin import ARCHITECTURES, check_tensor_parallel, register
from prunebench.models.vllm_proof import compare, prove_in_vllm

L, I = 6, 44  # noqa: E741
# Heads of 32: the smallest that vLLM's attention has on a CPU.
SIZES = {"hidden_size": 128, "num_hidden_layers": L}
SERVED = {
    "llama": {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "head_dim": 32, "sliding_window": 8},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True},
    "phi3": {"model_type": "phi3"},
}
TRIMMED = PruningPlan(
    num_layers=L,
    layers=(
        LayerSpec(base=0),
        LayerSpec(base=1, features=Mask.keep(range(0, I, 3), I)),
        LayerSpec(base=3, blend=((3, 0.5), (4, 0.5)), features=Mask.keep(range(20), I)),
        LayerSpec(base=5, features=Mask.keep([43], I)),
    ),
)
STOCK = {
    "merged": PruningPlan(
        num_layers=L,
        layers=(LayerSpec(base=0, blend=((0, 0.3), (1, 0.7))), LayerSpec(base=2, blend=((4, 1.0),))),
    ),
    "equal": PruningPlan(
        num_layers=L,
        layers=tuple(LayerSpec(base=i, features=Mask.keep(range(i, 33 + i), I)) for i in (0, 2, 5)),
    ),
}


def runtimes(folder: Path) -> dict:
    return json.loads((folder / MANIFEST).read_text())["runtimes"]


@pytest.fixture(scope="module")
def dense(save_tiny, tmp_path_factory) -> dict[str, Checkpoint]:
    folder = tmp_path_factory.mktemp("served")
    for name, settings in SERVED.items():
        save_tiny(SIZES | settings, folder / name)
    return {name: Checkpoint.open(folder / name) for name in SERVED}


@pytest.mark.timeout(600)
def test_five_families_of_unequal_widths_and_stock_checkpoints_are_served(dense, tmp_path):
    """And Transformers chooses the same tokens; that memory and reload are one, `prove` says bit for bit."""
    plugged = [write(dense[name], TRIMMED, tmp_path / name) for name in SERVED]
    stock = [write(dense["llama"], plan, tmp_path / kind) for kind, plan in STOCK.items()]
    exports = [*plugged, *stock]
    prove(exports)
    assert all(runtimes(each.folder)["vllm"]["proven"] is None for each in exports)
    prove_in_vllm(exports)
    for each in exports:
        config = json.loads((each.folder / "config.json").read_text())
        assert (config["architectures"][0] in ARCHITECTURES) == (each in plugged)
        state = runtimes(each.folder)["vllm"]
        assert state["proven"][0].isdigit()
        assert state["greedy_tokens"] == 16
        assert state["largest_logprob_difference"] < 1e-3
        assert (state["needs"] == "nothing") == (each not in plugged)


def test_other_families_are_refused_by_name_before_anything_is_written(tiny, tmp_path):
    gemma = Checkpoint.open(tiny("gemma2"))
    with pytest.raises(UnsupportedError, match="vLLM: unequal MLP widths of Gemma-2 are not served"):
        export(gemma, TRIMMED, tmp_path / "out", in_vllm=True)
    assert list(tmp_path.iterdir()) == []


def test_without_vllm_the_proof_is_refused_with_the_remedy(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ResourceError, match=r"not installed here: pip install 'prunebench\[vllm\]'"):
        export(Checkpoint.open(tiny("llama")), STOCK["merged"], tmp_path / "out", in_vllm=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("token", r"chooses other tokens .*\(1 of 2 greedy tokens are equal\)"),
        ("value", r"other log-probabilities in vLLM .*\(largest difference 0.5\)"),
        ("nan", r"largest difference nan"),
    ],
)
def test_an_engine_that_computes_something_else_is_refused(tiny, tmp_path, change, sentence):
    checkpoint = Checkpoint.open(tiny("llama"))
    proven = Export(
        checkpoint=checkpoint, plan=STOCK["merged"], folder=tmp_path, layout="deployed", dtype="float32"
    )
    ids = proven.probe_ids
    logits = np.random.default_rng(0).normal(size=(len(ids) + 2, checkpoint.vocab_size))
    row = [*ids, *(int(token) for token in logits[len(ids) - 1 : -1].argmax(axis=1))]
    if change == "token":
        row[-1] = (row[-1] + 1) % checkpoint.vocab_size
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    there = [float(logprobs[i, token]) for i, token in enumerate(row[1:])]
    if change != "token":
        there[5] = there[5] + 0.5 if change == "value" else float("nan")
    with pytest.raises(ExportError, match=sentence):
        compare(proven, row, there, logits)


def test_the_entry_point_is_the_plugin_and_the_plugin_is_light():
    """Every vLLM process imports it, also those that serve other models."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["vllm.general_plugins"]["prunebench"].partition(":")
    assert getattr(importlib.import_module(module), name) is register
    script = (
        f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    )
    root = str(Path(__file__).parents[2] / "platform")
    child = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": root}, capture_output=True, text=True, check=True
    )
    imported = {name.partition(".")[0] for name in child.stdout.split()}
    assert imported - {"prunebench"} <= sys.stdlib_module_names
    assert [name for name in child.stdout.split() if name.startswith("prunebench.")] == [
        "prunebench.models",
        "prunebench.models.vllm_plugin",
    ]


def test_widths_are_cut_into_equal_parts_or_not_at_all():
    check_tensor_parallel([44, 16, 20], 4)
    with pytest.raises(ValueError, match="MLP of block 1 has 15 features, which 2 tensor-parallel workers"):
        check_tensor_parallel([44, 15, 20], 2)
