"""Code that a checkpoint brings: it runs where its entry says so, identifies the model, and is told."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from experiments import settings
from prunebench.config.experiment import load_experiment
from prunebench.errors import InputError
from prunebench.evaluation.worker import Worker
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.streamed import stream_model
from prunebench.pipeline.benchmark import model_setups, run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.prepare import prepare
from prunebench.pipeline.progress import Silent
from prunebench.report.render import write_report
from prunebench.store.read import read_failures, read_results, read_variants

CODE = """
from transformers import LlamaForCausalLM


class Halved(LlamaForCausalLM):
    def forward(self, *arguments, **named):
        out = super().forward(*arguments, **named)
        out.logits = out.logits / 2
        return out
"""
IDS = torch.arange(20)[None]
TOLD = "the model runs code of its checkpoint (trust_remote_code): own.py"


def brings(folder, named, code=CODE):
    held = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**held, "auto_map": named}))
    if code:
        (folder / "own.py").write_text(code)
    return folder


@pytest.fixture
def folder(tiny, tmp_path):
    return Path(shutil.copytree(tiny("llama"), tmp_path / "own-code"))


@pytest.fixture
def halved(folder):
    return brings(folder, {"AutoModelForCausalLM": "own.Halved"})


def config_of(tmp_path, folder, **model):
    models = [{"path": str(folder), "dtype": "float32", **model}]
    data = {**settings(folder), "models": models, "methods": [{"method": "last_n"}], "budgets": [1]}
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(data))
    return tmp_path / "e.yaml"


def test_the_code_runs_where_it_is_trusted_and_nowhere_else(halved):
    plain, own = (Checkpoint.open(halved, trust_remote_code=trusted) for trusted in (False, True))
    stock = load_model(plain, dtype="float32")
    ours = load_model(own, dtype="float32")
    assert type(stock.model).__name__ == "LlamaForCausalLM"
    assert type(ours.model).__name__ == "Halved"
    with torch.no_grad():
        assert torch.equal(ours.model(IDS).logits, stock.model(IDS).logits / 2)
    assert type(stream_model(plain, dtype="float32").model).__name__ == "LlamaForCausalLM"
    assert type(stream_model(own, dtype="float32").model).__name__ == "Halved"


def test_the_code_is_part_of_what_identifies_the_model(halved, tiny):
    plain, own = (Checkpoint.open(halved, trust_remote_code=trusted) for trusted in (False, True))
    assert plain.weights_id == Checkpoint.open(tiny("llama")).weights_id != own.weights_id
    assert Checkpoint.open(halved, trust_remote_code=True).weights_id == own.weights_id
    (halved / "own.py").write_text(CODE.replace("/ 2", "/ 3"))
    assert Checkpoint.open(halved, trust_remote_code=True).weights_id != own.weights_id


def test_an_entry_turns_it_on_and_the_report_says_so(halved, tmp_path):
    setting, store = load_experiment(config_of(tmp_path, halved, trust_remote_code=True)), tmp_path / "store"
    run_benchmark(setting, store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent())
    assert read_results(store)["status"].unique().tolist() == ["ok"]
    assert all(TOLD in json.loads(text) for text in read_variants(store)["warnings_json"])
    assert TOLD in write_report(store, tmp_path / "report").html.read_text()


def test_without_the_setting_nothing_is_told_and_the_weights_alone_are_the_model(halved, tmp_path):
    (subject,) = prepare(load_experiment(config_of(tmp_path, halved)))
    assert not subject.checkpoint.trusted
    assert not model_setups((subject,))[subject.name].trust_remote_code


def test_a_worker_that_finds_other_code_refuses(halved, tmp_path):
    setting = load_experiment(config_of(tmp_path, halved, trust_remote_code=True))

    def worker(setups):
        (halved / "own.py").write_text(CODE.replace("/ 2", "/ 3"))
        return LocalExecutor(lambda: Worker(setups, 1))

    outcome = run_benchmark(setting, tmp_path / "store", worker, Silent())
    assert outcome.failures
    errors = read_failures(tmp_path / "store")["error"]
    assert errors.str.contains("are not those the run started with").all()


def test_engines_that_would_run_other_code_are_refused(halved, tmp_path):
    config = config_of(tmp_path, halved, trust_remote_code=True)
    with pytest.raises(InputError, match="vLLM would serve it with vLLM's: let engine 'v' be of the kind hf"):
        prepare(load_experiment(config, ["engines.v.kind=vllm"]))


@pytest.mark.parametrize(
    ("named", "code", "why"),
    [
        ({}, CODE, "brings no code: neither config.json nor tokenizer_config.json has an auto_map"),
        (
            {"AutoModelForCausalLM": "someone/else--own.Halved"},
            CODE,
            r"names code of another repository \('someone/else--own.Halved'\): copy that code",
        ),
        ({"AutoModelForCausalLM": "own.Halved"}, "", "names 'own.Halved', but there is no own.py"),
        ({"AutoTokenizer": [None, "own.Tokenizer"]}, "", "names 'own.Tokenizer', but there is no own.py"),
    ],
)
def test_what_cannot_run_or_is_not_there_is_refused(folder, tmp_path, named, code, why):
    config = config_of(tmp_path, brings(folder, named, code), trust_remote_code=True)
    with pytest.raises(InputError, match=why):
        prepare(load_experiment(config))
