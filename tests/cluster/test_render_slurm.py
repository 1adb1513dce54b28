"""Slurm scripts: what sbatch reads, and what the shell does beside stand-ins for Slurm and Ray."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from prunebench.cluster.render import rendered, validate
from prunebench.cluster.render.slurm import PORT_BLOCKS
from prunebench.errors import InputError
from rendering import make_job

ODD = "a 'quoted' $folder; with `odd` names"
PROGRAMS = {
    # Runs the one task of a one-node job.
    "srun": 'while [[ $1 == --* ]]; do shift; done; "$@"',
    # Starts nothing; runs the command as `ray symmetric-run` does.
    "ray": 'echo "ray $*" >> "$SEEN"; [[ $1 == get-auth-token ]] && exit; '
    'while [[ $1 != -- ]]; do shift; done; shift; "$@"',
    "scontrol": 'echo "scontrol $*" >> "$SEEN"',
}


def script(job):
    return rendered("slurm", job)["slurm.sh"]


def options(text):
    return re.findall(r"^#SBATCH (\S+)$", text, re.MULTILINE)


def test_sbatch_reads_the_size_the_limit_and_the_signal():
    slurm = {"partition": "gpu", "account": "me", "options": ["--constraint=h100"]}
    cluster = {"node": {"cpus": 32, "gpus": 4}, "hours": 25.5, "slurm": slurm}
    text = script(make_job(cluster, {"workers": 9, "threads": 8, "gpus_per_worker": 1}))
    assert options(text) == [
        "--job-name=prunebench",
        "--partition=gpu",
        "--account=me",
        "--nodes=3",
        "--ntasks-per-node=1",
        "--cpus-per-task=32",
        "--gpus-per-node=4",
        "--exclusive",
        "--mem=0",
        "--time=1-01:30:00",
        "--signal=B:USR1@240",
        "--requeue",
        "--open-mode=append",
        "--output=%x-%j.log",
        "--constraint=h100",
    ]
    assert "--min-nodes=3" in text
    assert "--num-cpus=32 --num-gpus=4" in text


def test_no_gpus_are_asked_for_where_nodes_have_none():
    text = script(make_job())
    assert "--gpus-per-node" not in text
    assert "--num-gpus=0" in text


def test_jobs_have_ports_of_their_own():
    """Beside each other, for as many job ids as there are blocks; below what Linux gives out itself."""
    (line,) = re.findall(r"^port=.*$", script(make_job()), re.MULTILINE)
    ids = " ".join(str(7_000_000 + n) for n in range(PORT_BLOCKS))
    loop = f"for SLURM_JOB_ID in {ids}; do {line}; echo $port; done"
    ports = [int(port) for port in subprocess.check_output(["bash", "-c", loop], text=True).split()]
    assert len(set(ports)) == PORT_BLOCKS
    assert all(port % 10 == 0 for port in ports)
    assert min(ports) == 20000
    assert max(ports) + 9 < 32768
    given = re.findall(r"--([a-z-]+-port)=\$\(\( port \+ (\d) \)\)", script(make_job()))
    assert len(given) == len({offset for _, offset in given} - {"0"}) == 8


class Allocation:
    """A stand-in for a one-node job: starts its script, and keeps what programs were told."""

    def __init__(self, folder):
        self.root, self.folder, self.seen = folder, folder / ODD, folder / "seen"
        self.number = str(900_000_000 + os.getpid())
        self.temp = Path(f"/tmp/ray-{self.number}")
        self.folder.mkdir()
        (folder / "bin").mkdir()
        for name, body in PROGRAMS.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
            (folder / "bin" / name).chmod(0o755)

    def start(self, program, *words):
        setup = [f"export PATH={self.root}/bin:$PATH"]
        job = make_job({"setup": setup}, folder=self.folder, entrypoint=("bash", "-c", program, *words))
        file = self.root / "slurm.sh"
        file.write_text(script(job))
        environment = {**os.environ, "SLURM_JOB_ID": self.number, "SEEN": str(self.seen)}
        return subprocess.Popen(["bash", file], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def slurm(tmp_path):
    return Allocation(tmp_path)


def test_the_driver_gets_its_words_its_folder_and_its_environment(slurm):
    words = ["a b", "it's", '"$HOME"', "`id`; #"]
    process = slurm.start(
        'pwd; echo "$OMP_NUM_THREADS $RAY_AUTH_MODE"; printf "%s\\n" "$0" "$@"; exit 3', *words
    )
    out, _ = process.communicate(timeout=60)
    assert out.splitlines() == [str(slurm.folder), "1 token", *words]
    assert process.returncode == 3
    assert not slurm.temp.exists()
    token, run = slurm.seen.read_text().splitlines()
    assert token == "ray get-auth-token --generate"
    assert f"--temp-dir={slurm.temp} " in run


@pytest.mark.parametrize(("sent", "requeued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_signal_ends_the_driver_and_the_time_limit_queues_the_job_again(slurm, sent, requeued):
    process = slurm.start('trap "echo flushed; exit 130" TERM; echo ready; while :; do sleep 0.1; done')
    assert process.stdout.readline() == "ready\n"
    process.send_signal(sent)
    out, _ = process.communicate(timeout=60)
    assert out == "flushed\n"
    assert process.returncode == 130
    assert (f"scontrol requeue {slurm.number}" in slurm.seen.read_text()) == requeued


@pytest.mark.parametrize(("code", "requeued"), [(0, False), (2, False), (3, False), (4, False), (15, True)])
def test_only_a_run_that_was_cut_off_is_queued_again(slurm, code, requeued):
    process = slurm.start(f'trap "exit {code}" TERM; echo ready; while :; do sleep 0.1; done')
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert ("requeue" in slurm.seen.read_text()) == requeued


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("set -e\n", "if true; then\n", "no valid shell script"),
        ("#SBATCH --ntasks-per-node=1", "#SBATCH --ntask-per-node=1", "unknown option '--ntask-per-node'"),
        ("#SBATCH --ntasks-per-node=1", "#SBATCH --ntasks-per-node=8", "each node starts one Ray"),
        ("#SBATCH --nodes=1\n", "", "--nodes is missing"),
        ("#SBATCH --nodes=1", "#SBATCH -N 1", "write one long option a line"),
        ("#SBATCH --time=1-00:00:00\n", "", "--time is missing"),
        ("B:USR1@240", "TERM@240", "it goes to Ray itself"),
        ("set -e\n", "set -e\n#SBATCH --mem=1G\n", "sbatch reads no #SBATCH after the first command"),
        ("--min-nodes=1", "--head", "takes no --head"),
        ("--min-nodes=1", "--port=6379", "takes no --port"),
        ("--min-nodes=1", "", "needs --min-nodes"),
        ("--temp-dir", "--tmp-dir", "needs --temp-dir"),
        ("ray symmetric-run", "ray start", "there is no `ray symmetric-run"),
    ],
)
def test_scripts_that_would_fail_in_the_queue_are_refused(old, new, words):
    text = script(make_job())
    assert old in text
    with pytest.raises(InputError) as caught:
        validate("slurm", text.replace(old, new))
    assert words in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_flag_of_ray_is_one_that_the_pinned_ray_has():
    """`ray symmetric-run` hands on what it does not know, and `ray start` would end the job with it."""
    from ray.scripts.scripts import start
    from ray.scripts.symmetric_run import symmetric_run

    cluster = {"node": {"cpus": 32, "gpus": 4, "memory_gib": 64}, "slurm": {"partition": "gpu"}}
    text = script(make_job(cluster, {"workers": 9, "threads": 8, "gpus_per_worker": 1}))
    (called,) = re.findall(r"ray symmetric-run (.*?) -- ", text.replace("\\\n", " "), re.DOTALL)
    given = set(re.findall(r"(?<!\S)--[a-z-]+", called))
    known = {
        option for command in (start, symmetric_run) for param in command.params for option in param.opts
    }
    assert {"--address", "--min-nodes", "--num-cpus", "--num-gpus"} <= given <= known
