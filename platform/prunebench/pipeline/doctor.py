"""What this machine has and lacks for prunebench."""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from prunebench.evaluation.scoring.sandbox import missing_guard
from prunebench.models.cache import cache_folder
from prunebench.models.hardware import processor_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    found: str
    ok: bool
    remedy: str = ""
    needed: bool = True
    """Whether prunebench cannot work without it."""


def examine() -> list[Check]:
    """Look at everything; downloads nothing, and starts nothing but one trial of the sandbox."""
    return [
        _python(),
        *map(_package, ("torch", "transformers", "ray", "pyarrow")),
        _gguf(),
        _cores(),
        *_cache(),
        _gpu(),
        _sandbox(),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Check(name="Python", found=version, ok=ok, remedy="install Python 3.11 or 3.12")


def _package(name: str) -> Check:
    found = importlib.util.find_spec(name) is not None
    return Check(name=name, found="installed" if found else "missing", ok=found, remedy="run make env")


def _gguf() -> Check:
    found = importlib.util.find_spec("gguf") is not None
    return Check(
        name="gguf",
        found="installed" if found else "missing",
        ok=found,
        remedy="install prunebench[quickstart] to convert the quickstart model",
        needed=False,
    )


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Check(
        name="processor",
        found=f"{processor_name()}, {cores} cores, {gigabytes:.0f} GiB of memory",
        ok=gigabytes >= 6,
        remedy="the quickstart wants 6 GiB",
        needed=False,
    )


def _cache() -> list[Check]:
    folder = cache_folder("models")
    writable = os.access(folder, os.W_OK)
    free = shutil.disk_usage(folder).free / 2**30
    model = folder / "smollm2-135m"
    return [
        Check(
            name="cache", found=str(folder), ok=writable, remedy="set PRUNEBENCH_CACHE to a writable folder"
        ),
        Check(
            name="free disk",
            found=f"{free:.0f} GiB",
            ok=free >= 2,
            remedy="the quickstart wants 2 GiB in the cache",
            needed=False,
        ),
        Check(
            name="quickstart model",
            found="there" if model.is_dir() else "not fetched yet",
            ok=True,
            needed=False,
        ),
    ]


def _gpu() -> Check:
    devices = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return Check(
        name="NVIDIA GPUs",
        found=str(len(devices)),
        ok=bool(devices),
        remedy="models run on the CPU; device: cuda will be refused",
        needed=False,
    )


def _sandbox() -> Check:
    guard = missing_guard()
    return Check(
        name="sandbox",
        found=guard or "every guard",
        ok=not guard,
        remedy="tasks that run code from models need a machine where users may make namespaces",
        needed=False,
    )
