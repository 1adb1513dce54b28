"""cluster.yaml for Ray's cluster launcher: machines that are there (`provider: local`).

The schema is the one that the installed Ray brings (autoscaler/ray-schema.json), read as a file: a check
needs no Ray import.
"""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator, ValidationError

from prunebench.cluster.job import Job
from prunebench.cluster.render.text import dumped, mapping, versions
from prunebench.config.base import nearest
from prunebench.errors import InputError, ResourceError

NODE_TYPES = "available_node_types"
REPLACED = {
    "min_workers": f"min_workers of an entry of {NODE_TYPES} (provider local: the length of worker_ips)",
    "initial_workers": f"min_workers of an entry of {NODE_TYPES}",
    "autoscaling_mode": "upscaling_speed",
    "target_utilization_fraction": "upscaling_speed",
    "head_node": f"node_config of an entry of {NODE_TYPES}, named by head_node_type",
    "worker_nodes": f"node_config of an entry of {NODE_TYPES}",
}
"""Keys of Ray before 2.0 that are still copied -> what replaced them."""


def render(job: Job) -> tuple[str, str]:
    """File name and text.

    Raises:
        InputError: no hosts are named, or too few for the workers.
    """
    hosts = job.cluster.hosts
    if hosts is None:
        raise InputError(
            "a cluster.yaml needs machines: name them in cluster.hosts (head, workers, ssh_user), or start "
            "from configs/cluster/aws.yaml"
        )
    machines = 1 + len(hosts.workers)
    if job.nodes > machines:
        raise InputError(
            f"{job.executor.workers} workers at {job.workers_per_node} a node need {job.nodes} nodes, but "
            f"cluster.hosts names {machines}: add hosts or lower executor.workers"
        )
    auth = {"ssh_user": hosts.ssh_user}
    if hosts.ssh_private_key:
        auth["ssh_private_key"] = hosts.ssh_private_key
    data = {
        "cluster_name": job.cluster.name,
        "max_workers": len(hosts.workers),
        "provider": {"type": "local", "head_ip": hosts.head, "worker_ips": list(hosts.workers)},
        "auth": auth,
        "file_mounts": {"~/.ray/auth_token": "~/.ray/auth_token"},
        "head_start_ray_commands": [
            _started(job, "ray stop"),
            _started(
                job,
                "RAY_AUTH_MODE=token ray start --head --port=6379 "
                "--autoscaling-config=~/ray_bootstrap_config.yaml",
            ),
        ],
        "worker_start_ray_commands": [
            _started(job, "ray stop"),
            _started(job, "RAY_AUTH_MODE=token ray start --address=$RAY_HEAD_IP:6379"),
        ],
    }
    comment = (
        f"Machines that are there, reached by ssh. Every one needs {versions(job)}.\n"
        "Once: ray get-auth-token --generate. Start: ray up cluster.yaml. Forward the dashboard, which only\n"
        "listens on the head itself: ray dashboard cluster.yaml. End: ray down cluster.yaml.\n"
        "`ray stop` ends every Ray of this user on these machines: one cluster a user and machine."
    )
    return "cluster.yaml", dumped(data, comment)


def _started(job: Job, command: str) -> str:
    """Each command has a shell of its own: what sets it up goes before it."""
    return "ulimit -n 65536; " + " && ".join([*job.cluster.setup, command])


def validate(text: str) -> None:
    """Check a cluster.yaml against Ray's schema and the rules that Ray checks beside it.

    Raises:
        InputError: see `prunebench.cluster.render.validate`.
    """
    data = mapping(text, "cluster.yaml")
    if old := [key for key in data if key in REPLACED]:
        lines = [f"'{key}' is gone from Ray's schema: use {REPLACED[key]}" for key in old]
        raise InputError(f"cluster.yaml: {'; '.join(lines)}")
    faults = sorted(
        Draft7Validator(_schema()).iter_errors(data), key=lambda fault: list(map(str, fault.path))
    )
    if faults:
        raise InputError("\n".join(f"cluster.yaml: {_sentence(fault)}" for fault in faults))
    _check_types(data)


def _sentence(fault: ValidationError) -> str:
    place = ".".join(map(str, fault.path)) or "top level"
    # The library leaves open what was checked against what: here both are mappings.
    schema: Any = fault.schema
    given: Any = fault.instance
    if fault.validator == "additionalProperties":
        known = schema.get("properties", {})
        unknown = [key for key in given if key not in known]
        return "; ".join(f"{place}: unknown key '{key}': {nearest(str(key), known)}" for key in unknown)
    return f"{place}: {fault.message}"


def _check_types(data: dict[str, Any]) -> None:
    """What Ray refuses beyond its schema."""
    types = data.get(NODE_TYPES)
    if data["provider"]["type"] == "local":
        if types:
            raise InputError(
                f"cluster.yaml: {NODE_TYPES} is not for provider local, which takes every host of worker_ips"
            )
        if "coordinator_address" not in data["provider"] and "head_ip" not in data["provider"]:
            raise InputError("cluster.yaml: provider local needs head_ip and worker_ips")
        most, hosts = data.get("max_workers"), len(data["provider"].get("worker_ips", []))
        if most is not None and most > hosts:
            raise InputError(f"cluster.yaml: max_workers is {most}, but provider.worker_ips names {hosts}")
        return
    if not types:
        raise InputError(f"cluster.yaml: provider {data['provider']['type']} needs {NODE_TYPES}")
    if data.get("head_node_type") not in types:
        raise InputError(f"cluster.yaml: head_node_type has to be one of {', '.join(types)}")
    least = sum(kind.get("min_workers", 0) for kind in types.values())
    if least > data.get("max_workers", least):
        raise InputError(
            f"cluster.yaml: max_workers is {data['max_workers']}, but the types' min_workers are {least}"
        )


@cache
def _schema() -> dict[str, Any]:
    spec = find_spec("ray")
    if spec is None or not spec.submodule_search_locations:
        raise ResourceError("Ray is not installed: build the environment from requirements.lock")
    folder = Path(spec.submodule_search_locations[0])
    return json.loads((folder / "autoscaler" / "ray-schema.json").read_text())
