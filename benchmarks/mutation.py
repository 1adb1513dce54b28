"""Mutants of core/ and methods/ that the tests kill: at least 90 % have to die.

Run by hand (about a quarter of an hour on two cores): python benchmarks/mutation.py [--keep FOLDER]
The package is copied out of platform/ first, because the tool names modules by their path and `platform.` is
the standard library's.
"""

import argparse
import collections
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from prunebench.pipeline.provenance import provenance

ROOT = Path(__file__).parents[1]
TARGET = 0.9
MUTATED = ("core", "methods")
SETTINGS = """
[tool.mutmut]
source_paths = ["prunebench"]
do_not_mutate = {others}
also_copy = ["tests"]
pytest_add_cli_args_test_selection = ["tests/core", "tests/methods"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
"""
CONFTEST = """
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
"""


def lay_out(folder: Path) -> None:
    """Copy what the tool needs: the package, and the tests of core and methods."""
    package = folder / "prunebench"
    shutil.copytree(ROOT / "platform" / "prunebench", package, ignore=shutil.ignore_patterns("__pycache__"))
    others = [
        f"prunebench/{path.name}" + ("/*" if path.is_dir() else "")
        for path in sorted(package.iterdir())
        if path.name not in MUTATED
    ]
    for name in (*MUTATED, "golden"):
        shutil.copytree(ROOT / "tests" / name, folder / "tests" / name)
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    (folder / "pyproject.toml").write_text(SETTINGS.replace("{others}", json.dumps(others)))


def main() -> None:
    """Run the tool and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, default=None, help="leave the mutants in this folder")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="prunebench-mutants-"))
    lay_out(folder)
    mutmut = Path(sys.executable).with_name("mutmut")
    subprocess.run([mutmut, "run", "--max-children", "2"], cwd=folder, check=False)
    listing = subprocess.run(
        [mutmut, "results", "--all", "true"], cwd=folder, check=True, capture_output=True, text=True
    )
    states = collections.Counter(
        line.rpartition(":")[2].strip() for line in listing.stdout.splitlines() if ":" in line
    )
    total = states.total()
    if not total:
        sys.exit("no mutant was run: the tool says why above")
    killed = states["killed"] + states["timeout"] + states["caught by type check"]
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores")
    print(f"{dict(states)}")
    print(f"killed {killed} of {total} mutants: {killed / total:.1%} (target {TARGET:.0%})")
    sys.exit(0 if killed >= TARGET * total else 1)


if __name__ == "__main__":
    main()
