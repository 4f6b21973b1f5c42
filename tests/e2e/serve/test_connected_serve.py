"""Claude Code, unmodified and connected by `connect`, talks to the real `serve`, which learns.

Its own instructions are longer than the tiny policy's context: the person gives it shorter ones,
and no tools.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.cli.installation import installed
from tests.e2e.npm_packages import TOOLS
from tests.e2e.runs import ROOT
from tests.e2e.serving import Serving
from tests.e2e.test_connected_agents import PROGRAMS, SILENCE, WRONG

pytestmark = [
    pytest.mark.vllm, pytest.mark.ray, pytest.mark.openclaw, pytest.mark.slow,
    pytest.mark.timeout(600),
]  # fmt: skip
BRIEF = ("--tools", "", "--system-prompt", "You are brief.")


def ran(home: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=home,
        env={**SILENCE, "HOME": str(home), "PATH": TOOLS, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_correction_in_claude_code_is_learned_from(serving: Serving, tmp_path: Path) -> None:
    claude = str(installed("claude-code") / PROGRAMS["claude-code"])
    point = ("-m", "clawrl_gym.connect", "claude-code", "--url", serving.url, "--key", serving.key)
    ran(tmp_path, sys.executable, *point, PYTHONPATH=str(ROOT))
    known = {row["id"] for row in serving.http.get("/v1/sessions").json()["data"]}
    assert ran(tmp_path, claude, "-p", *BRIEF, "What is 2 plus 3?").strip()
    before = len(serving.lines)
    ran(tmp_path, claude, "-p", "--continue", *BRIEF, WRONG)

    rows = serving.http.get("/v1/sessions").json()["data"]
    (session,) = {row["id"] for row in rows} - known
    corrected = serving.wait_until(lambda: judged(serving.session(session)), "a verdict")
    assert [message["content"] for message in corrected["next_state"]] == [WRONG]
    verdict = corrected["verdicts"][-1]
    assert verdict["value"] == -1
    assert any(WRONG in hint for hint in verdict["detail"]["hints"])
    serving.wait_for("update ", after=before)


def judged(session: dict[str, Any]) -> dict[str, Any] | None:
    """The first main turn, once it has a verdict."""
    first: dict[str, Any] = next(turn for turn in session["turns"] if turn["kind"] == "main")
    return first if first["verdicts"] else None
