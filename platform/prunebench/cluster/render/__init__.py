"""Files for the places that a job is submitted to, rendered from its config and checked. No ray import."""

from typing import Protocol

from prunebench.cluster.job import Job
from prunebench.cluster.render import kuberay, launcher, slurm
from prunebench.config.base import nearest
from prunebench.errors import InputError


class Target(Protocol):
    """What each module here offers."""

    def render(self, job: Job) -> tuple[str, str]:
        """File name and text."""

    def validate(self, text: str) -> None:
        """Raise InputError for a wrong file."""


TARGETS: dict[str, Target] = {"ray": launcher, "kuberay": kuberay, "slurm": slurm}


def rendered(target: str, job: Job) -> dict[str, str]:
    """The files that a target needs for a job.

    Args:
        target: ray (`ray up`), kuberay (`kubectl apply`) or slurm (`sbatch`).
        job: what is to run, and on what.

    Returns:
        File name -> text. Nothing is written.

    Raises:
        InputError: the config lacks what the target needs, or a worker does not fit a node.
    """
    name, text = _module(target).render(job)
    validate(target, text)
    return {name: text}


def validate(target: str, text: str) -> None:
    """Check a file for a target offline: rendered, or written by hand.

    Raises:
        InputError: a key that is unknown, misplaced or out of date (what replaced it is named), or a value
            that the target refuses.
    """
    _module(target).validate(text)


def _module(target: str) -> Target:
    if target not in TARGETS:
        raise InputError(f"nothing is rendered for '{target}': {nearest(target, TARGETS)}")
    return TARGETS[target]
