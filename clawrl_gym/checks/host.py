"""Checks of the machine itself: processor, memory, disk, loopback, isolation, GPU."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from pathlib import Path

from clawrl_gym.checks.check import MachineCheck, Status, optional, required, version
from clawrl_gym.core import provenance
from clawrl_gym.core.installation import how_to_install

MIN_MEMORY_GB = 6.0
MIN_DISK_GB = 2.0
MIN_SHM_GB = 1.0
MIN_OPEN_FILES = 4096


def check_cpu(flags: set[str], machine: str) -> MachineCheck:
    """Cores, and the vector instructions of vLLM's CPU build."""
    cores = provenance.usable_cores()
    if machine in ("x86_64", "AMD64"):
        best = next((f for f in ("amx_bf16", "avx512f", "avx2") if f in flags), None)
        ok = best is not None
        finding = f"{cores} cores, {best or 'no AVX2'}"
    else:
        ok, finding = True, f"{cores} cores, {machine}"
    return required(
        "processor", ok, finding, "vLLM on the CPU (AVX2 or better)",
        f"use a machine with AVX2, or a GPU: {how_to_install('gpu')}",
    )  # fmt: skip


def check_memory(total_gb: float, available_gb: float) -> MachineCheck:
    """Main memory that a default run may use."""
    return required(
        "memory", available_gb >= MIN_MEMORY_GB,
        f"{available_gb:.1f} GiB free of {total_gb:.1f}",
        f"a default run ({MIN_MEMORY_GB:.0f} GiB)",
        "end other programs, or take a smaller run: rollout.envs_per_worker=16 "
        "policy.kv_cache_gb=0.1",
    )  # fmt: skip


def check_disk(folder: Path) -> MachineCheck:
    """Room for runs/."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free_gb = shutil.disk_usage(folder).free / 2**30
    writable = os.access(folder, os.W_OK)
    finding = f"{free_gb:.1f} GiB free at {folder}" + ("" if writable else ", not writable")
    return required(
        "disk", free_gb >= MIN_DISK_GB and writable, finding, f"runs/ ({MIN_DISK_GB:.0f} GiB)",
        "make room, or write elsewhere: run.root=PATH",
    )  # fmt: skip


def check_shm(folder: Path) -> MachineCheck:
    """Shared memory of Ray and vLLM."""
    size_gb = shutil.disk_usage(folder).total / 2**30 if folder.is_dir() else 0.0
    return optional(
        "/dev/shm", size_gb >= MIN_SHM_GB, f"{size_gb:.1f} GiB" if size_gb else "not there",
        "Ray's object store (slower on disk)",
        "mount -o remount,size=2G /dev/shm (in Docker: --shm-size=2g)",
    )  # fmt: skip


def check_open_files() -> MachineCheck:
    """The limit of files and connections of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return optional(
        "open files", soft >= MIN_OPEN_FILES or soft < 0, f"{soft} (may be raised to {hard})",
        "hundreds of environments at a time", "ulimit -n 65536",
    )  # fmt: skip


def check_loopback() -> MachineCheck:
    """Whether a local server can be opened and reached."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=1.0):
                ok, finding = True, "a port can be opened and reached"
    except OSError as error:
        ok, finding = False, str(error)
    return required("loopback", ok, finding, "vLLM and the gateway", "ip link set lo up")


def check_isolation() -> list[MachineCheck]:
    """The means of isolating sandboxes, proved by starting one."""
    try:
        from clawrl_gym.envs.sandbox.bubblewrap import prove_isolation
        from clawrl_gym.envs.sandbox.isolation import isolation_report
    except ImportError as error:
        cure = how_to_install("cpu")
        return [required("sandbox", False, str(error), "terminal tasks", cure)]
    findings = isolation_report()
    if all(finding.ok for finding in findings if finding.required):
        findings.append(prove_isolation())
    return [
        (required if finding.required else optional)(
            finding.name, finding.ok, finding.detail, "terminal tasks in isolation", finding.cure
        )
        for finding in findings
    ]


def check_gpu(names: list[str]) -> MachineCheck:
    """NVIDIA devices and a vLLM build that can use them."""
    finding = ", ".join(names) or "none (the CPU build of vLLM serves)"
    if names and not version("vllm"):
        return MachineCheck(
            "GPU", Status.OPTIONAL, f"{finding}; the installed vLLM cannot use it",
            "larger models", how_to_install("gpu"),
        )  # fmt: skip
    cure = f"install the NVIDIA driver, then: {how_to_install('gpu')}"
    return optional("GPU", bool(names), finding, "larger models", cure)
