"""Placement: what workers need of a cluster, compared with what it has."""

from dataclasses import dataclass

from prunebench.errors import ResourceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What the workers need: their number, CPU threads and GPUs each."""

    workers: int
    threads: int
    gpus: float = 0.0

    def check(self, resources: dict[str, float]) -> None:
        """Compare the need with a cluster's resources; Ray itself would wait for ever without a word.

        Raises:
            ResourceError: with the numbers and what to do.
        """
        for kind, need in (("CPU", self.workers * self.threads), ("GPU", self.workers * self.gpus)):
            have = resources.get(kind, 0.0)
            if need > have:
                each = "threads" if kind == "CPU" else "gpus_per_worker"
                raise ResourceError(
                    f"{self.workers} workers need {need:g} {kind}s, but the Ray cluster has {have:g}: "
                    f"lower executor.workers or executor.{each}, or add nodes"
                )
