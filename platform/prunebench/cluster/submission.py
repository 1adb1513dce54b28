"""A submission: what is asked of Ray for one attempt at a run or search, as a value."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from prunebench.cluster.threads import THREAD_VARIABLES
from prunebench.cluster.working_dir import SCRIPTS
from prunebench.config.experiment import Setting
from prunebench.core.fingerprint import sha256_json
from prunebench.errors import InputError

PREFIX = "prunebench-"
STOP_WAIT_S = 40
"""Ray kills a job 3 s after it asked it to stop; a run may take 30 s to finish its unit and flush."""
APART = {"base", "executor", "cluster", "store"}
"""Settings that no result depends on: changing them does not make another run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One attempt, without its number. Nothing of this process's environment, and so no secret, is in it."""

    verb: str
    """run or search."""
    run_id: str
    """prunebench-HASH, equal for equal settings on one store."""
    config: str
    """The config's name in the archive."""
    store: str
    overrides: tuple[str, ...]
    environment: dict[str, str]
    pip: tuple[str, ...] = ()
    """Requirements that Ray installs for the job."""

    @property
    def words(self) -> tuple[str, ...]:
        """The entrypoint."""
        sets = [word for override in self.overrides for word in ("--set", override)]
        return ("python", f"jobs/{SCRIPTS[self.verb]}.py", self.config, "--store", self.store, *sets)

    @property
    def command_line(self) -> str:
        """The entrypoint as a shell reads it."""
        return shlex.join(self.words)

    @property
    def metadata(self) -> dict[str, str]:
        """What `prunebench status` reads of a job."""
        return {"run": self.run_id, "verb": self.verb, "config": self.config, "store": self.store}

    def runtime_env(self, working_dir: str) -> dict[str, Any]:
        """Ray's runtime environment of the job and its workers."""
        environment: dict[str, Any] = {"working_dir": working_dir, "env_vars": self.environment}
        if self.pip:
            environment["pip"] = {"packages": list(self.pip), "pip_check": False}
        return environment

    def command(self, address: str, submission_id: str, working_dir: str) -> str:
        """The equivalent `ray job submit`."""
        environment = self.runtime_env(working_dir)
        del environment["working_dir"]
        return shlex.join(
            [
                *("ray", "job", "submit", "--no-wait", "--address", address),
                *("--submission-id", submission_id, "--working-dir", working_dir),
                *("--runtime-env-json", json.dumps(environment)),
                *("--metadata-json", json.dumps(self.metadata)),
                *("--", *self.words),
            ]
        )


def submission(
    setting: Setting,
    *,
    verb: str,
    config: str,
    store: str,
    overrides: Sequence[str] = (),
    pip: Sequence[str] = (),
) -> Submission:
    """A submission of a checked file; `config` is its name in the archive, `store` from `cluster_store`."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(setting.executor.threads))
    given = setting.cluster.environment
    path = ":".join(filter(None, ("platform", given.get("PYTHONPATH"))))
    fixed = {"PYTHONPATH": path, "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}
    return Submission(
        verb=verb,
        run_id=run_id(setting, store),
        config=config,
        store=store,
        overrides=tuple(overrides),
        environment={**threads, **given, **fixed},
        pip=tuple(pip),
    )


def run_id(setting: Setting, store: str) -> str:
    """The run that a file asks for on a store: prunebench- and 12 hex digits."""
    asked = setting.model_dump(mode="json", exclude=APART)
    return PREFIX + sha256_json({"setting": asked, "store": store})[:12]


def cluster_store(setting: Setting, given: str | None, *, head_local: bool) -> str:
    """The store's path as the job's driver, the only writer, sees it.

    Raises:
        InputError: relative, and not declared to lie on the head.
    """
    store = given or str(setting.store)
    if PurePosixPath(store).is_absolute() or store.startswith("~/"):
        return str(PurePosixPath(store))
    if not head_local:
        raise InputError(
            f"the store {store} is a relative path, and a job's folder on a cluster goes with the job: give "
            "--store an absolute path on a disk that the cluster shares, or keep the store on the head's own "
            "disk with --head-local-store"
        )
    return str(
        PurePosixPath("~/prunebench", *[part for part in Path(store).parts if part not in (".", "..")])
    )


def attempt_of(run: str, submission_ids: Sequence[str]) -> int:
    """The number of the latest attempt at a run among all submissions; 0 where there is none."""
    tails = [name.removeprefix(f"{run}-") for name in submission_ids if name.startswith(f"{run}-")]
    return max((int(tail) for tail in tails if tail.isdecimal()), default=0)
