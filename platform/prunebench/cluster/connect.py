"""Joining a Ray cluster, or starting one on this machine."""

import logging
import os
import signal
import socket
import threading

import ray
from ray._private import services

from prunebench.errors import ResourceError

ANSWER_TIMEOUT_S = 10
MAX_PORT = 65535


def connect(
    address: str | None, *, cpus: int | None = None, environment: dict[str, str] | None = None
) -> None:
    """Join the cluster at `address` (or RAY_ADDRESS), or start one on this machine.

    Raises:
        ResourceError: nothing answers at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    runtime_env = {"env_vars": environment} if environment else None
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if address and address != "local":
            address = _answering(address)
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
        raise ResourceError(
            f"cannot reach or start Ray at {address or 'this machine'}: {error}; start a cluster there, or "
            "give no address (and no RAY_ADDRESS) to start one on this machine"
        ) from error
    finally:
        # Ray's handler would end the process at once with exit code 15, and the run's log without its end.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)


def _answering(address: str) -> str:
    """The address, `auto` resolved, once something accepts connections there.

    Ray itself would try a dead one for a quarter of an hour: for example that of a killed head, which `auto`
    still finds in a file.

    Raises:
        ConnectionError: no running cluster is known.
        OSError: nothing accepts connections.
        ValueError: not an address.
    """
    if address == "auto":
        address = services.canonicalize_bootstrap_address_or_die(address)
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ValueError("write HOST:PORT or auto")
    socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_TIMEOUT_S).close()
    return address
