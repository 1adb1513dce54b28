"""A job as the tests of rendered files change it."""

import tomllib
from pathlib import Path
from typing import Any

from prunebench.cluster.job import Job
from prunebench.config.cluster import ClusterEntry
from prunebench.config.executor import ExecutorEntry

ROOT = Path(__file__).parents[1]
CLUSTER: dict[str, Any] = {
    "hosts": {"head": "10.0.0.1", "workers": ["10.0.0.2"], "ssh_user": "ray"},
    "kuberay": {"image": "example.org/prunebench:1", "claim": "shared", "folder": "/opt/prunebench"},
}


def pinned_ray():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [package for package in project["dependencies"] if package.startswith("ray[")]
    return pin.partition("==")[2]


def make_job(cluster=None, executor=None, **fields):
    given: dict[str, Any] = {
        "entrypoint": ("python", "jobs/benchmark.py", "configs/a.yaml", "--store", "/shared/s"),
        "folder": Path("/shared/prunebench"),
        "config": Path("configs/a.yaml"),
        "store": Path("/shared/s"),
        "executor": ExecutorEntry.model_validate({"kind": "ray", **(executor or {})}),
        "cluster": ClusterEntry.model_validate({**CLUSTER, **(cluster or {})}),
        "run_id": "prunebench-0123456789ab",
        "submission_id": "prunebench-0123456789ab-1",
        "ray_version": pinned_ray(),
        "python_version": "3.11.9",
    }
    return Job(**{**given, **fields})
