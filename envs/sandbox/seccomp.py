"""The system calls that no sandbox may make, as a classic BPF program for bubblewrap.

A list of refusals, by number and architecture: what loads code into the kernel, changes mounts,
namespaces or clocks, reads other processes, or has a history of holes (io_uring, bpf, keys,
userfaultfd). Foreign and 32-bit calling conventions are refused whole. Capabilities are gone
already; this is the second lock.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

from clawrl_gym.core.errors import SandboxError

# name: (x86_64, aarch64); None where an architecture has no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
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
    "migrate_pages": (256, 238),
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
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_CLONE3 = 435  # on both
_X32_BIT = 0x4000_0000
_CLONE_NEW_ANY = 0x7E02_0080  # every CLONE_NEW* flag
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_AT_NUMBER, _AT_ARCH, _AT_ARG0, _AT_ARG1 = 0, 4, 16, 24


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
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            code += [_op(_IF_EQUAL, number, 0, 1), refuse]
    # clone3 hides its flags behind a pointer: "not implemented" makes libc fall back to clone.
    code += [_op(_IF_EQUAL, _CLONE3, 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    code += [_op(_IF_EQUAL, _CLONE[machine], 0, 4), _op(_LOAD, _AT_ARG0)]
    code += [_op(_IF_ANY_BIT, _CLONE_NEW_ANY, 0, 1), refuse, _op(_RETURN, _ALLOW)]
    code += [_op(_IF_EQUAL, _IOCTL[machine], 0, 5), _op(_LOAD, _AT_ARG1)]
    code += [_op(_IF_EQUAL, _TIOCSTI, 0, 1), refuse, _op(_IF_EQUAL, _TIOCLINUX, 0, 1), refuse]
    code += [_op(_RETURN, _ALLOW)]
    return b"".join(code)


def program_fd() -> int:
    """The filter in an inheritable memory file, as `bwrap --seccomp` wants it."""
    fd = os.memfd_create("seccomp", 0)
    os.write(fd, program())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
