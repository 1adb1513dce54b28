"""RayJobs: what is rendered, and the fields and rules that are refused offline."""

import copy
import shlex
from pathlib import Path

import pytest
import yaml

from prunebench.cluster.render import rendered, validate
from prunebench.errors import InputError
from rendering import CLUSTER, make_job

GPU = {"node": {"cpus": 16, "gpus": 2, "memory_gib": 64}}


def rayjob(job=None):
    return yaml.safe_load(rendered("kuberay", job or make_job())["kuberay.yaml"])


def test_an_attempt_is_made_once_and_its_cluster_goes():
    spec = rayjob(make_job({"hours": 2.5}))["spec"]
    assert spec["submissionMode"] == "HTTPMode"
    assert (spec["backoffLimit"], spec["submitterConfig"]) == (0, {"backoffLimit": 0})
    assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"]) == (True, 600)
    assert spec["activeDeadlineSeconds"] == 9000


def test_workers_get_what_the_config_says_and_the_head_has_none():
    cluster = rayjob(make_job(GPU, {"workers": 5, "threads": 8, "gpus_per_worker": 1}))["spec"][
        "rayClusterSpec"
    ]
    (group,) = cluster["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (3, 3, 3)
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": 16, "memory": "64Gi", "nvidia.com/gpu": 2}
    assert container["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
    head = cluster["headGroupSpec"]
    assert head["rayStartParams"] == {"num-cpus": "0", "num-gpus": "0"}
    assert "nvidia.com/gpu" not in head["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert cluster["authOptions"] == {"mode": "token"}


def test_secrets_are_references_in_every_pod():
    kuberay = {**CLUSTER["kuberay"], "secrets": {"HF_TOKEN": "hub/token"}}
    cluster = rayjob(make_job({"kuberay": kuberay}))["spec"]["rayClusterSpec"]
    reference = {"secretKeyRef": {"name": "hub", "key": "token"}}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert container["env"] == [{"name": "HF_TOKEN", "valueFrom": reference}]


def test_the_runtime_environment_fixes_threads_and_the_path():
    job = make_job({"environment": {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "/x"}}, {"threads": 4})
    env = yaml.safe_load(rayjob(job)["spec"]["runtimeEnvYAML"])["env_vars"]
    assert env == {
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "4",
        "OPENBLAS_NUM_THREADS": "4",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": "/opt/prunebench/platform:/x",
    }


def test_words_of_the_command_stay_words():
    words = ("python", "jobs/benchmark.py", "a b/it's.yaml", "--set", "a=$(rm -rf x); `y`\n#")
    entrypoint = rayjob(make_job(entrypoint=words))["spec"]["entrypoint"]
    start, _, command = entrypoint.partition(" && exec ")
    assert start == "cd /opt/prunebench"
    assert shlex.split(command) == list(words)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (make_job({"kuberay": None}), "name them in cluster.kuberay"),
        (make_job(store=Path("/home/me/store")), "does not lie below /shared"),
        (make_job(submission_id="p" * 48), "metadata.name"),
    ],
)
def test_what_a_rayjob_lacks_is_named(job, words):
    with pytest.raises(InputError, match=words):
        rendered("kuberay", job)


def head(data):
    return data["spec"]["rayClusterSpec"]["headGroupSpec"]


def container(data):
    return head(data)["template"]["spec"]["containers"][0]


CHANGES = [
    (lambda d: d.update(apiVersion="ray.io/v1alpha1"), "apiVersion"),
    (lambda d: d.update(kind="RayCluster"), "kind"),
    (lambda d: d["spec"].update(entryPoint="x"), "unknown key 'entryPoint': did you mean 'entrypoint'?"),
    (lambda d: d["spec"].update(runtimeEnv="eyJh"), "use runtimeEnvYAML"),
    (lambda d: d["spec"].update(runtimeEnvYaml="a: b"), "did you mean 'runtimeEnvYAML'?"),
    (lambda d: d["spec"].update(runtimeEnvYAML="a: ["), "not valid YAML"),
    (lambda d: d["spec"].update(runtimeEnvYAML="env_vars: {HF_TOKEN: x}"), "HF_TOKEN looks like a secret"),
    (lambda d: d["spec"].update(backoffLimit=3), "each retry is a new cluster"),
    (lambda d: d["spec"]["rayClusterSpec"].update(backoffLimit=0), "move it up to spec"),
    (lambda d: d["spec"].update(submitterBackoffLimit=0), "use submitterConfig.backoffLimit"),
    (
        lambda d: d["spec"].update(submissionMode="K8sJobMode", submitterConfig=None),
        "a failed job looks complete",
    ),
    (lambda d: d["spec"].update(submissionMode="SidecarMode"), "SidecarMode takes neither"),
    (lambda d: d["spec"].update(submissionMode="HttpMode"), "submissionMode"),
    (lambda d: d["spec"].update(shutdownAfterJobFinishes=False), "without shutdownAfterJobFinishes"),
    (lambda d: d["spec"].update(activeDeadlineSeconds=0), "activeDeadlineSeconds"),
    (lambda d: d["spec"].update(activeDeadlineSeconds="3600"), "activeDeadlineSeconds"),
    (lambda d: d["spec"].update(clusterSelector={"ray.io/cluster": "a"}), "exactly one of"),
    (lambda d: d["spec"].update(rayClusterSpec=None), "exactly one of"),
    (lambda d: d["spec"]["rayClusterSpec"].pop("rayVersion"), "rayVersion"),
    (lambda d: d["spec"]["rayClusterSpec"].update(rayVersion="latest"), "rayVersion"),
    (lambda d: head(d).update(replicas=1), "unknown key 'replicas'"),
    (lambda d: head(d)["rayStartParams"].update({"num-cpus": 0}), 'write "0" in quotes'),
    (lambda d: head(d)["template"]["spec"].update(containers=[]), "containers"),
    (lambda d: container(d)["resources"]["limits"].update(gpu=1), "write nvidia.com/gpu in limits"),
    (lambda d: container(d)["resources"]["requests"].update({"nvidia.com/gpu": 1}), "has to stand in limits"),
    (lambda d: container(d)["resources"].update(limit={}), "unknown key 'limit'"),
    (lambda d: container(d)["resources"]["limits"].update(memory="16 GB"), "memory"),
    (lambda d: container(d).update(env=[{"name": "HF_TOKEN", "value": "hf_x"}]), "secretKeyRef"),
    (lambda d: d["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].update(minReplicas=9), "minReplicas"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_fields_that_kuberay_refuses_are_named(change, words):
    data = copy.deepcopy(rayjob())
    change(data)
    with pytest.raises(InputError) as caught:
        validate("kuberay", yaml.safe_dump(data))
    assert words in str(caught.value)
