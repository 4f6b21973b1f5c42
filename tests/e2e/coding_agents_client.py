"""The real Codex and Claude Code from npm: connected by `connect`, asked one thing."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from tests.e2e.npm_packages import TOOLS, install
from tests.e2e.runs import ROOT

PACKAGE = Path(__file__).parent / "coding_agents"
SILENCE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "NO_COLOR": "1",
}
ARGUMENTS = {
    "codex": ("exec", "--skip-git-repo-check"),
    "claude-code": ("-p",),
}


def ask(
    name: str, words: str, folder: Path, url: str, key: str
) -> subprocess.CompletedProcess[str]:
    """Its answer to one message. `folder` is its home and where it works; it goes on from there."""
    environment = {**SILENCE, "HOME": str(folder), "PATH": TOOLS}
    connect = [sys.executable, "-m", "clawrl_gym.connect", name, "--url", url, "--key", key]
    with_ours = environment | {"PYTHONPATH": str(ROOT)}
    subprocess.run(connect, cwd=folder, env=with_ours, check=True, capture_output=True, timeout=60)
    return subprocess.run(
        [str(program(name)), *ARGUMENTS[name], words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def program(name: str) -> Path:
    """Claude Code's own script that would link the program is not run: packages run none here."""
    modules = install(PACKAGE) / "node_modules"
    if name == "codex":
        return modules / ".bin" / "codex"
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return modules / "@anthropic-ai" / f"claude-code-{sys.platform}-{machine}" / "claude"
