"""The seccomp filter of containers: what no sandbox may do, in the form that engines read.

An engine's own filter is as old as the engine: that of Debian 12 (20.10) opens vsock, which no
namespace of networks holds. 32-bit programs are refused whole, as bubblewrap's filter does.
"""

from __future__ import annotations

import errno
import functools
import json
from typing import Any

from clawrl_gym.envs.sandbox import seccomp

_ARCHITECTURES = ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
_PERSONALITY_BITS = [bit for bit in (1 << place for place in range(16, 28)) if bit != 0x2_0000]
"""Bits that weaken a program's memory protection; not the 32-bit name of Linux."""


@functools.cache
def security_options() -> list[str]:
    """Security options that a container is created with."""
    return ["no-new-privileges", f"seccomp={json.dumps(profile())}"]


def profile() -> dict[str, Any]:
    """The filter: a list of refusals."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": _ARCHITECTURES,
        "syscalls": [
            _refusal(*seccomp.REFUSED),
            _refusal("clone3", error=errno.ENOSYS),
            *(_refusal("clone", where=[_has_bit(0, bit)]) for bit in _bits(seccomp.CLONE_NEW_ANY)),
            *(
                _refusal("ioctl", where=[_compared(1, "EQ", request)])
                for request in (seccomp.TIOCSTI, seccomp.TIOCLINUX)
            ),
            *(_refusal("personality", where=[_has_bit(0, bit)]) for bit in _PERSONALITY_BITS),
            *_socket_refusals(),
        ],
    }


def _socket_refusals() -> list[dict[str, Any]]:
    highest = max(seccomp.FAMILIES)
    conditions = [
        [_compared(0, "EQ", family)] for family in range(highest) if family not in seccomp.FAMILIES
    ]
    conditions.append([_compared(0, "GT", highest)])
    protocol = _compared(2, "NE", seccomp.NETLINK_ROUTE)
    conditions.append([_compared(0, "EQ", seccomp.AF_NETLINK), protocol])
    return [_refusal("socket", error=errno.EAFNOSUPPORT, where=where) for where in conditions]


def _refusal(
    *names: str, error: int = errno.EPERM, where: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    rule = {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    return rule if where is None else rule | {"args": where}


def _compared(argument: int, how: str, value: int) -> dict[str, Any]:
    return {"index": argument, "value": value, "op": f"SCMP_CMP_{how}"}


def _has_bit(argument: int, bit: int) -> dict[str, Any]:
    return _compared(argument, "MASKED_EQ", bit) | {"valueTwo": bit}


def _bits(mask: int) -> list[int]:
    return [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
