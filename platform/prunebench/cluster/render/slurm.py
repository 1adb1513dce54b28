"""A script for sbatch: Ray on all nodes of one job by `ray symmetric-run`, the driver on the first."""

import re
import shlex
import subprocess

from jinja2 import Environment, PackageLoader, StrictUndefined

from prunebench.cluster.job import Job
from prunebench.cluster.render.text import versions
from prunebench.config.base import nearest
from prunebench.errors import InputError

PORT_BLOCKS = (32768 - 20000) // 10
"""Blocks of ten ports between the ports of Ray's workers and those that Linux gives out itself."""
NOTICE_S = 240
"""From the signal to the time limit: a run needs at most 30 s, other nodes 60 s to miss the head, `ray stop`
16 s."""
OPTION_WORDS = (
    "account acctg-freq array begin chdir cluster-constraint clusters comment constraint container core-spec "
    "cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline dependency distribution error exclude "
    "exclusive export gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags "
    "hint hold input job-name kill-on-invalid-dep licenses mail-type mail-user mem mem-bind mem-per-cpu "
    "mem-per-gpu mincpus network nice nodefile nodelist nodes no-requeue ntasks ntasks-per-core "
    "ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output overcommit parsable partition power "
    "prefer priority profile qos quiet reboot requeue reservation signal sockets-per-node spread-job "
    "switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid use-min-nodes "
    "verbose wait wait-all-nodes wckey wrap"
)
OPTIONS = frozenset(OPTION_WORDS.split())
"""Long options of sbatch 24.05."""
RESERVED = {
    "--head": "symmetric-run starts the head itself",
    "--block": "symmetric-run waits itself",
    "--port": "--address names the port",
    "--node-ip-address": "--address names the head",
}


def render(job: Job) -> tuple[str, str]:
    """File name and text.

    Raises:
        InputError: a worker does not fit a node.
    """
    node = job.cluster.node
    templates = Environment(
        loader=PackageLoader("prunebench.cluster", "render"),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
    text = templates.get_template("slurm.sh.j2").render(
        versions=versions(job),
        options=_options(job),
        setup=job.cluster.setup,
        folder=shlex.quote(str(job.folder)),
        environment=[(name, shlex.quote(value)) for name, value in job.environment(str(job.folder)).items()],
        blocks=PORT_BLOCKS,
        nodes=job.nodes,
        cpus=node.cpus,
        gpus=node.gpus,
        gpu_option=f" --gpus-per-node={node.gpus}" if node.gpus else "",
        command=shlex.join(job.entrypoint),
    )
    return "slurm.sh", text


def _options(job: Job) -> list[str]:
    cluster = job.cluster
    days, seconds = divmod(round(cluster.hours * 3600), 86400)
    limit = f"{days}-{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    chosen = {name: getattr(cluster.slurm, name) for name in ("partition", "account", "qos")}
    return [
        f"--job-name={cluster.name}",
        *(f"--{name}={value}" for name, value in chosen.items() if value),
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cluster.node.cpus}",
        *([f"--gpus-per-node={cluster.node.gpus}"] if cluster.node.gpus else []),
        "--exclusive",
        "--mem=0",
        f"--time={limit}",
        f"--signal=B:USR1@{NOTICE_S}",
        "--requeue",
        "--open-mode=append",
        "--output=%x-%j.log",
        *cluster.slurm.options,
    ]


def validate(text: str) -> None:
    """Check a script: its syntax by bash, its #SBATCH lines, and what symmetric-run is given.

    Raises:
        InputError: see `prunebench.cluster.render.validate`.
    """
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if parsed.returncode:
        raise InputError(f"slurm.sh is no valid shell script: {' '.join(parsed.stderr.split())}")
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if line and not line.startswith("#")), len(lines))
    options = {}
    for number, line in enumerate(lines):
        if not line.startswith("#SBATCH"):
            continue
        if number > first:
            raise InputError(f"slurm.sh, line {number + 1}: sbatch reads no #SBATCH after the first command")
        options |= _option(line, number + 1)
    _check_options(options)
    _check_run(text)


def _option(line: str, number: int) -> dict[str, str]:
    found = re.fullmatch(r"#SBATCH\s+--([a-z-]+)(?:[= ](\S+))?(\s+#.*)?\s*", line)
    if found is None:
        raise InputError(f"slurm.sh, line {number}: write one long option a line: #SBATCH --name=value")
    name, value = found[1], found[2] or ""
    if name not in OPTIONS:
        raise InputError(f"slurm.sh, line {number}: unknown option '--{name}': {nearest(name, OPTIONS)}")
    return {name: value}


def _check_options(options: dict[str, str]) -> None:
    for name in ("nodes", "time"):
        if name not in options:
            raise InputError(f"slurm.sh: --{name} is missing")
    if options.get("ntasks-per-node") != "1":
        raise InputError("slurm.sh: --ntasks-per-node has to be 1: each node starts one Ray")
    if not re.fullmatch(r"B:USR1@[0-9]+", options.get("signal", "")):
        raise InputError(
            f"slurm.sh: --signal has to be B:USR1@{NOTICE_S}: without B: it goes to Ray itself, and without "
            "it the time limit kills the driver"
        )


def _check_run(text: str) -> None:
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = re.search(r"ray symmetric-run\s(.*?)\s--\s", code, re.DOTALL)
    if found is None:
        raise InputError("slurm.sh: there is no `ray symmetric-run OPTIONS -- COMMAND`")
    given = {word.split("=")[0] for word in found[1].split()}
    if wrong := sorted(given & RESERVED.keys()):
        raise InputError(f"slurm.sh: ray symmetric-run takes no {wrong[0]}: {RESERVED[wrong[0]]}")
    if missing := sorted({"--address", "--min-nodes", "--temp-dir"} - given):
        raise InputError(f"slurm.sh: ray symmetric-run needs {missing[0]}")
