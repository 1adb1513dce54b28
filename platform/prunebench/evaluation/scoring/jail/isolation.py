"""Giving up, step by step, everything that code from a model must not have. Linux only.

Each step is a guard with a name; where the machine does not grant one, `MissingGuard` says which, and nothing
runs. After `isolate` this process is in user, mount, network, process and IPC namespaces of its own; its root
is a small file system in memory into which only the interpreter, the system's libraries and the packages that
tests use are bound, read-only; it has no capability and cannot get one back: a process under another root
cannot make further user namespaces, and no program on disk gives it privileges. `filter` refuses the system
calls that reach around all this.
"""

import ctypes
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prunebench.evaluation.scoring.jail.filter import program

NOBODY = 65534
_CLONE = {
    "mount namespace": 0x00020000,
    "IPC namespace": 0x08000000,
    "network namespace": 0x40000000,
    "process namespace": 0x20000000,
}
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
_KEPT_FLAGS = {os.ST_NOEXEC: 8, os.ST_NOATIME: 1024, os.ST_NODIRATIME: 2048, os.ST_RELATIME: 1 << 21}
"""Flags of a mount that a user namespace may not take off, as statvfs and as mount write them."""
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9
_STAGE = Path("/proc")
"""Where the new root is built: it is everywhere, and nothing of it is bound into the new root."""
_DEVICES = ("/dev/null", "/dev/urandom")
_HOME = "tmp"
"""The folder of the new root that is left writable, and the working folder."""
_INODES = 4096
"""Files and folders that may be made in it."""


class MissingGuard(Exception):
    """The name of a guard that this machine does not give, and why."""

    def __init__(self, guard: str, reason: str) -> None:
        super().__init__(guard, reason)
        self.guard, self.reason = guard, reason


def isolate(paths: Sequence[str], disk_bytes: int) -> None:
    """Put the calling process, which must have one thread, behind every guard.

    Args:
        paths: files and folders that stay visible, at the same place, read-only.
        disk_bytes: size of the file system in memory that takes the place of every other.

    Raises:
        MissingGuard: the machine does not grant one; nothing may be run.
    """
    if not sys.platform.startswith("linux"):
        raise MissingGuard("Linux namespaces", f"this is {sys.platform}")
    libc = _Libc()
    with _guard("out-of-memory priority"):
        Path("/proc/self/oom_score_adj").write_text("1000")
    user, group = _enter_user_namespace(libc)
    for name, flag in _CLONE.items():
        with _guard(name):
            libc.call("unshare", flag)
    with _guard("mount namespace"):
        _build_root(libc, paths, disk_bytes)
    with _guard("own file system root"):
        os.chroot(_STAGE)
        os.chdir(f"/{_HOME}")
    with _guard("unprivileged user"):
        _drop_privileges(libc, user, group)
    with _guard("system call filter"):
        libc.call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program()))


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    _Libc().call("prctl", _PR_SET_PDEATHSIG, _SIGKILL)


@contextmanager
def _guard(name: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise MissingGuard(name, str(error)) from error


class _Libc:
    """System calls that Python 3.11 does not offer."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 (what C takes)
        """Call a function that returns 0 when it works.

        Raises:
            OSError: it did not.
        """
        words = [ctypes.c_ulong(word) if isinstance(word, int) else word for word in arguments]
        if getattr(self._library, name)(*words) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")


def _enter_user_namespace(libc: _Libc) -> tuple[int, int]:
    """The user and group to end as. An ordinary user stays who it is; root becomes nobody.

    Limits on processes do not bind root, and root of this namespace must exist while its file system is
    built: so both are mapped, which takes a helper that stays outside.
    """
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        with _guard("user namespace"):
            libc.call("unshare", _CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        return user, group
    go_on, tell = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(tell)
        os._exit(_map_users(os.getppid()) if os.read(go_on, 1) else 0)
    os.close(go_on)
    with _guard("user namespace"):
        libc.call("unshare", _CLONE_NEWUSER)
    os.write(tell, b"\n")
    _, status = os.waitpid(helper, 0)
    os.close(tell)
    if status != 0:
        number = os.waitstatus_to_exitcode(status)
        raise MissingGuard("unprivileged user", f"uid_map: {os.strerror(number)}")
    return NOBODY, NOBODY


def _map_users(pid: int) -> int:
    """Map root and nobody into the user namespace of a process; the error number, or 0."""
    try:
        for kind in ("uid", "gid"):
            Path(f"/proc/{pid}/{kind}_map").write_text(f"0 0 1\n{NOBODY} {NOBODY} 1\n")
    except OSError as error:
        return error.errno or 1
    return 0


def _build_root(libc: _Libc, paths: Sequence[str], disk_bytes: int) -> None:
    libc.call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    _mount_memory(libc, _STAGE, f"size=1m,nr_inodes={_INODES},mode=755")
    home = _STAGE / _HOME
    home.mkdir()
    _mount_memory(libc, home, f"size={disk_bytes},nr_inodes={_INODES},mode=1777")
    for path in (*paths, *_DEVICES):
        if Path(path).exists():
            _bind(libc, Path(path))
            if path not in _DEVICES:
                _make_read_only(libc, _STAGE / path[1:])
    _make_read_only(libc, _STAGE)


def _mount_memory(libc: _Libc, place: Path, options: str) -> None:
    libc.call("mount", b"tmpfs", bytes(place), b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode())


def _bind(libc: _Libc, path: Path) -> None:
    place = _STAGE / path.relative_to("/")
    folder = place if path.is_dir() else place.parent
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        place.touch()
    libc.call("mount", bytes(path), bytes(place), None, _MS_BIND | _MS_REC, None)


def _make_read_only(libc: _Libc, place: Path) -> None:
    held = os.statvfs(place).f_flag
    kept = sum(flag for seen, flag in _KEPT_FLAGS.items() if held & seen)
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | kept
    libc.call("mount", None, bytes(place), None, flags, None)


def _drop_privileges(libc: _Libc, user: int, group: int) -> None:
    if os.geteuid() != user:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    libc.call("capset", header, (ctypes.c_uint32 * 6)())
    libc.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Another process of this user could else read the tests, and the nonce, in the judge's memory.
    libc.call("prctl", _PR_SET_DUMPABLE, 0)
    if 0 in os.getresuid() or 0 in os.getresgid():
        raise MissingGuard("unprivileged user", "the process is still root")
