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
from prunebench.pipeline.benchmark import model_setups, run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.prepare import prepare
from prunebench.pipeline.progress import Silent
from prunebench.report.render import write_report
from prunebench.store.read import read_failures, read_results, read_variants

CODE = """
from torch import nn
from transformers import LlamaForCausalLM


class Bent(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp.act_fn = nn.GELU()
"""
HALVED = """
from transformers import LlamaForCausalLM


class Bent(LlamaForCausalLM):
    def forward(self, *arguments, **named):
        out = super().forward(*arguments, **named)
        out.logits = out.logits / 2
        return out
"""
QUITS = """

class Quits(nn.Module):
    def forward(self, states):
        raise SystemExit(0)
"""
IDS = torch.arange(20)[None]
OWN = {"AutoModelForCausalLM": "own.Bent"}
TOLD = "the model runs code of its checkpoint (trust_remote_code): own.Bent"


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
def bent(folder):
    return brings(folder, OWN)


def config_of(tmp_path, folder, **model):
    models = [{"path": str(folder), "dtype": "float32", **model}]
    data = {**settings(folder), "models": models, "methods": [{"method": "last_n"}], "budgets": [1]}
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(data))
    return tmp_path / "e.yaml"


def test_the_code_runs_where_it_is_trusted_and_nowhere_else(bent):
    plain, own = (Checkpoint.open(bent, trust_remote_code=trusted) for trusted in (False, True))
    stock, ours = load_model(plain, dtype="float32"), load_model(own, dtype="float32")
    assert type(stock.model).__name__ == "LlamaForCausalLM"
    assert type(ours.model).__name__ == "Bent"
    with torch.no_grad():
        assert not torch.equal(ours.model(IDS).logits, stock.model(IDS).logits)


def test_the_code_is_part_of_what_identifies_the_model(bent, tiny):
    plain, own = (Checkpoint.open(bent, trust_remote_code=trusted) for trusted in (False, True))
    assert plain.weights_id == Checkpoint.open(tiny("llama")).weights_id != own.weights_id
    assert Checkpoint.open(bent, trust_remote_code=True).weights_id == own.weights_id
    (bent / "own.py").write_text(CODE.replace("GELU", "ReLU"))
    changed = Checkpoint.open(bent, trust_remote_code=True).weights_id
    assert changed != own.weights_id
    (bent / "own.py").write_text(CODE + CODE.replace("Bent", "Other"))
    both = Checkpoint.open(bent, trust_remote_code=True).weights_id
    other = brings(bent, {"AutoModelForCausalLM": "own.Other"}, code="")
    assert Checkpoint.open(other, trust_remote_code=True).weights_id not in {both, changed, own.weights_id}


def test_an_entry_turns_it_on_and_the_report_says_so(bent, tmp_path):
    setting, store = load_experiment(config_of(tmp_path, bent, trust_remote_code=True)), tmp_path / "store"
    run_benchmark(setting, store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent())
    own = read_results(store)
    assert own["status"].unique().tolist() == ["ok"]
    assert own["model"].unique().tolist() == ["own-code (own code)"]
    assert all(TOLD in json.loads(text) for text in read_variants(store)["warnings_json"])
    paths = write_report(store, tmp_path / "report")
    assert TOLD in paths.html.read_text()
    for path in (paths.html, paths.markdown, paths.latex, paths.csv):
        assert "own-code (own code)" in path.read_text()
    plain = load_experiment(config_of(tmp_path, bent))
    run_benchmark(
        plain, tmp_path / "plain", lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent()
    )
    perplexities = [
        frame.loc[frame["metric"] == "perplexity", "value"]
        for frame in (own, read_results(tmp_path / "plain"))
    ]
    assert len(perplexities[0]) == len(perplexities[1]) == 2
    assert set(perplexities[0]).isdisjoint(perplexities[1])


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (HALVED, "Bent of .* computes other log-probabilities than its blocks one after another"),
        ("raise SystemExit(0)", "the code of .* fails: SystemExit: 0"),
        (CODE.replace("nn.GELU()", "Quits()") + QUITS, "SystemExit: 0"),
        ("import nowhere_at_all", "nowhere_at_all"),
        ("x = (", "the code of .* fails: SyntaxError"),
        (CODE.replace("nn.GELU()", "gone"), "the code of .* fails: NameError: name 'gone' is not defined"),
    ],
)
def test_code_that_fails_or_computes_what_is_not_measured_is_a_failure_of_every_row(
    folder, tmp_path, code, why
):
    config = config_of(tmp_path, brings(folder, OWN, code), trust_remote_code=True)
    store = tmp_path / "store"
    outcome = run_benchmark(
        load_experiment(config), store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent()
    )
    assert outcome.failures == len(read_failures(store))
    assert read_failures(store)["error"].str.contains(why).all()
    assert set(read_results(store)["status"]) == {"incomplete"}


def test_without_the_setting_nothing_is_told_and_the_weights_alone_are_the_model(bent, tmp_path):
    (subject,) = prepare(load_experiment(config_of(tmp_path, bent)))
    assert not subject.checkpoint.trusted
    assert not model_setups((subject,))[subject.name].trust_remote_code


def test_a_worker_that_finds_other_code_refuses(bent, tmp_path):
    setting = load_experiment(config_of(tmp_path, bent, trust_remote_code=True))

    def worker(setups):
        (bent / "own.py").write_text(CODE.replace("GELU", "ReLU"))
        return LocalExecutor(lambda: Worker(setups, 1))

    outcome = run_benchmark(setting, tmp_path / "store", worker, Silent())
    assert outcome.failures
    errors = read_failures(tmp_path / "store")["error"]
    assert errors.str.contains("are not those the run started with").all()


def test_engines_that_would_run_other_code_are_refused(bent, tmp_path):
    config = config_of(tmp_path, bent, trust_remote_code=True)
    with pytest.raises(InputError, match="vLLM would serve it with vLLM's: let engine 'v' be of the kind hf"):
        prepare(load_experiment(config, ["engines.v.kind=vllm"]))


@pytest.mark.parametrize(
    ("named", "code", "why"),
    [
        (
            {},
            CODE,
            "brings no model of its own: the auto_map of its config.json names no AutoModelForCausalLM",
        ),
        ({"AutoModel": "own.Bent"}, CODE, "names no AutoModelForCausalLM"),
        ({"AutoTokenizer": [None, "own.Bent"]}, CODE, "names no AutoModelForCausalLM"),
        (["own.Bent"], CODE, "names no AutoModelForCausalLM"),
        ("own.Bent", CODE, "names no AutoModelForCausalLM"),
        (
            {"AutoModelForCausalLM": "someone/else--own.Bent"},
            CODE,
            r"names code of another repository \('someone/else--own.Bent'\): copy that code",
        ),
        (OWN, "", "names 'own.Bent', but there is no own.py beside it"),
        ({**OWN, "AutoConfig": "b.Config"}, CODE, "names 'b.Config', but there is no b.py beside it"),
        *(
            ({"AutoModelForCausalLM": name}, CODE, "not MODULE.CLASS")
            for name in ("own", "own.a.Bent", "../x.Bent", "a/b.Bent", "/tmp/x.Bent", ["own.Bent"], None, 3)
        ),
        ({"AutoModelForCausalLM": "o" * 5000 + ".Bent"}, CODE, "not MODULE.CLASS"),
    ],
)
def test_what_cannot_run_or_is_not_there_is_refused(folder, tmp_path, named, code, why):
    config = config_of(tmp_path, brings(folder, named, code), trust_remote_code=True)
    with pytest.raises(InputError, match=why):
        prepare(load_experiment(config))


def test_a_streamed_model_runs_no_code_of_its_own(bent, tmp_path):
    with pytest.raises(InputError, match="leave out streamed or trust_remote_code"):
        load_experiment(config_of(tmp_path, bent, trust_remote_code=True, streamed=True))


def test_links_that_lead_nowhere_and_folders_are_no_code(bent):
    before = Checkpoint.open(bent, trust_remote_code=True).weights_id
    (bent / "nowhere.py").symlink_to("missing")
    (bent / "folder.py").mkdir()
    assert Checkpoint.open(bent, trust_remote_code=True).weights_id == before
