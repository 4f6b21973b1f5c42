"""The limit of open files and sockets of this process."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path


def allow_open_files(count: int) -> None:
    """Raise the limit to `count`, or as far as the system permits; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        hard = _raised(count, hard)
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


def _raised(count: int, hard: int) -> int:
    """The hard limit, raised where this process has that right."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError, ValueError):
            most = min(count, int(Path("/proc/sys/fs/nr_open").read_text()))
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, most), most))
            return most
    return hard
