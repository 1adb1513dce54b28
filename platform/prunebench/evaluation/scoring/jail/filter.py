"""A filter of system calls (seccomp) for what namespaces do not hold back.

Sockets of a virtual machine's own kind (vsock) ignore network namespaces, kernel keyrings (Kerberos tickets)
are inherited, and a ring (io_uring) makes system calls that no filter sees. All of these fail with EPERM, as
do those that look into other processes. What needs a capability is not listed: there is none.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Mapping, Sequence
from typing import Final

SOCKET: Final = "socket"
_COMMON = {"io_uring_setup": 425, "pidfd_getfd": 438}
CALLS: Final[Mapping[str, Mapping[str, int]]] = {
    "x86_64": {
        SOCKET: 41,
        "ptrace": 101,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "bpf": 321,
        "userfaultfd": 323,
        **_COMMON,
    },
    "aarch64": {
        "unshare": 97,
        "ptrace": 117,
        SOCKET: 198,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "perf_event_open": 241,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "bpf": 280,
        "userfaultfd": 282,
        **_COMMON,
    },
}
"""Processor -> number of each system call that is refused; sockets only beyond those between processes."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Where the kernel puts them."""
_LOAD, _IS, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_OTHER_NUMBERS = 0x40000000
"""From here on are the numbers of a second table of x86_64, which would slip through."""
_AF_UNIX = 1
_INSTRUCTION = struct.Struct("HBBI")


class Program(ctypes.Structure):
    """What prctl takes: the number of instructions and where they are."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def program() -> Program:
    """The filter for this processor.

    Raises:
        OSError: its system calls are not known here.
    """
    machine = platform.machine()
    if machine not in CALLS:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known")
    code = b"".join(_INSTRUCTION.pack(*line) for line in _lines(machine))
    return Program(len(code) // _INSTRUCTION.size, code)


def _lines(machine: str) -> Sequence[tuple[int, int, int, int]]:
    """Each is (operation, lines to skip if true, if false, operand)."""
    calls = CALLS[machine]
    refused = sorted(number for name, number in calls.items() if name != SOCKET)
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IS, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_IS_AT_LEAST, 0, 1, _OTHER_NUMBERS),
        (_RETURN, 0, 0, _REFUSE),
        *(line for number in refused for line in ((_IS, 0, 1, number), (_RETURN, 0, 0, _REFUSE))),
        (_IS, 0, 3, calls[SOCKET]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IS, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
