"""Files of a target: written, and handed to the program that starts them."""

import platform
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from prunebench.cli.app import say, show, show_json
from prunebench.errors import ResourceError

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
        submission_id=f"{asked.run_id}-1",
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
        hand_over(to, written)


def hand_over(to: Target, written: list[Path]) -> None:
    """Give rendered files to the program that starts them.

    Raises:
        ResourceError: it is not here, or it failed.
    """
    sender = SENDERS[to]
    if shutil.which(sender[0]) is None:
        raise ResourceError(
            f"this machine has no {sender[0]}: where it is, run {' '.join(sender)} {written[0]} yourself"
        )
    for file in written:
        done = subprocess.run([*sender, str(file)], check=False)
        if done.returncode != 0:
            raise ResourceError(f"{' '.join(sender)} {file} ended with code {done.returncode}")
