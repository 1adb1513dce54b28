"""Fixtures: experiments on the tiny llama, and the store of an undisturbed run."""

import os
from pathlib import Path

import pytest
import yaml

METHODS = [
    {"method": "shortgpt"},
    {"method": "llm_streamline"},
    {"method": "lorp"},
    {"method": "wrp"},
    {"method": "simdiff_mssd", "probe": "alpha"},
    {"method": "simdiff_masd", "probe": "alpha", "params": {"alpha": "exact"}},
    {"method": "laco", "probe": "merge"},
    {"method": "laco", "probe": "merge", "params": {"merge_rule": "rdsc"}},
    {"method": "layertrim"},
    {"method": "last_n"},
    {"method": "random"},
]


def settings(model: Path) -> dict:
    return {
        "models": [{"path": str(model), "dtype": "float32"}],
        "calibrations": {"default": "builtin:pydoc:calibration?samples=6&length=64"},
        "probes": {
            "alpha": "builtin:pydoc:alpha?samples=3&length=32",
            "merge": "builtin:pydoc:merge?samples=3&length=32",
        },
        "methods": METHODS,
        "budgets": [1, 2],
        "tasks": {
            "ppl": {"kind": "perplexity", "text": "builtin:pydoc:perplexity?samples=6&length=64"},
            "passages": {"kind": "choice", "text": "builtin:pydoc:choice", "items": 4},
        },
        "store": "store",
    }


@pytest.fixture
def write_config(tmp_path, tiny):
    """Writes an experiment on the tiny llama; keyword arguments replace settings."""

    def write(name="experiment.yaml", **changes):
        path = tmp_path / name
        path.write_text(yaml.safe_dump({**settings(tiny("llama")), **changes}))
        return path

    return write


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tiny):
    """The config and the store of an undisturbed run in this process."""
    from prunebench.config.experiment import load_experiment
    from prunebench.evaluation.worker import Worker
    from prunebench.pipeline.benchmark import run_benchmark
    from prunebench.pipeline.executor import LocalExecutor
    from prunebench.pipeline.progress import Silent

    folder = tmp_path_factory.mktemp("finished")
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(settings(tiny("llama"))))
    outcome = run_benchmark(
        load_experiment(path),
        folder / "store",
        lambda setups: LocalExecutor(lambda: Worker(setups, 1)),
        Silent(),
    )
    assert outcome.failures == 0
    return path, folder / "store"


@pytest.fixture(scope="session")
def ray_cluster():
    """Address of one local cluster for the session; its workers can import what lies beside this file."""
    import ray

    from prunebench.cluster.connect import connect

    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    connect(None, cpus=3, environment={"PYTHONPATH": path})
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
