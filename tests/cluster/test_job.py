"""`ray job submit` with a working directory, as the README shows it."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from prunebench.store.diff import diff

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled"}
pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_head(folder):
    """A head with dashboard and job agent on ports of its own: the process, its job address, its agent's."""
    names = (
        "port",
        "dashboard-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "runtime-env-agent-port",
        "metrics-export-port",
    )
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    flags = [f"--{name}={port}" for name, port in ports.items()]
    ray = str(Path(sys.executable).with_name("ray"))
    process = subprocess.Popen(
        [
            ray,
            "start",
            "--head",
            "--block",
            "--num-cpus=2",
            "--include-dashboard=true",
            f"--temp-dir={folder}",
            *flags,
        ],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    urls = [f"http://127.0.0.1:{ports[name]}" for name in ("dashboard-port", "dashboard-agent-listen-port")]
    return process, *urls


def answers(process, *urls):
    """Whether all of it comes up while the head lives."""
    deadline = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline:
        try:
            for url in urls:
                urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.5)
        else:
            return True
    return False


@pytest.fixture
def head():
    """Job address of a head. On a loaded machine one may give up at its start: another is started."""
    for _ in range(3):
        # A short path: Ray puts sockets below it, and their names may have 107 bytes.
        process, address, agent = start_head(tempfile.mkdtemp(prefix="ray"))
        # A job that comes before the agent is refused.
        if answers(process, f"{address}/api/version", f"{agent}/api/local_raylet_healthz"):
            break
        process.terminate()
        process.wait(60)
    yield address
    process.terminate()
    process.wait(60)


def submit(address, store, config):
    ray = str(Path(sys.executable).with_name("ray"))
    script = (
        "import platform, prunebench, sys; "
        "print('CHECK', platform.python_version(), platform.__file__, prunebench.__file__)"
    )
    job = f"{sys.executable} jobs/benchmark.py {config} --store {store} --quiet"
    entry = f'{sys.executable} -c "{script}" && {job}'
    return subprocess.run(
        [
            *(ray, "job", "submit", "--address", address, "--working-dir", str(ROOT)),
            *("--runtime-env-json", json.dumps({"env_vars": {"PYTHONPATH": "platform"}})),
            *("--", "bash", "-c", entry),
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_submitted_job_runs_from_its_working_directory(head, finished, tmp_path):
    config, undisturbed = finished
    done = submit(head, tmp_path / "store", config)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("CHECK")]
    _, version, stdlib, package = line.split()
    assert version == ".".join(map(str, sys.version_info[:3]))
    assert Path(stdlib).name == "platform.py"
    assert "working_dir" in package
    assert diff(undisturbed, tmp_path / "store") == []
