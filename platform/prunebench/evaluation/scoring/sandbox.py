"""Untrusted code under guard: a model's program and a benchmark's tests in processes of their own.

What stands between them and this machine, and what takes its place where it is missing (nothing: the run is
refused with the guard's name):

- a user without privileges: nobody, where this process is root, and else the same user, in a user namespace
  without capabilities;
- a file system in memory as root, of bounded size, with nothing in it but the interpreter, the system's
  libraries and the packages that tests use, read-only; no home, no credentials, no /proc, no programs;
- empty network, IPC and process namespaces: no socket leads out, no other process can be seen, and all that
  was started ends with the first of them;
- a filter of the system calls that no namespace holds back;
- an empty environment, no input, no output, own session;
- limits on CPU time, memory, size and number of files, processes, and on wall time.

The tests run in another process than the program and see only what its function returns: code that ends the
process, prints a verdict, looks for what is expected or returns an object that is equal to everything fails.
The verdict counts only with a number used once that this process gave to the tests' process alone.

Not covered: faults of the kernel, most of whose system calls are left; side channels; the memory of all
processes of one program together (each has its own limit, and the kernel is told to end these first).
What a program returns reaches the tests as a plain value; an object of its own class equals nothing there.
"""

import functools
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import prunebench
from prunebench.errors import ResourceError

PACKAGES = ("numpy",)
"""What programs and tests may import beside the standard library: MBPP+ compares floats with numpy."""
_GRACE = 5.0
"""Seconds in which processes that were told to end have to be gone."""
_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/alternatives",
    "/etc/ld.so.cache",
)
_SOURCES = str(Path(prunebench.__file__).parents[1])
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from prunebench.evaluation.scoring.jail.judge import main; main()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may use. EvalPlus allows 4 GiB too, and less time by the wall clock."""

    cpu_seconds: int
    """Of the program, and again of the tests."""
    wall_seconds: float
    """For programs that wait: a loaded machine must not turn right into timed out."""
    memory_bytes: int = 4 << 30
    """A process."""
    disk_bytes: int = 64 << 20
    file_bytes: int = 16 << 20
    processes: int = 16
    open_files: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A program and its tests."""

    program: str
    """Source that defines the entry point; untrusted."""
    entry_point: str
    """The function that the tests call."""
    setup: str
    """Source that is executed before the tests, for the functions that they need besides."""
    test: str
    """Source that raises where the program is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a trial ended."""

    verdict: Literal["passed", "failed", "timed_out"]
    error: str = ""


def run_trial(trial: Trial, limits: Limits) -> Outcome:
    """Run a program against its tests. Every process that it started is gone when this returns.

    Raises:
        ResourceError: this machine lacks a guard, which is named.
    """
    nonce = secrets.token_hex(16)
    places, imports = _visible()
    settings = {"paths": places, "packages": imports, **asdict(limits)}
    command = [sys.executable, "-I", "-S", "-c", _START, _SOURCES, json.dumps(settings)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=_environment(),
        start_new_session=True,
    )
    try:
        job = json.dumps({**asdict(trial), "nonce": nonce}).encode()
        output, complaint = process.communicate(job, timeout=limits.wall_seconds)
    except subprocess.TimeoutExpired:
        return Outcome(verdict="timed_out", error=f"no end after {limits.wall_seconds:g} s")
    finally:
        _kill(process)
    return _outcome(output, complaint, nonce, process.returncode)


@functools.cache
def missing_guard() -> str:
    """The sentence that names a guard which this machine lacks; empty where there are all of them."""
    trial = Trial(program="def f():\n    return 1", entry_point="f", setup="", test="assert f() == 1")
    try:
        outcome = run_trial(trial, Limits(cpu_seconds=5, wall_seconds=60.0))
    except ResourceError as error:
        return str(error)
    return "" if outcome.verdict == "passed" else f"a trial program {outcome.verdict}: {outcome.error}"


def _outcome(output: bytes, complaint: bytes, nonce: str, code: int) -> Outcome:
    """What the tests' process said, if it was that process and it came to its end."""
    said = json.loads(output) if output else {}
    if "missing" in said:
        raise ResourceError(
            f"code from models cannot be run on this machine: it gives no {said['missing']} "
            f"({said['error']}); use a machine where users may make namespaces, or leave out tasks with code"
        )
    if said.get("nonce") == nonce:
        return Outcome(verdict=said["verdict"], error=said["error"])
    if code == -signal.SIGXCPU:
        return Outcome(verdict="timed_out", error="the tests used up their CPU time")
    words = complaint.decode(errors="replace").strip().splitlines()
    raise ResourceError(f"the sandbox broke (exit code {code}): {words[-1] if words else 'it said nothing'}")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End what has not ended: the judge first, which ends the candidate and waits for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    _wait_for_group(process.pid)


def _wait_for_group(group: int) -> None:
    """Wait for the candidate's init, which goes when all that the candidate started is gone."""
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def _environment() -> dict[str, str]:
    """Nothing but where the interpreter's own libraries are, which the jail forgets before any code runs."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


@functools.cache
def _visible() -> tuple[list[str], list[str]]:
    """What stays visible inside: the outermost of the places needed; and where packages are imported from."""
    paths = [*map(Path, _SYSTEM), Path(sys.base_prefix, "lib")]
    paths.append(Path(sysconfig.get_path("stdlib")))
    paths += [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part[:1] == "/"]
    imports = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise ResourceError(f"the tests of programs need the package {package}: run make env")
        folder = Path(spec.origin).parent
        imports.append(str(folder.parent))
        paths += [folder, folder.with_name(f"{package}.libs")]
    return [str(path) for path in _outermost(paths)], imports


def _outermost(paths: list[Path]) -> Iterator[Path]:
    found = sorted({path for path in paths if path.exists()})
    for path in found:
        if not any(parent in found for parent in path.parents):
            yield path
