"""run_guest: an agent that works inside the episode's own sandbox.

It is started there with the task's text, asks the policy through a door that leads to its session
alone (`session_relay.py`), and acts by itself: no step of the environment is its own. When it has
ended, the environment grades what it left:

- it ended by itself: as if it had submitted; a task in several steps starts it again for the next;
- it failed, used up its replies or its time: what is there is graded, and the episode is truncated;
- it ended without a reply, or after the policy failed: infrastructure, which earns nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar

from clawrl_gym.agents.cli.recipe import Guest, Start, start_of
from clawrl_gym.core.errors import EnvError, PolicyError, SandboxError, boundary
from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.envs.sandbox.interface import HoldsAgents, Workplace
from clawrl_gym.rollout.episodes.action_socket import HarnessChat
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.deadline import Deadline, WaitClock, no_waits
from clawrl_gym.rollout.episodes.episode import (
    EpisodeSpec,
    conclude,
    ending_of,
    record_end,
    with_report,
)
from clawrl_gym.rollout.episodes.guest_process import Exit, GuestProcess
from clawrl_gym.rollout.episodes.progress import InThread, Progress, TextEnv
from clawrl_gym.rollout.episodes.session_relay import SessionRelay

T = TypeVar("T")
_TIME_SHARE = 0.9
"""Share of an episode's time that an agent has at most; the rest is for the grade."""
_log = logging.getLogger(__name__)


class HostEnv(TextEnv, Protocol):
    """An environment in whose sandbox an agent can work."""

    agent_mounts: Mapping[str, str]
    """Folders that its sandboxes show from the next reset on."""

    def workplace(self) -> Workplace:
        """The sandbox of the current episode."""
        ...


async def run_guest(
    spec: EpisodeSpec,
    env: HostEnv,
    guest: Guest,
    policy: PolicyAddress,
    chat: HarnessChat,
    in_thread: InThread,
    waits: WaitClock = no_waits,
) -> Episode:
    """Run one episode to its end and report it to the gateway. Raises nothing but cancellation."""
    started_s = time.monotonic()
    env.agent_mounts = guest.mounts
    visit = _Visit(spec, env, guest, policy, in_thread, waits)
    stop, error = await ending_of(spec, visit.progress, lambda: visit.play(chat), waits)
    episode = conclude(spec, visit.progress, stop, error or visit.problem, started_s)
    episode = replace(episode, turns=visit.relay.replies)
    last_state = with_report([], visit.progress, episode) or None
    return await record_end(spec, episode, last_state, chat)


class _Visit:
    """An agent's episode."""

    def __init__(
        self,
        spec: EpisodeSpec,
        env: HostEnv,
        guest: Guest,
        policy: PolicyAddress,
        in_thread: InThread,
        waits: WaitClock,
    ) -> None:
        self.progress = Progress(env, in_thread)
        self.problem: str | None = None
        """What was wrong with an agent whose work is graded all the same."""
        self.relay = SessionRelay(
            policy.session_url(spec.session_id),
            policy.key,
            timeout_s=spec.longest_s,
            temperature=spec.temperature,
        )
        self._spec, self._env, self._guest, self._model = spec, env, guest, policy.model
        self._in_thread, self._waits = in_thread, waits

    async def play(self, chat: HarnessChat) -> StopReason:
        """Play until the task or the agent is at its end."""
        spec, progress = self._spec, self.progress
        await chat.begin(spec)
        self.relay.most_replies = min(spec.max_turns, progress.max_replies)
        time_s = min(self._guest.timeout_s or spec.timeout_s, _TIME_SHARE * spec.timeout_s)
        ends_s = time.monotonic() + time_s
        while True:
            place = await self._call(self._env.workplace)
            ended = await self._run(place, ends_s - time.monotonic())
            _log.info("session %s: exit code %s %s", spec.session_id, ended.code, ended.output)
            self._require_fair(ended)
            self.problem = ended.problem
            if self.problem is not None or place.submission is None:
                await progress.finish()
                return StopReason.TERMINATED if self.problem is None else StopReason.TRUNCATED
            stop = await progress.step(place.submission)
            if stop is not None:
                return stop

    def _require_fair(self, ended: Exit) -> None:
        """Raise for an end that is not the agent's doing."""
        if self.relay.failure is not None:
            raise PolicyError(self.relay.failure)
        if not self.relay.replies:
            what = ended.problem or "the agent came to a good end"
            raise EnvError(f"{what}; it never got a reply of the policy")

    async def _run(self, place: Workplace, left_s: float) -> Exit:
        """One start of the agent, to its end."""
        sandbox = place.sandbox
        if not isinstance(sandbox, HoldsAgents):
            raise SandboxError(f"a {type(sandbox).__name__} cannot hold an agent: no listen()")
        listener = await self._call(sandbox.listen)
        async with self.relay.listening(listener):
            start = self._start(listener.getsockname()[1], place.workdir)
            process = await self._call(GuestProcess.started, sandbox, start.files)
            try:
                why = await self._end_of(process, left_s)
                return await self._call(process.end, why)
            except SandboxError as error:  # the grade finds out whose doing it was
                return Exit(None, f"lost its sandbox ({error})", "")
            finally:
                with suppress(SandboxError):
                    await self._call(process.clean)

    def _start(self, port: int, workdir: str) -> Start:
        return start_of(
            self._guest.recipe,
            port=port,
            model=self._model,
            instruction=self.progress.observations[-1],
            workdir=workdir,
        )

    async def _end_of(self, process: GuestProcess, left_s: float) -> str:
        """Wait for its end: why it is to be ended; empty when it has ended by itself."""

        async def over() -> StopReason:
            while not self.relay.spent.is_set() and await self._call(process.is_alive):
                pass
            return StopReason.TERMINATED

        try:
            await Deadline(max(0.0, left_s), self._waits).hold(over())
        except TimeoutError:
            return "had not ended in time and was ended"
        if self.relay.spent.is_set():
            return f"asked for more than the task's {self.relay.most_replies:g} replies"
        return ""

    async def _call(self, function: Callable[..., T], *args: object) -> T:
        """A call of the sandbox, on the environment's thread."""
        with boundary(EnvError, "the agent's sandbox"):
            result: T = await self._in_thread(function, *args)
        return result
