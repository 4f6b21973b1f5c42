"""Coding agents, unmodified, are connected by `connect` and used by a person: sessions, kinds of
turns and next states are exact.

The policy is scripted: it calls the agent's shell once, then says that it is done. The person then
corrects it, in the same conversation.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from pathlib import Path

import pytest

from clawrl_gym.agents.cli.installation import installed
from tests.e2e.npm_packages import TOOLS
from tests.e2e.runs import ROOT
from tests.e2e.scripted_coder import Coder
from tests.support.gateway_rig import Bench
from tests.support.recordings import shipped

pytestmark = [pytest.mark.openclaw, pytest.mark.slow, pytest.mark.timeout(600)]

ARCH = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "x64")
PROGRAMS = {
    "codex": "node_modules/.bin/codex",
    "claude-code": f"node_modules/@anthropic-ai/claude-code-linux-{ARCH}/claude",
    "opencode": f"node_modules/opencode-linux-{ARCH}/bin/opencode",
    "pi": "node_modules/.bin/pi",
}
FREELY = {"codex": ("--dangerously-bypass-approvals-and-sandbox",),
          "claude-code": ("--dangerously-skip-permissions",)}  # fmt: skip
"""Nobody is there to permit what the policy, which this test plays, wants to run."""
FIRST = {
    "codex": ("exec", "--skip-git-repo-check"),
    "claude-code": ("-p",),
    "opencode": ("run",),
    "pi": ("-p",),
}
AGAIN = {
    "codex": ("exec", "resume", "--last", "--skip-git-repo-check"),
    "claude-code": ("-p", "--continue"),
    "opencode": ("run", "--continue"),
    "pi": ("-p", "--continue"),
}
SILENCE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "IS_SANDBOX": "1",
    "NO_COLOR": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "PI_OFFLINE": "1",
}
ASKED = "Write hello into note.txt."
WRONG = "That's wrong, it should say goodbye."


async def ran(folder: Path, *command: str, **environment: str) -> str:
    """What a program printed that came to a good end."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**SILENCE, "HOME": str(folder), "PATH": TOOLS, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(150):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, printed.decode(errors="replace")[-3000:]
    return printed.decode(errors="replace")


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_persons_conversation_with_an_agent_is_exact(
    bench: Bench, name: str, tmp_path: Path
) -> None:
    bench.live = shipped()
    await bench.restart()
    home = tmp_path / "home"
    home.mkdir()
    bench.policy._reply = Coder(bench, ["echo hello > note.txt"])
    program = str(await asyncio.to_thread(installed, name) / PROGRAMS[name])
    connect = ("-m", "clawrl_gym.connect", name, "--url", bench.url, "--key", bench.gateway.key)
    await ran(home, sys.executable, *connect, "--model", "tiny", PYTHONPATH=str(ROOT))
    free = FREELY.get(name, ())
    first = await ran(home, program, *FIRST[name], *free, ASKED)
    assert "It is done." in first
    assert (home / "note.txt").read_text() == "hello\n"
    await ran(home, program, *AGAIN[name], *free, WRONG)

    rows = await bench.store.sessions()
    turns = {row.id: await bench.store.turns_of(row.id) for row in rows}
    conversations = {
        session: [turn for turn in made if turn.kind == "main"] for session, made in turns.items()
    }
    ((session, main),) = [(key, made) for key, made in conversations.items() if made]
    assert len(main) == 3, "the call, its end, and the answer to the correction"
    states = await bench.store.next_states_of(session)
    call, done, again = main
    assert call.id in states
    assert done.id in states
    assert again.id not in states
    assert [message["role"] for message in states[call.id]] == ["tool"]
    assert WRONG in str(states[done.id][-1].get("content"))
    assert call.reply.get("tool_calls")
    assert done.reply.get("content") == "It is done."
