"""The head of the cluster, watched from the driver."""

import contextlib
import socket
import time

import ray

from prunebench.errors import ResourceError

LOOK_EVERY_S = 1.0
GONE_AFTER_S = 3.0
"""Shorter than a head takes to start again: Ray ends the process of a driver that meets another head. Where
there is none it does so after 60 s, with exit code 1 and no word of what is safe."""
ANSWER_TIMEOUT_S = 3.0


class Head:
    """Whether the head that this process joined still takes connections."""

    def __init__(self) -> None:
        self._address: str = ray.get_runtime_context().gcs_address
        self._heard = self._looked = time.monotonic()
        self.lost = False

    def check(self) -> None:
        """Look, at most once a second.

        Raises:
            ResourceError: nothing has taken a connection there for GONE_AFTER_S.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        host, _, port = self._address.rpartition(":")
        with contextlib.suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_TIMEOUT_S).close()
            self._heard = time.monotonic()
            return
        if time.monotonic() - self._heard >= GONE_AFTER_S:
            self.lost = True
            raise ResourceError(
                f"the head of the Ray cluster at {self._address} is gone: everything committed is safe; "
                "start the cluster and run the same command to resume"
            )
