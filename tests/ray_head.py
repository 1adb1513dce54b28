"""A real Ray head with dashboard and job agent, on ports and in a folder of its own."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

BIN = Path(sys.executable).parent
PORTS = (
    "port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)
RAY = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")


def without_ray(**changes):
    """The environment of this process without its settings of Ray, and with others."""
    kept = {name: value for name, value in os.environ.items() if name not in RAY}
    # As on a node whose environment is active: jobs find its python.
    return {**kept, "PATH": f"{BIN}{os.pathsep}{kept['PATH']}", **changes}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start(folder, environment, cpus):
    """The process, its job address, and its agent's."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    command = [BIN / "ray", "start", "--head", "--block", f"--num-cpus={cpus}", "--include-dashboard=true"]
    # In the background: nothing reads its output.
    process = subprocess.Popen(
        [*command, f"--temp-dir={folder}", *[f"--{name}={port}" for name, port in ports.items()]],
        env=environment,
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


@contextmanager
def ray_head(*, cpus=2, **environment):
    """Job address of a head that runs in this environment, with these variables of Ray."""
    for _ in range(3):
        # A short path: Ray puts sockets below it, and their names may have 107 bytes.
        folder = tempfile.mkdtemp(prefix="ray")
        process, address, agent = start(folder, without_ray(**environment), cpus)
        # A job that comes before the agent is refused. On a loaded machine a head may give up at its start.
        if answers(process, f"{address}/api/authentication_mode", f"{agent}/api/local_raylet_healthz"):
            break
        process.terminate()
        process.wait(60)
    try:
        yield address
    finally:
        process.terminate()
        process.wait(60)
