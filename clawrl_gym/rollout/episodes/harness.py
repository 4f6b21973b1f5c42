"""run_harness: an external program as the agent of an episode.

The program gets the session's base URL, asks the policy there as any OpenAI client does, and acts
through a Unix socket (see `action_socket`). Its environment holds, beside PATH and its own HOME:

    OPENAI_BASE_URL (OPENAI_API_BASE)  the session's base URL
    OPENAI_API_KEY                     a key for it
    CLAWRL_MODEL                       the model's name
    CLAWRL_SOCKET                      path of the socket
    CLAWRL_TASK                        path of a JSON file: task, observation, system, tools, model
    CLAWRL_TEMPERATURE                 where an evaluation wants its own; else empty

In the arguments {base_url}, {model}, {task} (the file), {socket}, {folder} (its HOME) and {agents}
(the folder of clawrl_gym.agents) stand for the same. The step that ends the episode also ends the
session, before the program hears of it: what the program still asks is not a turn of the episode.

The program is trusted: it runs beside the worker, only its actions are inside the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import EnvError, boundary
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.rollout.episodes.action_socket import ActionSocket, HarnessChat
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.deadline import WaitClock, no_waits
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, ending_of
from clawrl_gym.rollout.episodes.progress import InThread, Progress, TextEnv

_LEAVE_S = 10.0
"""For the program to end by itself after the episode has ended."""
_KILL_S = 5.0
_SHOWN_CHARS = 500
_ENV = ("PATH", "LANG", "LC_ALL", "TZ")
"""All that a program inherits: the worker's environment may hold keys."""


@dataclass(frozen=True, slots=True)
class Harness:
    """A program, and where it finds the policy."""

    command: tuple[str, ...]
    policy: PolicyAddress

    def base_url(self, session_id: str) -> str:
        """Address for the program."""
        return self.policy.session_url(session_id)


async def run_harness(
    spec: EpisodeSpec,
    env: TextEnv,
    harness: Harness,
    chat: HarnessChat,
    in_thread: InThread,
    waits: WaitClock = no_waits,
) -> Episode:
    """Run one episode to its end and report it to the gateway. Raises nothing but cancellation."""
    started_s = time.monotonic()
    actions = ActionSocket(spec, Progress(env, in_thread), chat, started_s)
    stop, error = await ending_of(spec, actions.progress, lambda: _play(actions, harness), waits)
    return actions.episode or await actions.conclude(stop, error, None)


async def _play(actions: ActionSocket, harness: Harness) -> StopReason:
    """Play until the episode or the program ends; a program's own end is graded as it is."""
    await actions.chat.begin(actions.spec)
    scratch = await asyncio.to_thread(Scratch, "harness")
    folder = scratch.path
    try:
        async with actions.listening(folder / "socket"):
            code = await _run(actions, harness, folder)
        if actions.failure is not None:
            with boundary(EnvError, "step"):
                raise actions.failure
        if actions.episode is not None:
            return actions.episode.stop_reason
        if code != 0:
            raise EnvError(f"the harness ended with exit code {code}: {_tail(folder / 'output')}")
    finally:
        await asyncio.to_thread(scratch.remove)
    await actions.progress.finish()
    return StopReason.TRUNCATED


async def _run(actions: ActionSocket, harness: Harness, folder: Path) -> int | None:
    """The program's exit code; None when it had to be ended after the episode."""
    program = await _start(actions, harness, folder)
    exited = asyncio.ensure_future(program.wait())
    over = asyncio.ensure_future(actions.ended.wait())
    try:
        await asyncio.wait((exited, over), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((exited,), timeout=_LEAVE_S)
        return exited.result() if exited.done() else None
    finally:
        over.cancel()
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        await asyncio.wait((exited,), timeout=_KILL_S)


async def _start(
    actions: ActionSocket, harness: Harness, folder: Path
) -> asyncio.subprocess.Process:
    spec, progress = actions.spec, actions.progress
    base_url = harness.base_url(spec.session_id)
    names = {
        "base_url": base_url, "model": harness.policy.model, "task": str(folder / "task.json"),
        "socket": str(folder / "socket"), "folder": str(folder),
        "agents": str(Path(__file__).parents[2] / "agents"),
    }  # fmt: skip
    task = {
        "task": spec.task.id,
        "observation": progress.observations[0],
        "model": harness.policy.model,
        "system": progress.system,
        "tools": progress.tools,
    }
    (folder / "task.json").write_text(json.dumps(task))
    environ = {name: os.environ[name] for name in _ENV if name in os.environ} | {
        "HOME": str(folder),
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": harness.policy.key,
        "CLAWRL_MODEL": harness.policy.model,
        "CLAWRL_SOCKET": names["socket"],
        "CLAWRL_TASK": names["task"],
        "CLAWRL_TEMPERATURE": "" if spec.temperature is None else f"{spec.temperature:g}",
    }
    with (folder / "output").open("wb") as output:
        try:
            return await asyncio.create_subprocess_exec(
                *_filled(harness.command, names),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvError(f"cannot start the harness {harness.command[0]!r}: {error}") from error


def _filled(command: Sequence[str], names: dict[str, str]) -> list[str]:
    """The command with its names filled in; other braces are the program's own."""
    filled = []
    for part in command:
        for name, value in names.items():
            part = part.replace(f"{{{name}}}", value)
        filled.append(part)
    return filled


def _tail(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()[-_SHOWN_CHARS:]
    return ""
