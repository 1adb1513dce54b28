"""The cluster section of an experiment or search file: where a submitted job runs, for every target."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from prunebench.config.base import Strict, holds_password

Label = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")]
"""A name that Kubernetes, Slurm and Ray all take."""
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@%,/+-]*$")]
"""One word that no shell, ssh or Slurm reads as anything else."""
Option = Annotated[str, StringConstraints(pattern=r"^--[a-z][-a-z]*(=[A-Za-z0-9_.:@%,/+&|()*\[\]-]+)?$")]
"""A long option of sbatch with its value, such as --constraint=h100."""
SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_?KEY(_ID)?)(_|$)", re.IGNORECASE
)
VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def _absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("write an absolute path: it has to mean the same on every node")
    return path


def _one_line(text: str) -> str:
    if "\n" in text or "\0" in text:
        raise ValueError("write one line")
    return text


AbsolutePath = Annotated[str, AfterValidator(_one_line), AfterValidator(_absolute)]
Line = Annotated[str, AfterValidator(_one_line)]


class NodeSize(Strict):
    """What one node (or pod) has, or what of it a job may take."""

    cpus: int = Field(8, ge=1)
    gpus: int = Field(0, ge=0)
    memory_gib: int = Field(32, ge=1)


class Hosts(Strict):
    """Machines that are there and reached by ssh: for Ray's cluster launcher."""

    head: Word
    """Name or IP address of the head."""
    workers: tuple[Word, ...] = ()
    ssh_user: Word
    ssh_private_key: Line | None = None
    """Path of the key on the machine that runs `ray up`; ssh's own default where it is not given."""


class KubeRay(Strict):
    """A Kubernetes cluster with the KubeRay operator."""

    image: Line
    """Holds this package, Python and Ray of the submitting environment's versions."""
    namespace: Label = "default"
    claim: Label
    """A PersistentVolumeClaim that many nodes may write (ReadWriteMany)."""
    mount: AbsolutePath = "/shared"
    """Where pods see it: store, models and caches lie below."""
    folder: AbsolutePath
    """The working directory (jobs/, configs/) as pods see it: in the image, or below `mount`."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Environment variable -> SECRET/KEY of a Kubernetes secret; the value stays there."""

    @field_validator("secrets")
    @classmethod
    def name_a_key(cls, secrets: dict[str, str]) -> dict[str, str]:
        """Refuse anything but SECRET/KEY, in particular the secret itself."""
        for variable, reference in secrets.items():
            if not VARIABLE.match(variable):
                raise ValueError(f"'{variable}' is not the name of an environment variable")
            if not re.fullmatch(r"[a-z0-9][-a-z0-9.]*/[-._a-zA-Z0-9]+", reference):
                raise ValueError(
                    f"{variable}: write SECRET/KEY, the name of a Kubernetes secret and of a key in it, "
                    "never the value"
                )
        return secrets


class Slurm(Strict):
    """A Slurm cluster with a file system that all nodes share."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    options: tuple[Option, ...] = ()
    """Further options of sbatch, such as --constraint=h100."""


class ClusterEntry(Strict):
    """Where a submitted job runs. Only `prunebench submit` reads it; no result depends on it."""

    name: Label = "prunebench"
    node: NodeSize = NodeSize()
    """A node that workers run on; from it and `executor` follows the number of nodes."""
    hours: float = Field(24, ge=0.25, le=24 * 365)
    """The job's time limit; the same command resumes what it cut off."""
    setup: tuple[Line, ...] = ()
    """Shell lines that run first on every node: `module load cuda`, `source /shared/venv/bin/activate`."""
    environment: dict[str, Line] = Field(default_factory=dict)
    """Environment variables of the job, such as HF_HOME and PRUNEBENCH_CACHE on a shared file system."""
    hosts: Hosts | None = None
    kuberay: KubeRay | None = None
    slurm: Slurm = Slurm()

    @field_validator("setup")
    @classmethod
    def sets_no_secret(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse lines that give a secret its value; what they read from a file (`$(...)`) is none."""
        for number, line in enumerate(lines):
            given = re.findall(r"\b([A-Za-z_]\w*)=(?![\"']?\$)[\"']?[^\s\"']", line)
            if holds_password(line) or any(map(SECRET.search, given)):
                raise ValueError(
                    f"line {number} holds a secret, and configs are kept with every run: let it read a file, "
                    'as in export HF_TOKEN="$(cat ~/.hf)"'
                )
        return lines

    @field_validator("environment")
    @classmethod
    def holds_no_secret(cls, environment: dict[str, str]) -> dict[str, str]:
        """Refuse secrets: the section is stored with the run and lies in rendered files."""
        for variable, value in environment.items():
            if not VARIABLE.match(variable):
                raise ValueError(f"'{variable}' is not the name of an environment variable")
            if SECRET.search(variable) or holds_password(value):
                raise ValueError(
                    f"{variable} looks like a secret or holds one, and configs are kept with every run: "
                    "export it on the nodes, or name a Kubernetes secret in cluster.kuberay.secrets"
                )
        return environment
