"""Jobs of a cluster through Ray's own job API: submit, follow, stop, list."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from prunebench.cluster.dashboard import Dashboard
from prunebench.cluster.submission import PREFIX, STOP_WAIT_S, Submission, attempt_of
from prunebench.errors import InputError, ResourceError

INTERRUPTED = 130
POLL_S = 1.0
AGENT_TIMEOUT_S = 60.0
NO_AGENT = "No available agent"
"""What Ray answers meanwhile."""
SETTLE_S = 20
"""The end of a log comes a little before the state that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What Ray says of a job."""

    submission_id: str
    state: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    message: str
    exit_code: int | None
    """Of the job as a process would leave; None while it runs."""
    started_at: str
    """ISO time in UTC, to the second."""
    store: str
    config: str

    @property
    def active(self) -> bool:
        """Whether it runs or will."""
        return self.state in ("PENDING", "RUNNING")


class JobApi:
    """The jobs of one cluster."""

    def __init__(self, dashboard: Dashboard) -> None:
        """Connect to a dashboard that `reach` found."""
        for name in ("dashboard_sdk", "job.sdk"):
            logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)
        self._address = dashboard.address
        with self._explained(), _address_variable(dashboard.address):
            self._client = JobSubmissionClient(dashboard.address, headers=dict(dashboard.headers))

    def jobs(self) -> list[JobState]:
        """Every job that prunebench submitted, the oldest first."""
        return [job for name, job in self._all().items() if name.startswith(PREFIX)]

    def job(self, submission_id: str) -> JobState:
        """One job.

        Raises:
            InputError: there is none of this name.
        """
        known = self._all()
        if submission_id not in known:
            ours = ", ".join(name for name in known if name.startswith(PREFIX)) or "none"
            raise InputError(f"{self._address} knows no job {submission_id} (of prunebench: {ours})")
        return known[submission_id]

    def _all(self) -> dict[str, JobState]:
        """Every submitted job, the oldest first."""
        with self._explained():
            # Ray types its own class as None where pydantic is not installed.
            found: list[Any] = self._client.list_jobs()
        submitted = sorted((job for job in found if job.submission_id), key=lambda job: job.start_time or 0)
        return {job.submission_id: _state(job) for job in submitted}

    def running(self, run_id: str) -> JobState | None:
        """The attempt at a run that is pending or running."""
        return next(
            (job for job in self.jobs() if job.submission_id.startswith(f"{run_id}-") and job.active), None
        )

    def next_id(self, run_id: str) -> str:
        """The submission id of the next attempt at a run."""
        return f"{run_id}-{attempt_of(run_id, [job.submission_id for job in self.jobs()]) + 1}"

    def submit(self, asked: Submission, submission_id: str, working_dir: Path) -> None:
        """Upload what is new and start the job.

        Raises:
            InputError: the id was taken at this moment.
            ResourceError: Ray refused.
        """
        deadline = time.monotonic() + AGENT_TIMEOUT_S
        with self._explained():
            while True:
                try:
                    self._client.submit_job(
                        entrypoint=asked.command_line,
                        submission_id=submission_id,
                        runtime_env=asked.runtime_env(str(working_dir)),
                        metadata=asked.metadata,
                    )
                except RuntimeError as error:
                    # Nothing was started: agents of a cluster that has just come up register after its head.
                    if NO_AGENT not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(POLL_S)
                else:
                    return

    def follow(self, submission_id: str, write: Callable[[str], object]) -> JobState:
        """Hand over the job's log from its beginning on, until the job has ended; its last state."""
        shown = 0

        async def stream() -> None:
            nonlocal shown
            seen = 0
            async for text in self._client.tail_job_logs(submission_id):
                # After a lost connection the log comes from its beginning again.
                new = text[max(shown - seen, 0) :]
                seen += len(text)
                if new:
                    write(new)
                    shown = seen

        while True:
            # A connection that broke is told by the state below, which is asked by a new one.
            with contextlib.suppress(aiohttp.ClientError, RuntimeError):
                asyncio.run(stream())
            state = self._settled(submission_id)
            if not state.active:
                return state

    def stop(self, submission_id: str) -> JobState:
        """Ask a job to end, and wait until it has; its last state. One that has ended stays as it is.

        Raises:
            InputError: no such job.
            ResourceError: it did not end in time.
        """
        state = self.job(submission_id)
        if not state.active:
            return state
        with self._explained():
            self._client.stop_job(submission_id)
        deadline = time.monotonic() + STOP_WAIT_S + SETTLE_S
        while (state := self.job(submission_id)).active:
            if time.monotonic() > deadline:
                raise ResourceError(f"{submission_id} did not end within {STOP_WAIT_S + SETTLE_S} s")
            time.sleep(POLL_S)
        return state

    def _settled(self, submission_id: str) -> JobState:
        deadline = time.monotonic() + SETTLE_S
        while (state := self.job(submission_id)).active and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return state

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of Ray's client as sentences."""
        try:
            yield
        except AuthenticationError as error:
            raise ResourceError(
                f"the cluster at {self._address} refuses the token that is set here"
            ) from error
        except (ConnectionError, requests.RequestException) as error:
            raise ResourceError(
                f"lost the cluster at {self._address}; a job goes on as long as its head lives: the same "
                "command joins it again"
            ) from error
        except RuntimeError as error:
            cause = str(error).strip().splitlines()[-1]
            if "already exists" in str(error) or "already been used" in str(error):
                raise InputError(
                    "the same run was submitted at this moment by another process: see `prunebench status "
                    f"{self._address}`, or join it with --follow"
                ) from error
            raise ResourceError(f"the cluster at {self._address} refused the request: {cause}") from error


@contextlib.contextmanager
def _address_variable(address: str) -> Iterator[None]:
    """Set the variable that Ray lets override the address which a caller gives."""
    name = "RAY_API_SERVER_ADDRESS"
    before = os.environ.get(name)
    os.environ[name] = address
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _state(job: Any) -> JobState:  # noqa: ANN401 (JobDetails, as above)
    metadata = job.metadata or {}
    began = datetime.fromtimestamp((job.start_time or 0) / 1000, UTC)
    return JobState(
        submission_id=job.submission_id,
        state=str(job.status.value),
        message=_last_line(job.message or ""),
        exit_code=_exit_code(job),
        started_at=began.isoformat(timespec="seconds"),
        store=metadata.get("store", ""),
        config=metadata.get("config", ""),
    )


def _last_line(message: str) -> str:
    """Of a failed job Ray repeats the end of the log: the last line is what it said at last."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _exit_code(job: Any) -> int | None:  # noqa: ANN401 (JobDetails, as above)
    """What a shell would tell of the job's process; 4 where it never ran, None while it does."""
    if job.status == JobStatus.SUCCEEDED:
        return 0
    if job.status == JobStatus.STOPPED:
        return INTERRUPTED
    if job.status != JobStatus.FAILED:
        return None
    code = job.driver_exit_code
    if not code:
        return ResourceError.exit_code
    # A process that a signal ended has its negative number.
    return code if code > 0 else 128 - code
