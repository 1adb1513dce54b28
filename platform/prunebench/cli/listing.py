"""The jobs of a cluster, as `prunebench status ADDRESS` lists them."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from prunebench.core.fingerprint import Json
from prunebench.errors import InputError


def names_a_dashboard(word: str) -> bool:
    """Whether a word is the address of a dashboard rather than a folder."""
    return "://" in word or (re.fullmatch(r"[^/\s]+:[0-9]+", word) is not None and not Path(word).exists())


def jobs_of(address: str) -> list[dict[str, Json]]:
    """prunebench's jobs with their state and, where their store can be read from here, its units.

    Raises:
        ResourceError: nothing answers, or the token is refused.
    """
    from prunebench.cluster.dashboard import reach

    dashboard = reach(address)
    from prunebench.cluster.submit import JobApi

    jobs = JobApi(dashboard).jobs()
    units = {job.store: _units(job.store) for job in jobs}
    return [{**asdict(job), "units_done": units[job.store]} for job in jobs]


def job_lines(jobs: Sequence[dict[str, Json]]) -> list[str]:
    """A line or two a job."""
    lines = []
    for job in jobs:
        units = "no store seen from here" if job["units_done"] is None else f"{job['units_done']} units done"
        lines.append(f"{job['submission_id']}  {job['state']:<9}  {job['started_at']}  {job['config']}")
        lines.append(f"    {job['store']}: {units}")
        if job["state"] == "FAILED":
            lines.append(f"    exit code {job['exit_code']}: {job['message']}")
    return lines


def _units(store: str) -> int | None:
    """Finished units of a store, None where this machine does not see it."""
    from prunebench.store.layout import check_store
    from prunebench.store.read import read_samples

    try:
        root = check_store(Path(store).expanduser())
    except InputError:
        return None
    samples = read_samples(root)
    return int(samples["unit_id"].nunique()) if len(samples) else 0
