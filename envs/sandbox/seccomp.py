"""The system calls that no sandbox may make; as a classic BPF program for bubblewrap.

A list of refusals, by number and architecture: what loads code into the kernel, changes mounts,
namespaces or clocks, reads other processes, hides memory, or has a history of holes (io_uring, bpf,
keys, userfaultfd). Sockets are a list of what programs need: local, IPv4, IPv6, and the part of
netlink that tells a program its interfaces; so no road to the host that is no network (vsock).
Foreign and 32-bit calling conventions are refused whole. Capabilities are gone already; this is the
second lock.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

from clawrl_gym.core.errors import SandboxError

REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_mempolicy": (239, 236),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "_sysctl": (156, None),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
"""Numbers on x86_64 and aarch64 by name; None where an architecture has no such call."""
_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_PERSONALITY = {"x86_64": 135, "aarch64": 92}
_CLONE3 = 435  # on both
_X32_BIT = 0x4000_0000
CLONE_NEW_ANY = 0x7E02_0080  # every CLONE_NEW* flag
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_NETLINK = 16
FAMILIES = (1, 2, 10, AF_NETLINK)
"""Allowed families of sockets: local, IPv4, IPv6, netlink."""
NETLINK_ROUTE = 0
_PERSONALITIES = (0, 0x0008, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Linux, and its 32-bit name for itself; the last one only asks. Others weaken memory's layout."""

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_AT_NUMBER, _AT_ARCH, _AT_ARG0, _AT_ARG1, _AT_ARG2 = 0, 4, 16, 24, 32


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def program(machine: str | None = None) -> bytes:
    """The filter for an architecture (the machine's own by default)."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        supported = ", ".join(sorted(_AUDIT_ARCH))
        raise SandboxError(
            f"no seccomp filter for architecture {machine!r}; known are: {supported}"
        )
    column = 0 if machine == "x86_64" else 1
    refuse = _op(_RETURN, _ERRNO | errno.EPERM)
    code = [_op(_LOAD, _AT_ARCH), _op(_IF_EQUAL, _AUDIT_ARCH[machine], 1, 0)]
    code += [_op(_RETURN, _KILL_PROCESS), _op(_LOAD, _AT_NUMBER)]
    if machine == "x86_64":
        code += [_op(_IF_AT_LEAST, _X32_BIT, 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            code += [_op(_IF_EQUAL, number, 0, 1), refuse]
    # clone3 hides its flags behind a pointer: "not implemented" makes libc fall back to clone.
    code += [_op(_IF_EQUAL, _CLONE3, 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    code += _for_call(_CLONE[machine], [
        _op(_LOAD, _AT_ARG0), _op(_IF_ANY_BIT, CLONE_NEW_ANY, 0, 1), refuse,
    ])  # fmt: skip
    code += _for_call(_IOCTL[machine], [
        _op(_LOAD, _AT_ARG1), _op(_IF_EQUAL, TIOCSTI, 1, 0), _op(_IF_EQUAL, TIOCLINUX, 0, 1),
        refuse,
    ])  # fmt: skip
    code += _for_call(
        _PERSONALITY[machine], [_op(_LOAD, _AT_ARG0), *_one_of(_PERSONALITIES, refuse)]
    )
    code += _for_call(_SOCKET[machine], _socket_rule())
    code += [_op(_RETURN, _ALLOW)]
    return b"".join(code)


def _for_call(number: int, rule: list[bytes]) -> list[bytes]:
    """A rule for one call, which ends with an answer; what it lets through is allowed."""
    return [_op(_IF_EQUAL, number, 0, len(rule) + 1), *rule, _op(_RETURN, _ALLOW)]


def _one_of(values: tuple[int, ...], refuse: bytes) -> list[bytes]:
    """Refuse what was loaded unless it is one of these."""
    last = len(values)
    return [*(_op(_IF_EQUAL, value, last - at) for at, value in enumerate(values)), refuse]


def _socket_rule() -> list[bytes]:
    """A family that no sandbox needs is one that this kernel does not have."""
    unknown = _op(_RETURN, _ERRNO | errno.EAFNOSUPPORT)
    families = _one_of(FAMILIES, unknown)
    protocol = [_op(_LOAD, _AT_ARG2), _op(_IF_EQUAL, NETLINK_ROUTE, 1, 0), unknown]
    return [
        _op(_LOAD, _AT_ARG0),
        *families,
        _op(_IF_EQUAL, AF_NETLINK, 0, len(protocol)),
        *protocol,
    ]


def program_fd() -> int:
    """The filter in an inheritable memory file, as `bwrap --seccomp` wants it."""
    fd = os.memfd_create("seccomp", 0)
    os.write(fd, program())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
