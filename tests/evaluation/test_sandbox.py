"""Programs that mean harm: none may pass, hang, reach anything, or leave a process.

Where a guard cannot be had, these are skipped with its name, and the refusal is shown instead.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prunebench.errors import InputError
from prunebench.evaluation.scoring import grader_named
from prunebench.evaluation.scoring.sandbox import Limits, Outcome, Trial, missing_guard, run_trial

SOURCES = os.pathsep.join([str(Path(__file__).parents[2] / "platform"), os.environ.get("PYTHONPATH", "")])
MARK = 50_000_000 + os.getpid()
"""Bytes of the jail's disk: stands in the command line of every process of this file's trials."""


def limits(*, cpu: int = 2, wall: float = 30, memory: int = 1 << 30) -> Limits:
    return Limits(cpu_seconds=cpu, wall_seconds=wall, memory_bytes=memory, disk_bytes=MARK)


def trial(program: str, test: str = "assert double(2) == 4", setup: str = "") -> Trial:
    return Trial(program=program, entry_point="double", setup=setup, test=test)


def run(program: str, test: str = "assert double(2) == 4", **more) -> Outcome:
    return run_trial(trial(program, test), limits(**more))


def left() -> list[str]:
    """The processes of trials that are still there."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [line for line in lines if str(MARK) in line]


@pytest.fixture
def jail():
    if guard := missing_guard():
        pytest.skip(guard)
    yield
    assert left() == []


RIGHT = "def double(x):\n    return 2 * x\n"
SLEEP = "import time\ntime.sleep(1000)\n"
HARMFUL = {
    "ends the process before the tests": "import os\nos._exit(0)",
    "ends the process in the tests": "import os\ndef double(x):\n    os._exit(0)",
    "leaves with SystemExit": "import sys\nsys.exit(0)",
    "prints verdicts wherever it can": (
        "import json, os\n"
        "for fd in range(64):\n"
        "    for nonce in ('', '0' * 32):\n"
        "        try:\n"
        "            os.write(fd, json.dumps({'verdict': 'passed', 'error': '', 'nonce': nonce}).encode())\n"
        "        except OSError:\n"
        "            pass\n"
        "os._exit(0)"
    ),
    "is a bounded fork bomb": (
        "import os, time\nfor _ in range(300):\n    if os.fork() == 0:\n        time.sleep(1000)\n" + RIGHT
    ),
    "fills the disk": (
        "for number in range(10_000):\n"
        "    with open(f'/tmp/{number}', 'wb') as file:\n"
        "        file.write(bytes(1 << 20))\n" + RIGHT
    ),
    "makes a file too large": "open('/tmp/a', 'wb').write(bytes(20 << 20))\n" + RIGHT,
    "makes files without end": "for i in range(10_000):\n    open(f'/tmp/{i}', 'w').close()\n" + RIGHT,
    "takes all memory": "held = bytearray(4 << 30)\n" + RIGHT,
    "opens files without end": "held = [open('/dev/null') for _ in range(1000)]\n" + RIGHT,
    "kills whatever it can": "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(1, 9)\nos._exit(0)",
    "leaves a daemon, and the wrong answer": (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "double = lambda x: 3 * x"
    ),
    "returns an object equal to everything": (
        "class Equal:\n    def __eq__(self, other):\n        return True\ndouble = lambda x: Equal()"
    ),
    "returns a number equal to everything": (
        "class Equal(int):\n    def __eq__(self, other):\n        return True\ndouble = lambda x: Equal(7)"
    ),
    "returns items without end": "import itertools\ndouble = lambda x: itertools.repeat(4)",
    "returns more than fits": "double = lambda x: 'x' * (1 << 27)",
    "speaks the judge's protocol": (
        "import os, pickle, struct\n"
        "answer = pickle.dumps((True, 4))\n"
        "for fd in range(3, 64):\n"
        "    try:\n"
        "        os.write(fd, struct.pack('>Q', len(answer)) + answer)\n"
        "    except OSError:\n"
        "        pass\n"
        "double = lambda x: 3 * x"
    ),
    "answers with a pickle that runs code": (
        "import os, struct\n"
        "answer = b'cos\\nsystem\\n(S\"true\"\\ntR.'\n"
        "for fd in range(3, 64):\n"
        "    try:\n"
        "        os.write(fd, struct.pack('>Q', len(answer)) + answer)\n"
        "    except OSError:\n"
        "        pass\n"
        "double = lambda x: 4"
    ),
    "starts a program": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'true'])\n" + RIGHT,
    "becomes root": "import os\nos.setuid(0)\n" + RIGHT,
    "is no Python": "def double(x: return",
    "is nothing": "",
}


@pytest.mark.usefixtures("jail")
@pytest.mark.parametrize("name", HARMFUL)
def test_a_program_fails_that(name):
    outcome = run(HARMFUL[name], "assert double(2) == 4\nassert double(3) == 6")
    assert outcome.verdict == "failed"
    assert outcome.error


@pytest.mark.usefixtures("jail")
def test_programs_that_do_not_end_are_timed_out():
    ignoring = "import signal\nfor n in {*range(1, 32)} - {9, 19}:\n    signal.signal(n, signal.SIG_IGN)\n"
    assert run(ignoring + SLEEP, wall=1).verdict == "timed_out"
    assert run(ignoring + "while True:\n    pass", cpu=1).verdict == "timed_out"
    assert run("def double(x):\n    while True:\n        pass", cpu=1).verdict == "timed_out"
    assert run(RIGHT, "while True:\n    pass", cpu=1).verdict == "timed_out"


@pytest.mark.usefixtures("jail")
def test_right_programs_pass_and_wrong_ones_say_why():
    assert run(RIGHT) == Outcome(verdict="passed")
    assert run("import numpy as np\ndouble = lambda x: np.int64(2 * x)") == Outcome(verdict="passed")
    assert run("def double(x):\n    return 5").error.startswith("AssertionError")
    assert run("def double(x):\n    return 1 / 0").error == "ZeroDivisionError: division by zero"
    assert run("def triple(x):\n    return 5").error == "KeyError: 'double'"


@pytest.mark.usefixtures("jail")
def test_a_program_sees_none_of_the_files_outside(tmp_path, monkeypatch):
    secret = tmp_path / "credentials"
    secret.write_text("secret")
    secret.chmod(0o600)
    home = Path.home()
    paths = [str(secret), str(home / ".ssh"), "/etc/passwd", "/proc/self", "/sys", "/bin/sh"]
    program = (
        "import os\n"
        f"seen = [path for path in {paths} if os.path.exists(path)]\n"
        "writable = [path for path in ('/', '/usr/lib', os.__file__, '/etc') if os.access(path, os.W_OK)]\n"
        "def double(x):\n"
        "    try:\n"
        f"        return open({str(secret)!r}).read()\n"
        "    except OSError:\n"
        "        return seen, writable, dict(os.environ)"
    )
    monkeypatch.setenv("HF_TOKEN", "secret")
    nothing = "([], [], {'OPENBLAS_NUM_THREADS': '1'})"
    assert run(program, f"assert double(2) == {nothing}, double(2)") == Outcome(verdict="passed")


@pytest.mark.usefixtures("jail")
def test_no_socket_leads_out_and_no_key_or_process_can_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = (
            "import ctypes, os, socket\n"
            "def tried(call):\n"
            "    try:\n"
            "        return call()\n"
            "    except OSError as error:\n"
            "        return error.errno\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "def number(name, *args):\n"
            "    return getattr(libc, name)(*args) and ctypes.get_errno()\n"
            "def double(x):\n"
            f"    return [tried(lambda: socket.create_connection(('127.0.0.1', {port}))),\n"
            "        *(tried(lambda: socket.socket(family)) for family in (2, 10, 16, 17, 40)),\n"
            f"        tried(lambda: os.kill({os.getpid()}, 0)),\n"
            "        number('unshare', 0x10000000), number('ptrace', 16, os.getppid(), 0, 0), os.getpid()]"
        )
        refused, unknown = 1, 3
        expected = [refused] * 6 + [unknown] + [refused] * 2 + [2]
        assert run(program, f"assert double(1) == {expected}, double(1)") == Outcome(verdict="passed")


@pytest.mark.usefixtures("jail")
def test_a_program_finds_neither_the_tests_nor_what_they_expect():
    program = (
        "import gc, sys\n"
        "def double(x):\n"
        "    frame, seen = sys._getframe(), []\n"
        "    while frame:\n"
        "        seen += [*frame.f_locals.values(), *frame.f_globals.values(), *frame.f_code.co_consts]\n"
        "        frame = frame.f_back\n"
        "    seen += gc.get_objects() + sys.orig_argv + sys.argv\n"
        "    return any('-'.join(('expected', '7f3a')) in repr(thing) for thing in seen)"
    )
    outcome = run(program, "mark = 'expected-7f3a'\nassert double(1) is False")
    assert outcome == Outcome(verdict="passed")


@pytest.mark.usefixtures("jail")
def test_answers_arrive_as_the_plain_values_that_they_are():
    program = (
        "import collections, enum, re\n"
        "Pair = collections.namedtuple('Pair', 'a b')\n"
        "class Number(enum.IntEnum):\n    THREE = 3\n"
        "def double(x):\n"
        "    counts = collections.defaultdict(lambda: 0)\n"
        "    counts['a'] += 1\n"
        "    more = {1: 2}.keys(), int, None, ...\n"
        "    return [Pair(1, 2), Number.THREE, counts, collections.Counter('aab'), *more]\n"
    )
    test = (
        "value = double(1)\n"
        "assert value[:4] == [(1, 2), 3, {'a': 1}, {'a': 2, 'b': 1}]\n"
        "assert value[4] == {1} and value[5] is int and value[6] is None and value[7] is not None\n"
    )
    assert run(program, test) == Outcome(verdict="passed")
    assert run("double = lambda x: (i for i in range(x))", "assert list(double(3)) == [0, 1, 2]").verdict == (
        "passed"
    )
    assert (
        run("import re\ndouble = lambda x: re.match('', '')", "assert double(1) is not None").verdict
        == "passed"
    )


@pytest.mark.usefixtures("jail")
def test_nothing_is_left_when_the_grading_process_is_killed():
    code = (
        "from prunebench.evaluation.scoring.sandbox import *\n"
        "trial = Trial(program='import time; time.sleep(1000)', entry_point='f', setup='', test='')\n"
        f"run_trial(trial, Limits(cpu_seconds=9, wall_seconds=900, disk_bytes={MARK}))"
    )
    grading = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": SOURCES})
    _wait_until(lambda: len([line for line in left() if "-I" in line]) >= 3)
    os.kill(grading.pid, signal.SIGKILL)
    grading.wait()
    _wait_until(lambda: not left())


def _wait_until(reached) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_machine_without_a_guard_is_refused_with_its_name():
    code = (
        "from prunebench.errors import ResourceError\n"
        "from prunebench.evaluation.scoring import grader_named\n"
        "from prunebench.evaluation.scoring.sandbox import *\n"
        "trial = Trial(program='def f(): pass', entry_point='f', setup='', test='f()')\n"
        "for refused in (\n"
        "    lambda: run_trial(trial, Limits(cpu_seconds=1, wall_seconds=20)),\n"
        "    lambda: grader_named('program', allow_code_execution=True),\n"
        "):\n"
        "    try:\n"
        "        print(refused())\n"
        "    except ResourceError as error:\n"
        "        print(error.exit_code, error)\n"
    )
    command = [sys.executable, "-c", code]
    if not missing_guard():
        if shutil.which("unshare") is None:
            pytest.skip("no unshare command to make a machine without user namespaces")
        without = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
        command = ["unshare", "--user", "--map-root-user", "sh", "-c", without, "sh", *command]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("4 code from models cannot be run on this machine: it gives no ") == 2
    if not missing_guard():
        assert done.stdout.count("it gives no user namespace (") == 2


def test_programs_are_not_run_unless_that_is_allowed():
    with pytest.raises(InputError, match="set allow_code_execution: true"):
        grader_named("program", allow_code_execution=False)
