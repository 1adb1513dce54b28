"""Joining a Ray cluster, or starting one on this machine."""

import logging
import os
import signal
import socket
import threading
from pathlib import Path

import ray

from prunebench.cluster.pins import pinned_ray
from prunebench.errors import ResourceError

ANSWER_TIMEOUT_S = 10
MAX_PORT = 65535
LATEST = "ray_current_cluster"
"""File in Ray's folder for temporary files: `ray start` writes the address of what it started or joined."""


def connect(
    address: str | None, *, cpus: int | None = None, environment: dict[str, str] | None = None
) -> None:
    """Join the cluster at `address` (or RAY_ADDRESS), or start one on this machine.

    Raises:
        ResourceError: nothing answers at the address, or another version of Ray or Python.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    runtime_env = {"env_vars": environment} if environment else None
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if address and address != "local":
            address = _latest() if address == "auto" else address
            _check_answering(address)
            # Attempts of half a minute each; by default it makes 20, also where something else listens.
            os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=runtime_env
            )
        else:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=runtime_env,
            )
    except Exception as error:  # Ray raises nothing narrower where a node does not come up in time
        if "Version mismatch" in str(error):
            told = " ".join(str(error).split())
            raise ResourceError(
                f"the cluster at {address} runs another Ray or Python than this process: {told}; install the "
                f"pinned Ray {pinned_ray()} in one Python on every node and start them again"
            ) from error
        raise ResourceError(
            f"cannot reach or start Ray at {address or 'this machine'}: {error}; start a cluster there, or "
            "give no address (and no RAY_ADDRESS) to start one on this machine"
        ) from error
    finally:
        # Ray's handler would end the process at once with exit code 15, and the run's log without its end.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)


def _check_answering(address: str) -> None:
    """Ray itself would try a dead one for a quarter of an hour: `auto` still finds a killed head.

    Raises:
        OSError: nothing accepts connections.
        ValueError: not an address.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ValueError("write HOST:PORT or auto")
    socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_TIMEOUT_S).close()


def _latest() -> str:
    """The cluster that this user's last `ray start` on this machine started or joined.

    Ray itself would also take one of another user, from the file or from the list of processes.

    Raises:
        ConnectionError: none is known.
    """
    folder = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp", "ray")
    file = folder / LATEST
    if not file.is_file() or file.stat().st_uid != os.getuid():
        raise ConnectionError(
            f"no `ray start` of this user is noted in {file}: give HOST:PORT in place of auto"
        )
    return file.read_text().strip()
