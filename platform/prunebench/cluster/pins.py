"""The versions that prunebench is pinned to, and whether an environment has them. Standard library first: a
job looks before it imports anything that may be missing."""

import importlib.metadata
import json
import platform
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from prunebench.errors import ResourceError

SOURCE_ROOT = Path(__file__).parents[2]
"""The folder that is on the path: `platform` of a checkout or of a job, or site-packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What the package asks of its environment."""

    python: str
    """A version specifier, such as >=3.11,<3.13."""
    packages: tuple[str, ...]
    """Requirements, such as torch==2.13.0."""

    def to_toml(self) -> str:
        """The part of a pyproject.toml that `declared` reads."""
        lines = ["[project]", 'name = "prunebench"', f"requires-python = {json.dumps(self.python)}"]
        packages = "".join(f"    {json.dumps(package)},\n" for package in self.packages)
        return "\n".join([*lines, f"dependencies = [\n{packages}]", ""])


def declared() -> Pins:
    """The pins of the running source: of the pyproject.toml beside it, or of the installed package."""
    file = SOURCE_ROOT.parent / "pyproject.toml"
    if SOURCE_ROOT.name == "platform" and file.exists():
        project = tomllib.loads(file.read_text())["project"]
        return Pins(python=project["requires-python"], packages=tuple(project["dependencies"]))
    about = importlib.metadata.metadata("prunebench")
    wanted = importlib.metadata.requires("prunebench") or []
    return Pins(
        python=str(about["Requires-Python"]),
        packages=tuple(package for package in wanted if "extra ==" not in package),
    )


def pinned_ray() -> str:
    """The Ray version that is pinned: client, head and nodes have to agree."""
    (pin,) = [package for package in declared().packages if re.match(r"ray\b", package)]
    return pin.partition("==")[2]


def differences(pins: Pins) -> list[str]:
    """What this environment has otherwise or lacks, a phrase each."""
    missing = [package for package in pins.packages if _version(_name(package)) is None]
    if missing:
        return [f"{package} (there is none)" for package in missing]
    # Not before the rest is known to be there: Ray brings it.
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python = platform.python_version()
    found = [] if SpecifierSet(pins.python).contains(python) else [f"Python {pins.python} (this is {python})"]
    for package in pins.packages:
        wanted, version = Requirement(package), _version(_name(package)) or ""
        if not wanted.specifier.contains(version, prereleases=True):
            found.append(f"{wanted.name}{wanted.specifier} (there is {version})")
    return found


def check_environment() -> None:
    """End the process with a sentence and exit code 4 where the environment is not the pinned one.

    A job on a cluster without the packages would otherwise end in a stack trace, or in other numbers.
    """
    if found := differences(declared()):
        sys.stderr.write(
            f"error: the environment of this job ({sys.executable}) is not what prunebench needs: "
            f"{', '.join(found)}; build it on every node from requirements.lock, with its bin folder first "
            "in the PATH of `ray start`, or let Ray install it: prunebench submit --pip\n"
        )
        sys.exit(ResourceError.exit_code)


def _name(package: str) -> str:
    return re.split(r"[\[<>=!~;\s]", package, maxsplit=1)[0]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
