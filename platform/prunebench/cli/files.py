"""Files of a target: written, and handed to the program that starts them."""

import json
import platform
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from prunebench.cli.app import say, show, show_json
from prunebench.errors import InputError, ResourceError

if TYPE_CHECKING:
    from prunebench.cluster.submission import Submission
    from prunebench.cluster.working_dir import Content
    from prunebench.config.experiment import Setting


class Target(StrEnum):
    """Where a job goes."""

    RAY = "ray"
    KUBERAY = "kuberay"
    SLURM = "slurm"
    LOCAL = "local"


SENDERS = {Target.SLURM: ("sbatch",), Target.KUBERAY: ("kubectl", "apply", "-f")}
"""What takes a rendered file."""
ENDED = ("Complete", "Failed", "ValidationFailed")
"""States of a RayJob that come to nothing more."""


def render(
    to: Target,
    asked: "Submission",
    setting: "Setting",
    config: Path,
    content: "Content",
    out: Path,
    *,
    only: bool,
    as_json: bool,
) -> None:
    """Write a target's files with what the job runs beside them, and hand them over unless told not to."""
    from prunebench.cluster.job import Job
    from prunebench.cluster.pins import pinned_ray
    from prunebench.cluster.render import rendered
    from prunebench.cluster.working_dir import write_folder

    # Without its program nothing is handed over, and nothing can be known of earlier attempts.
    reachable = not only and shutil.which(SENDERS[to][0]) is not None
    attempt = next_attempt(to, asked.run_id, setting) if reachable else 1
    folder = out.resolve() / "job"
    job = Job(
        entrypoint=asked.words,
        folder=folder,
        config=config,
        overrides=asked.overrides,
        store=Path(asked.store),
        executor=setting.executor,
        cluster=setting.cluster,
        run_id=asked.run_id,
        submission_id=f"{asked.run_id}-{attempt}",
        ray_version=pinned_ray(),
        python_version=platform.python_version(),
    )
    files = rendered(to.value, job)
    if to != Target.RAY:
        write_folder(content, folder)
    write_folder({name: text.encode() for name, text in files.items()}, out)
    written = [out / name for name in files]
    if as_json:
        show_json({"run_id": asked.run_id, "files": [str(file) for file in written]})
    else:
        show("\n".join(map(str, written)))
    if to == Target.KUBERAY and setting.cluster.kuberay is not None:
        say(f"what the pods hold at {setting.cluster.kuberay.folder} has to be what is in {folder}")
    if not only:
        hand_over(to, written, asked.run_id)


def next_attempt(to: Target, run_id: str, setting: "Setting") -> int:
    """The number of a run's next attempt.

    Raises:
        InputError: the run is queued or running: it is never doubled.
        ResourceError: the cluster does not answer.
    """
    from prunebench.cluster.submission import attempt_of

    if to == Target.SLURM:
        lines = told(["squeue", "--me", "--noheader", "--format=%i %k"]).splitlines()
        queued = [line.split()[0] for line in lines if line.split()[1:] == [run_id]]
        states = {f"{run_id}-0": f"job {number} of Slurm" for number in queued}
    else:
        place = setting.cluster.kuberay
        namespace = [] if place is None else ["--namespace", place.namespace]
        found = json.loads(told(["kubectl", "get", "rayjobs", *namespace, "--output", "json"]))["items"]
        states = {
            item["metadata"]["name"]: item.get("status", {}).get("jobDeploymentStatus", "new")
            for item in found
        }
    for name, state in states.items():
        if name.startswith(f"{run_id}-") and state not in ENDED:
            raise InputError(f"this run is already there: {name}, {state}; wait for it, or end it first")
    return attempt_of(run_id, list(states)) + 1


def told(command: list[str]) -> str:
    """Standard output of a program.

    Raises:
        ResourceError: it is not here, or it failed.
    """
    if shutil.which(command[0]) is None:
        raise ResourceError(f"this machine has no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ResourceError(f"`{' '.join(command)}` ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def hand_over(to: Target, written: list[Path], run_id: str) -> None:
    """Give rendered files to the program that starts them.

    Raises:
        ResourceError: it is not here, or it failed.
    """
    # By its comment the run is found again in the queue.
    sender = [*SENDERS[to], *([f"--comment={run_id}"] if to == Target.SLURM else [])]
    if shutil.which(sender[0]) is None:
        raise ResourceError(
            f"this machine has no {sender[0]}: where it is, run {' '.join(sender)} {written[0]} yourself"
        )
    for file in written:
        done = subprocess.run([*sender, str(file)], check=False)
        if done.returncode != 0:
            raise ResourceError(f"{' '.join(sender)} {file} ended with code {done.returncode}")
