"""The process that runs a benchmark's tests. It never executes a line of the model's code.

The candidate is a process in a namespace of its own, which it cannot see out of: it can neither read the
tests and what they expect, nor the nonce, nor reach this process. What it answers is unpickled with a short
list of harmless classes. When the tests end, the candidate and whatever it started are killed before the
verdict, which carries the nonce, is printed.
"""

import importlib
import io
import json
import os
import pickle
import resource
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from prunebench.evaluation.scoring.jail.candidate import HARMLESS, MAX_ERROR, receive, send, serve
from prunebench.evaluation.scoring.jail.isolation import MissingGuard, die_with_parent, isolate

_BROKEN, _ENDED, _OUT_OF_TIME = 1, 2, 3
"""What the candidate's init says of it when it exits."""
_DESCRIPTORS = 4096
"""More than this process ever opened."""
_GRACE = 1.0
"""Seconds in which init has to notice that the candidate is gone."""


class CandidateGoneError(BaseException):
    """The candidate's process ended; no test may catch it."""


class StoppedError(BaseException):
    """Whoever waits for the verdict does not want it any more."""


class CandidateError(Exception):
    """The candidate's code raised what the message says."""


def main() -> None:
    """Isolate, start the candidate, read the job from standard input, print the verdict as JSON.

    The settings, in the first argument, are no secret; the job (program, tests, nonce) comes only when the
    candidate's process, a copy of this one, is there already.
    """
    settings = json.loads(sys.argv[1])
    os.environ.clear()
    # numpy would start a thread a processor, against the limit on processes.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    verdicts = os.dup(1)
    try:
        isolate(settings["paths"], settings["disk_bytes"])
    except MissingGuard as error:
        _print(verdicts, {"missing": error.guard, "error": error.reason})
        return
    die_with_parent()
    _silence(1, 2)
    _limit(settings)
    sys.path[:] = [*sys.path[1:], *settings["packages"]]
    importlib.invalidate_caches()
    signal.signal(signal.SIGTERM, _stop)
    init, channel = _start_candidate(settings)
    job = json.loads(sys.stdin.buffer.read())
    try:
        verdict, error = _judge(job, channel)
    except CandidateGoneError as gone:
        verdict, error = "timed_out" if _fate(init) == _OUT_OF_TIME else "failed", str(gone)
    except StoppedError:
        _end(init)
        return
    else:
        _end(init)
    _print(verdicts, {"verdict": verdict, "error": error[:MAX_ERROR], "nonce": job["nonce"]})


def _print(descriptor: int, message: dict[str, str]) -> None:
    os.write(descriptor, json.dumps(message).encode())


def _silence(*descriptors: int) -> None:
    """Connect descriptors to nothing."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _limit(settings: dict[str, Any]) -> None:
    limits = {
        resource.RLIMIT_CPU: settings["cpu_seconds"],
        resource.RLIMIT_AS: settings["memory_bytes"],
        resource.RLIMIT_FSIZE: settings["file_bytes"],
        resource.RLIMIT_NOFILE: settings["open_files"],
        resource.RLIMIT_CORE: 0,
    }
    for kind, wanted in limits.items():
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # The soft limit on CPU time is a signal that a program may ignore; the hard one kills.
        resource.setrlimit(kind, (most, most + 1 if kind == resource.RLIMIT_CPU and most == wanted else most))


def _start_candidate(settings: dict[str, Any]) -> tuple[int, socket.socket]:
    """The init of a process namespace in which the candidate waits, and the channel to the candidate."""
    ours, theirs = socket.socketpair()
    init = os.fork()
    if init == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent()
            _run_init(theirs, settings)
        finally:
            os._exit(_BROKEN)
    theirs.close()
    return init, ours


def _run_init(channel: socket.socket, settings: dict[str, Any]) -> NoReturn:
    """Start the candidate and wait for it; when this process ends, the kernel ends all that are left."""
    candidate = os.fork()
    if candidate == 0:
        _silence(0, 1, 2)
        os.closerange(3, channel.fileno())
        os.closerange(channel.fileno() + 1, _DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NPROC, (settings["processes"],) * 2)
        serve(channel)
    os.closerange(0, _DESCRIPTORS)
    ended, seconds = 0, 0.0
    while ended != candidate:
        ended, _, usage = os.wait4(-1, 0)
        seconds = usage.ru_utime + usage.ru_stime
    # The limit counts in other steps than the usage.
    os._exit(_OUT_OF_TIME if seconds > 0.9 * settings["cpu_seconds"] else _ENDED)


def _judge(job: dict[str, str], channel: socket.socket) -> tuple[str, str]:
    """`passed` or `failed`, and the error in words.

    Raises:
        CandidateGoneError: its process ended.
        StoppedError: there was no time left.
    """

    def ask(message: object) -> object:
        try:
            send(channel, pickle.dumps(message))
            answer = receive(channel)
        except (EOFError, OSError) as error:
            raise CandidateGoneError("the program ended before the tests did") from error
        worked, value = _Unpickler(io.BytesIO(answer)).load()
        if not worked:
            raise CandidateError(value)
        return value

    def candidate(*args: object, **kwargs: object) -> object:
        return ask((args, kwargs))

    names: dict[str, object] = {"__name__": "tests"}
    try:
        ask((job["program"], job["entry_point"]))
        exec(compile(job["setup"], "<setup>", "exec"), names)
        names[job["entry_point"]] = candidate
        exec(compile(job["test"], "<test>", "exec"), names)
    except (CandidateGoneError, StoppedError):
        raise
    except CandidateError as error:
        return "failed", str(error)
    except BaseException as error:  # noqa: BLE001 (whatever ends the tests early is why they failed)
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 (the base class's own)
        if name not in HARMLESS.get(module, ()):
            raise CandidateError(f"the program returned an object of {module}.{name}")
        return super().find_class(module, name)


def _fate(init: int) -> int:
    """What the candidate's init says of it. One that only hung up is ended here."""
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline:
        ended, status = os.waitpid(init, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    _end(init)
    return _ENDED


def _end(init: int) -> None:
    """End the candidate and all that it started; they are gone when this returns."""
    os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise StoppedError
