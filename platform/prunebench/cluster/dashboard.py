"""A cluster's dashboard, asked before anything is sent: does it answer, may we, which Ray, what has it.

Ray's own client has no time limits and takes any version from 2.0 on. No ray import: refusals take seconds.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from prunebench.cluster.pins import pinned_ray
from prunebench.cluster.placement import Node
from prunebench.errors import InputError, ResourceError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
TIMEOUTS_S = (5, 15)
"""To connect, and for an answer to begin."""
MOST_NODES = 10_000
"""Ray answers with no more at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One that answered, took our token where it asks for one, and runs the pinned Ray."""

    address: str
    """http://HOST:PORT without a slash at the end."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Holds the token."""

    def nodes(self) -> list[Node]:
        """What each living node has.

        Raises:
            ResourceError: no answer in time.
        """
        answer = _get(self.address, f"/api/v0/nodes?limit={MOST_NODES}", self.headers)
        found: list[dict[str, Any]] = _told(self.address, answer, "data", "result", "result")
        totals = [(node["node_name"], node["resources_total"]) for node in found if node["state"] == "ALIVE"]
        return [
            Node(name=name, cpus=have.get("CPU", 0.0), gpus=have.get("GPU", 0.0)) for name, have in totals
        ]


def dashboard_address(address: str | None) -> str:
    """`address`, else RAY_API_SERVER_ADDRESS, else RAY_ADDRESS where it is a URL, else this machine's.

    Raises:
        InputError: not the address of a dashboard.
    """
    job_address = os.environ.get("RAY_ADDRESS", "")
    word = (
        address
        or os.environ.get("RAY_API_SERVER_ADDRESS")
        or (job_address if job_address.startswith("http") else None)
        or DEFAULT_ADDRESS
    )
    url = (word if "://" in word else f"http://{word}").rstrip("/")
    if not re.fullmatch(
        r"https?://[^/:@\s]+(:[0-9]{1,5})?(/\S*)?|https?://\[[0-9a-fA-F:]+\](:[0-9]{1,5})?", url
    ):
        raise InputError(
            f"{word} is not the address of a Ray dashboard: write http://HOST:8265, where it takes jobs"
        )
    return url


def reach(address: str | None) -> Dashboard:
    """The dashboard at an address, once it is clear that a job can be submitted there.

    Raises:
        InputError: not an address.
        ResourceError: nothing answers, the token is missing or refused, or another version of Ray runs.
    """
    url = dashboard_address(address)
    mode = _get(url, "/api/authentication_mode", {})
    # Versions before tokens do not know the question; theirs is told by the next one.
    asks = mode.status_code == requests.codes.ok and _told(url, mode, "authentication_mode") != "disabled"
    token, source = _token(url) if asks else ("", "")
    headers = {"Authorization": f"Bearer {token}"} if asks else {}
    answer = _get(url, "/api/version", headers)
    if answer.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
        raise ResourceError(
            f"the cluster at {url} refuses the token of {source}: set RAY_AUTH_TOKEN, or the file that "
            "RAY_AUTH_TOKEN_PATH names, to the one that it was started with"
        )
    theirs, ours = _told(url, answer, "ray_version"), pinned_ray()
    if theirs != ours:
        raise ResourceError(
            f"the cluster at {url} runs Ray {theirs}, but prunebench is pinned to Ray {ours}: install "
            f"ray[default]=={ours} on every node and start them again"
        )
    return Dashboard(address=url, headers=headers)


def _token(url: str) -> tuple[str, str]:
    """The token and where it is from: Ray itself looks there in this order."""
    if given := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return given, "RAY_AUTH_TOKEN"
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    token = path.read_text().strip() if path.is_file() else ""
    if not token:
        raise ResourceError(
            f"the cluster at {url} asks for a token, and here is none: set RAY_AUTH_TOKEN, or "
            f"RAY_AUTH_TOKEN_PATH to a file that holds it ({path} does not)"
        )
    return token, str(path)


def _get(url: str, path: str, headers: dict[str, str]) -> requests.Response:
    try:
        return requests.get(url + path, headers=headers, timeout=TIMEOUTS_S, allow_redirects=False)
    except requests.RequestException as error:
        what = "does not answer in time" if isinstance(error, requests.Timeout) else "cannot be reached"
        raise ResourceError(
            f"{url} {what}: is the cluster up, and is this the address of its dashboard (port 8265 unless "
            "`ray start` was told otherwise)?"
        ) from error


def _told(url: str, answer: requests.Response, *keys: str) -> Any:  # noqa: ANN401 (whatever the dashboard says)
    """What stands in the answer below these keys."""
    try:
        answer.raise_for_status()
        found = answer.json()
        for key in keys:
            found = found[key]
    except (requests.RequestException, ValueError, LookupError, TypeError) as error:
        raise ResourceError(
            f"what answers at {url} is not Ray's dashboard, or not ready (status {answer.status_code})"
        ) from error
    return found
