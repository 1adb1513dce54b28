"""A RayJob for the KubeRay operator: one cluster for one job, gone when the job is."""

import shlex
from pathlib import PurePosixPath
from typing import Any

from pydantic import ValidationError

from prunebench.cluster.job import Job
from prunebench.cluster.render.rayjob import KUBERAY, RayJob
from prunebench.cluster.render.text import dumped, mapping, versions
from prunebench.config.base import explain
from prunebench.config.cluster import KubeRay
from prunebench.errors import InputError

HEAD_CPUS, HEAD_GIB = 4, 16
"""The driver plans and writes; workers run elsewhere."""
KEPT_S = 600
"""How long a finished job's cluster stays, for its logs."""
GRACE_S = 60
"""More than the 30 s in which a run ends its unit and flushes."""


def render(job: Job) -> tuple[str, str]:
    """File name and text.

    Raises:
        InputError: no image and volume are named, or the store would die with its pod.
    """
    place = job.cluster.kuberay
    if place is None:
        raise InputError(
            "a RayJob needs an image and a shared volume: name them in cluster.kuberay (image, claim, folder)"
        )
    if not PurePosixPath(job.store).is_relative_to(place.mount):
        raise InputError(
            f"the store {job.store} does not lie below {place.mount}, the shared volume of cluster.kuberay, "
            f"and would be gone with its pod: give --store {place.mount}/stores/NAME"
        )
    data = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": job.submission_id, "namespace": place.namespace},
        "spec": _spec(job, place),
    }
    comment = (
        f"For KubeRay 1.6 or newer (fields of {KUBERAY}); the image needs {versions(job)}.\n"
        f"Start: kubectl apply -f kuberay.yaml. To resume, submit the run again: a RayJob runs once.\n"
        "What became of the run says `prunebench status STORE`, not the state of a pod."
    )
    return "kuberay.yaml", dumped(data, comment)


def _spec(job: Job, place: KubeRay) -> dict[str, Any]:
    node = job.cluster.node
    gpus = {"nvidia.com/gpu": node.gpus} if node.gpus else {}
    runtime = {"env_vars": job.environment(place.folder)}
    return {
        "entrypoint": f"cd {shlex.quote(place.folder)} && exec {shlex.join(job.entrypoint)}",
        # The operator asks the head itself: no submitter that starts twice, no second shell that reads words.
        "submissionMode": "HTTPMode",
        "submitterConfig": {"backoffLimit": 0},
        "jobId": job.submission_id,
        "metadata": {"run": job.run_id, "store": str(job.store)},
        "runtimeEnvYAML": dumped(runtime, ""),
        "backoffLimit": 0,
        "activeDeadlineSeconds": round(job.cluster.hours * 3600),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": KEPT_S,
        "rayClusterSpec": {
            "rayVersion": job.ray_version,
            "authOptions": {"mode": "token"},
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
                "template": _pod("ray-head", place, {"cpu": HEAD_CPUS, "memory": f"{HEAD_GIB}Gi"}),
            },
            "workerGroupSpecs": [
                {
                    "groupName": "workers",
                    "replicas": job.nodes,
                    "minReplicas": job.nodes,
                    "maxReplicas": job.nodes,
                    "rayStartParams": {},
                    "template": _pod(
                        "ray-worker", place, {"cpu": node.cpus, "memory": f"{node.memory_gib}Gi", **gpus}
                    ),
                }
            ],
        },
    }


def _pod(name: str, place: KubeRay, limits: dict[str, Any]) -> dict[str, Any]:
    references = {variable: reference.split("/") for variable, reference in sorted(place.secrets.items())}
    container: dict[str, Any] = {
        "name": name,
        "image": place.image,
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": [{"name": "shared", "mountPath": place.mount}],
    }
    if references:
        container["env"] = [
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
            for variable, (secret, key) in references.items()
        ]
    return {
        "spec": {
            # Nothing in the pods talks to Kubernetes.
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [container],
            "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": place.claim}}],
        }
    }


def validate(text: str) -> None:
    """Check a RayJob against KubeRay's fields and rules, and ours on retries and secrets.

    Raises:
        InputError: see `prunebench.cluster.render.validate`.
    """
    data = mapping(text, "kuberay.yaml")
    try:
        RayJob.model_validate(data)
    except ValidationError as error:
        raise explain(error, "kuberay.yaml") from error
