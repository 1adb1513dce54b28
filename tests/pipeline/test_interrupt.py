"""Ctrl-C and SIGTERM: exit code 130, and the same command finishes the run."""

import signal
import subprocess

import pytest

from kill import command, unit_events
from prunebench.store.diff import diff
from prunebench.store.read import read_runs


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_exits_with_130_and_the_same_command_resumes(finished, tmp_path, number):
    path, undisturbed = finished
    store = tmp_path / "store"
    process = subprocess.Popen(
        command(path, store),
        stderr=subprocess.PIPE,
        text=True,
        # Shells let what they start in the background ignore Ctrl-C, and whatever that starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    next(unit_events(store, process))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().endswith("interrupted: run the same command to resume")
    assert "Traceback" not in errors
    done = subprocess.run(command(path, store), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(read_runs(store)["status"]) == ["done", "interrupted"]
    assert diff(undisturbed, store) == []
