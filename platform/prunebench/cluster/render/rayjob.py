"""The fields of a RayJob and the rules that KubeRay holds them to.

Source: API reference of KubeRay 1.7.1 (ray.io/v1) and the operator's own validation. Pod templates are
Kubernetes' matter: of them, only what a container asks for and is told is looked at.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from prunebench.config.base import Strict
from prunebench.config.cluster import SECRET

KUBERAY = "1.7.1"
INT32 = 2**31 - 1
Count = Annotated[int, Field(ge=0, le=INT32, strict=True)]
Positive = Annotated[int, Field(ge=1, le=INT32, strict=True)]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
REPLACED = {
    "runtimeEnv": "runtimeEnvYAML, plain YAML in place of base64",
    "rayClusterConfig": "rayClusterSpec",
    "submitterBackoffLimit": "submitterConfig.backoffLimit",
}
"""Keys of a spec that are still copied -> what replaced them."""


class Resources(Strict):
    """What a container gets."""

    limits: dict[str, Quantity | int]
    requests: dict[str, Quantity | int] = Field(default_factory=dict)

    @model_validator(mode="after")
    def gpus_are_limits(self) -> "Resources":
        """Refuse GPUs under another name, or requested without a limit."""
        names = [*self.limits, *self.requests]
        if wrong := [name for name in names if "gpu" in name.lower() and "/" not in name]:
            raise ValueError(f"'{wrong[0]}' is no resource of Kubernetes: write nvidia.com/gpu in limits")
        if missing := [name for name in self.requests if "/" in name and name not in self.limits]:
            raise ValueError(f"{missing[0]} has to stand in limits: Kubernetes takes GPUs from there")
        return self


class Variable(Strict):
    """An environment variable of a container."""

    name: str
    value: str | None = None
    valueFrom: dict[str, Any] | None = None

    @model_validator(mode="after")
    def keeps_secrets(self) -> "Variable":
        """Refuse a secret in plain text."""
        if self.value and SECRET.search(self.name):
            raise ValueError(f"{self.name} looks like a secret in plain text: use valueFrom.secretKeyRef")
        return self


class Loose(BaseModel):
    """Base of parts of Kubernetes' own schema, of which only some fields are looked at."""

    model_config = ConfigDict(extra="allow")


class Container(Loose):
    """A container of a pod."""

    name: str
    image: str
    resources: Resources
    env: list[Variable] = Field(default_factory=list)


class PodSpec(Loose):
    """A pod; the first container runs Ray."""

    containers: list[Container] = Field(min_length=1)


class PodTemplate(Strict):
    """A pod template."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: PodSpec


class Group(Strict):
    """What head and worker groups have in common."""

    rayStartParams: dict[str, str] = Field(default_factory=dict)
    template: PodTemplate
    resources: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    @field_validator("rayStartParams", mode="before")
    @classmethod
    def are_words(cls, params: Any) -> Any:  # noqa: ANN401 (whatever the file holds)
        """Refuse numbers, which Kubernetes refuses."""
        for name, value in params.items() if isinstance(params, dict) else ():
            if not isinstance(value, str):
                raise ValueError(f'{name} has to be text: write "{value}" in quotes')
        return params


class Head(Group):
    """The head."""

    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    headService: dict[str, Any] | None = None
    enableIngress: bool | None = None


class Workers(Group):
    """A worker group."""

    groupName: str
    replicas: Count = 0
    minReplicas: Count = 0
    maxReplicas: Count = INT32
    numOfHosts: Positive = 1
    idleTimeoutSeconds: Count | None = None
    priority: int | None = None
    suspend: bool | None = None
    scaleStrategy: dict[str, Any] | None = None

    @model_validator(mode="after")
    def is_a_range(self) -> "Workers":
        """Refuse replicas outside of their bounds."""
        if not self.minReplicas <= self.replicas <= self.maxReplicas:
            raise ValueError(
                f"replicas has to lie between minReplicas and maxReplicas, "
                f"but {self.minReplicas} <= {self.replicas} <= {self.maxReplicas} does not hold"
            )
        return self


class AuthOptions(Strict):
    """Ray's token authentication; the operator makes the token and keeps it in a secret."""

    mode: Literal["token", "disabled"] = "token"
    secretName: str | None = None
    enableK8sTokenAuth: bool | None = None


class RayCluster(Strict):
    """The cluster that a job runs on."""

    rayVersion: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    authOptions: AuthOptions | None = None
    headGroupSpec: Head
    workerGroupSpecs: list[Workers] = Field(default_factory=list)
    enableInTreeAutoscaling: bool | None = None
    autoscalerOptions: dict[str, Any] | None = None
    gcsFaultToleranceOptions: dict[str, Any] | None = None
    headServiceAnnotations: dict[str, str] | None = None
    managedBy: str | None = None
    suspend: bool | None = None
    networkPolicy: dict[str, Any] | None = None
    tlsOptions: dict[str, Any] | None = None
    upgradeStrategy: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def belongs_here(cls, data: Any) -> Any:  # noqa: ANN401
        """Say where limits and deadlines of the job stand."""
        for key in (
            set(data) & set(Spec.model_fields) - set(cls.model_fields) if isinstance(data, dict) else ()
        ):
            raise ValueError(f"'{key}' is a setting of the job and not of its cluster: move it up to spec")
        return data


class Submitter(Strict):
    """The Kubernetes Job that runs `ray job submit` (submissionMode: K8sJobMode)."""

    backoffLimit: Count = 2


class Spec(Strict):
    """What a RayJob asks for."""

    entrypoint: str = Field(min_length=1)
    rayClusterSpec: RayCluster | None = None
    clusterSelector: dict[str, str] = Field(default_factory=dict)
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = "K8sJobMode"
    submitterConfig: Submitter | None = None
    submitterPodTemplate: PodTemplate | None = None
    jobId: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    runtimeEnvYAML: str = ""
    entrypointNumCpus: float = Field(0, ge=0)
    entrypointNumGpus: float = Field(0, ge=0)
    entrypointResources: str | None = None
    activeDeadlineSeconds: Positive | None = None
    preRunningDeadlineSeconds: Positive | None = None
    backoffLimit: Count = 0
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: Count = 0
    deletionStrategy: dict[str, Any] | None = None
    managedBy: Literal["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"] | None = None
    suspend: bool = False

    @model_validator(mode="before")
    @classmethod
    def is_up_to_date(cls, data: Any) -> Any:  # noqa: ANN401
        """Name what replaced old keys."""
        for key in data if isinstance(data, dict) else ():
            if key in REPLACED:
                raise ValueError(f"'{key}' is no field of ray.io/v1: use {REPLACED[key]}")
        return data

    @field_validator("runtimeEnvYAML")
    @classmethod
    def is_yaml(cls, text: str) -> str:
        """Refuse what is no mapping in YAML, and secrets in it."""
        try:
            env = yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from error
        if not isinstance(env, dict):
            raise ValueError("has to be a mapping in YAML, such as env_vars: {A: b}")
        if secrets := [name for name in env.get("env_vars") or {} if SECRET.search(str(name))]:
            raise ValueError(f"{secrets[0]} looks like a secret in plain text: use secretKeyRef in the pods")
        return text

    @model_validator(mode="after")
    def ends_once(self) -> "Spec":
        """The operator's rules on what goes together, and ours: an attempt is made once, and then resumed."""
        if bool(self.rayClusterSpec) == bool(self.clusterSelector):
            raise ValueError("exactly one of rayClusterSpec and clusterSelector has to be set")
        if self.ttlSecondsAfterFinished and not self.shutdownAfterJobFinishes:
            raise ValueError("ttlSecondsAfterFinished does nothing without shutdownAfterJobFinishes: true")
        if self.suspend and not self.shutdownAfterJobFinishes:
            raise ValueError("suspend needs shutdownAfterJobFinishes: true")
        if self.backoffLimit:
            raise ValueError(
                f"backoffLimit is {self.backoffLimit}: each retry is a new cluster, and a failed unit fails "
                "again: set 0 and apply the job again, which resumes"
            )
        if self.submissionMode == "K8sJobMode" and (self.submitterConfig or Submitter()).backoffLimit:
            raise ValueError(
                "submitterConfig.backoffLimit has to be 0 (the default is 2): a second submitter only reads "
                "logs and exits 0, so that a failed job looks complete"
            )
        if self.submissionMode == "SidecarMode" and (self.submitterConfig or self.submitterPodTemplate):
            raise ValueError("SidecarMode takes neither submitterConfig nor submitterPodTemplate")
        return self


class Metadata(Loose):
    """Name and namespace; the operator adds to the name and needs room."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,45}[a-z0-9])?$")]
    namespace: str = "default"


class RayJob(Strict):
    """The whole file."""

    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: Spec
