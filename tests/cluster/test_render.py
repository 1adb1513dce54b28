"""Files of every target: what is rendered, what is refused, and the files of this repository."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from prunebench.cluster.job import Job
from prunebench.cluster.render import rendered, validate
from prunebench.config.experiment import load_experiment
from prunebench.errors import InputError
from rendering import ROOT, make_job, pinned_ray

EXAMPLE = Path("configs/benchmark/cluster.yaml")
FILES = {
    "ray": "cluster.yaml",
    "kuberay": "configs/cluster/kuberay.yaml",
    "slurm": "configs/cluster/slurm.sh",
}


def test_the_files_of_the_repository_are_those_of_its_example():
    experiment = load_experiment(ROOT / EXAMPLE)
    job = Job(
        entrypoint=("python", "jobs/benchmark.py", str(EXAMPLE), "--store", str(experiment.store)),
        folder=Path("/shared/prunebench"),
        config=EXAMPLE,
        store=experiment.store,
        executor=experiment.executor,
        cluster=experiment.cluster,
        run_id="prunebench-0123456789ab",
        submission_id="prunebench-0123456789ab-1",
        ray_version=pinned_ray(),
        python_version="3.11",
    )
    for target, file in FILES.items():
        assert rendered(target, job) == {Path(file).name: (ROOT / file).read_text()}, file


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "cluster").iterdir()), ids=lambda path: path.name)
def test_every_file_of_configs_cluster_passes_its_check(path):
    target = {"aws": "ray", "kuberay": "kuberay", "slurm": "slurm"}[path.stem]
    validate(target, path.read_text())


def test_rendering_imports_neither_ray_nor_torch():
    code = (
        "import sys; from rendering import make_job; from prunebench.cluster.render import rendered;"
        "[rendered(target, make_job()) for target in ('ray', 'kuberay', 'slurm')];"
        "assert not {'ray', 'torch', 'transformers'} & set(sys.modules)"
    )
    path = f"{ROOT / 'platform'}:{ROOT / 'tests'}"
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, check=True
    )


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'slurm'"):
        rendered("slrum", make_job())


@pytest.mark.parametrize(
    ("node", "executor", "nodes"),
    [
        ({"cpus": 64, "gpus": 8}, {"workers": 32, "threads": 8, "gpus_per_worker": 1}, 4),
        ({"cpus": 64, "gpus": 8}, {"workers": 5, "threads": 8, "gpus_per_worker": 4}, 3),
        ({"cpus": 64, "gpus": 2}, {"workers": 9, "threads": 1, "gpus_per_worker": 0.25}, 2),
        ({"cpus": 16, "gpus": 8}, {"workers": 4, "threads": 8, "gpus_per_worker": 1}, 2),
        ({"cpus": 4}, {"workers": 3, "threads": 2}, 2),
    ],
)
def test_nodes_follow_from_workers_and_the_size_of_a_node(node, executor, nodes):
    assert make_job({"node": node}, executor).nodes == nodes


@pytest.mark.parametrize("executor", [{"threads": 9}, {"gpus_per_worker": 1}, {"gpus_per_worker": 0.5}])
def test_a_worker_that_fits_no_node_is_refused_with_the_numbers(executor):
    with pytest.raises(InputError, match=r"but cluster.node has 8 and 0"):
        rendered("slurm", make_job({"node": {"cpus": 8}}, executor))


# Ray's launcher


def launcher(**changes):
    return yaml.safe_dump({**yaml.safe_load((ROOT / "configs/cluster/aws.yaml").read_text()), **changes})


def test_a_cluster_yaml_holds_the_hosts_and_no_token():
    text = rendered("ray", make_job())["cluster.yaml"]
    data = yaml.safe_load(text)
    assert data["provider"] == {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2"]}
    assert data["max_workers"] == 1
    assert all(
        "RAY_AUTH_MODE=token ray start" in data[f"{kind}_start_ray_commands"][1]
        for kind in ("head", "worker")
    )
    assert f"Ray {pinned_ray()} and Python 3.11" in text


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (make_job({"hosts": None}), "cluster.hosts"),
        (make_job({"node": {"cpus": 2}}, {"workers": 5}), "need 3 nodes, but cluster.hosts names 2"),
    ],
)
def test_too_few_hosts_are_refused(job, words):
    with pytest.raises(InputError, match=words):
        rendered("ray", job)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_workers": 2}, "'min_workers' is gone from Ray's schema: use min_workers of an entry"),
        ({"initial_workers": 2}, "'initial_workers' is gone"),
        (
            {"autoscaling_mode": "default"},
            "'autoscaling_mode' is gone from Ray's schema: use upscaling_speed",
        ),
        ({"target_utilization_fraction": 0.8}, "'target_utilization_fraction' is gone"),
        ({"head_node": {"InstanceType": "m5.large"}}, "'head_node' is gone .* named by head_node_type"),
        ({"worker_nodes": {"InstanceType": "m5.large"}}, "'worker_nodes' is gone"),
        ({"max_worker": 2}, "unknown key 'max_worker': did you mean 'max_workers'?"),
        ({"max_workers": -1}, "max_workers: -1 is less than the minimum of 0"),
        ({"max_workers": 3}, "max_workers is 3, but the types' min_workers are 4"),
        ({"head_node_type": "l40"}, "head_node_type has to be one of head, l40s"),
        ({"available_node_types": {}}, "provider aws needs available_node_types"),
        ({"auth": {"ssh_usr": "ubuntu"}}, "auth: unknown key 'ssh_usr': did you mean 'ssh_user'?"),
        ({"available_node_types": {"a": {"node_config": {}, "resource": {}}}}, "unknown key 'resource'"),
        ({"provider": {"region": "us-west-2"}}, "provider: 'type' is a required property"),
        (
            {"provider": {"type": "local", "head_ip": "10.0.0.1"}},
            "available_node_types is not for provider local",
        ),
    ],
)
def test_keys_that_ray_refuses_are_named(changes, words):
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        validate("ray", launcher(**changes))


def test_a_local_provider_cannot_have_more_workers_than_hosts():
    data = yaml.safe_load(rendered("ray", make_job())["cluster.yaml"])
    with pytest.raises(InputError, match="max_workers is 2, but"):
        validate("ray", yaml.safe_dump({**data, "max_workers": 2}))


@pytest.mark.parametrize("text", ["a: [", "- a", ""])
def test_what_is_no_mapping_is_refused(text):
    for target in ("ray", "kuberay"):
        with pytest.raises(InputError):
            validate(target, text)
