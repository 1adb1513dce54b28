"""The command line in this process, without what the shell says of Ray."""

import pytest

from prunebench import cli
from ray_head import RAY


@pytest.fixture
def prunebench(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    for name in RAY:
        monkeypatch.delenv(name, raising=False)
    # Nobody's own token is sent anywhere.
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "no-token"))

    def call(*words):
        with pytest.raises(SystemExit) as done:
            cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return done.value.code or 0, captured.out, captured.err

    return call
