"""A job: what every target (a Ray cluster, KubeRay, Slurm) needs to know of one run. No ray import."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from prunebench.cluster.threads import THREAD_VARIABLES
from prunebench.config.cluster import ClusterEntry
from prunebench.config.executor import ExecutorEntry
from prunebench.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt at a run or search on a cluster."""

    entrypoint: tuple[str, ...]
    """The command as words, unquoted: python jobs/benchmark.py CONFIG --store STORE --set a.b=c. Relative
    paths start from `folder`."""
    folder: Path
    """Where the entrypoint runs: the absolute path of the working directory, with jobs/ in it."""
    config: Path
    """The experiment or search file."""
    overrides: tuple[str, ...] = ()
    """The words a.b=c that replace single settings; the entrypoint holds them already."""
    store: Path
    """Absolute, as the nodes see it."""
    executor: ExecutorEntry
    cluster: ClusterEntry
    run_id: str
    """Of the run, the same for every attempt."""
    submission_id: str
    """Of this attempt."""
    ray_version: str
    python_version: str
    """Of the submitting environment, such as 3.11.9; the nodes need the same minor version."""

    def environment(self, folder: str) -> dict[str, str]:
        """Variables of the driver and the workers, where the working directory is `folder`."""
        given = self.cluster.environment
        path = ":".join(filter(None, (f"{folder}/platform", given.get("PYTHONPATH"))))
        threads = dict.fromkeys(THREAD_VARIABLES, str(self.executor.threads))
        return {**threads, **given, "PYTHONPATH": path}

    @property
    def workers_per_node(self) -> int:
        """How many workers one node of the cluster section holds.

        Raises:
            InputError: not even one.
        """
        node, executor = self.cluster.node, self.executor
        fits = node.cpus // executor.threads
        gpus = executor.gpus_per_worker
        if gpus == "auto":
            gpus = min(1.0, node.gpus)
        if gpus > 1:
            fits = min(fits, node.gpus // ceil(gpus))
        elif gpus > 0:
            fits = min(fits, node.gpus * int(1 / gpus))
        if fits < 1:
            raise InputError(
                f"a worker needs {executor.threads} CPUs and {gpus:g} GPUs, but cluster.node has "
                f"{node.cpus} and {node.gpus}: set cluster.node to the size of a node, or lower "
                "executor.threads or executor.gpus_per_worker"
            )
        return fits

    @property
    def nodes(self) -> int:
        """Nodes that hold all workers.

        Raises:
            InputError: a node does not hold even one, or nothing says how many there are.
        """
        if self.executor.workers == "auto":
            raise InputError(
                "executor.workers is auto, which needs a cluster that is up: write how many workers you want"
            )
        return ceil(self.executor.workers / self.workers_per_node)
