"""`ray job submit` with a working directory, as the README shows it."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prunebench.store.diff import diff

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def head(tmp_path_factory):
    """A head with dashboard and job agent on its own ports; gives its job address."""
    names = (
        "port",
        "dashboard-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "runtime-env-agent-port",
        "metrics-export-port",
    )
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    # A short path: Ray puts sockets below it, and their names may have 107 bytes.
    folder = tmp_path_factory.mktemp("r")
    flags = [f"--{name}={port}" for name, port in ports.items()]
    ray = str(Path(sys.executable).with_name("ray"))
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
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
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield f"http://127.0.0.1:{ports['dashboard-port']}", environment
    process.terminate()
    process.wait(60)


def submit(address, environment, store, config):
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
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_submitted_job_runs_from_its_working_directory(head, finished, tmp_path):
    address, environment = head
    config, undisturbed = finished
    deadline = time.monotonic() + 120
    done = submit(address, environment, tmp_path / "store", config)
    while "Failed to connect" in done.stdout + done.stderr and time.monotonic() < deadline:
        time.sleep(1)
        done = submit(address, environment, tmp_path / "store", config)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("CHECK")]
    _, version, stdlib, package = line.split()
    assert version == ".".join(map(str, sys.version_info[:3]))
    assert Path(stdlib).name == "platform.py"
    assert "working_dir" in package
    assert diff(undisturbed, tmp_path / "store") == []
