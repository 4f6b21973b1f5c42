"""The Ray worker: one async actor that holds many environments, whose calls block threads.

A slot is one episode at a time, on any of the run's stages; each stage has as many environments, or
fewer where it says so, made when they are first used. What they hold of threads is in `threads.py`.
An environment that failed is closed and built anew for the next episode; a sandbox is opened at
each reset, so nothing of an episode reaches the next.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import ParamSpec, TypeVar

from clawrl_gym.agents.agent import Agent
from clawrl_gym.agents.cli.installation import guest_of
from clawrl_gym.config import AgentConfig, EnvConfig
from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.core.plugins import (
    AGENTS,
    ENVIRONMENTS,
    SANDBOXES,
    check_fingerprints,
    fingerprints,
)
from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.rollout.collection.batches import Beginning, Ending, PlayedBatches
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerRetired
from clawrl_gym.rollout.episodes.chat import PolicyAddress, PolicyChat, chat_of
from clawrl_gym.rollout.episodes.environment_thread import EnvironmentThread
from clawrl_gym.rollout.episodes.episode import Bounds, EpisodeSpec, run_episode
from clawrl_gym.rollout.episodes.guest import run_guest
from clawrl_gym.rollout.episodes.harness import Harness, run_harness
from clawrl_gym.rollout.episodes.stage import Stage, Stages
from clawrl_gym.rollout.episodes.threads import SharedThreads
from clawrl_gym.rollout.memory import Cure, MemoryWatch
from clawrl_gym.rollout.notices import Notices

P = ParamSpec("P")
T = TypeVar("T")
_FILM_TIMEOUT_S = 30.0
_SPOILS_ENVIRONMENTS = (StopReason.ENV_ERROR, StopReason.DEADLINE, StopReason.AGENT_FAULT)
"""Ends after which nobody knows what the environment is in the middle of."""
_log = logging.getLogger(__name__)


def build_agent(config: AgentConfig, env: EnvConfig) -> Agent:
    """The configured agent; `auto` follows the environment."""
    name = env.usual_agent if config.type == "auto" else config.type
    agent: Agent = AGENTS.resolve(name).build(config)
    return agent


def plugins_of(stages: Stages) -> dict[str, str]:
    """Fingerprints of the classes of other packages that a worker works with."""
    paths: list[str | None] = []
    for stage in stages.values():
        env, agent = stage.env, stage.agent
        sandbox = getattr(env, "sandbox", None)
        paths += [ENVIRONMENTS.path(env.type), getattr(env, "target", None)]
        paths += env.import_paths
        if agent.type not in AGENTS.words:
            paths.append(AGENTS.path(agent.type))
        if sandbox is not None and sandbox.type not in SANDBOXES.words:
            paths.append(SANDBOXES.path(sandbox.type))
    return fingerprints(path for path in paths if path and not path.startswith("clawrl_gym."))


def _difference(plugins: Mapping[str, str]) -> ConfigError | None:
    try:
        check_fingerprints(plugins)
    except ConfigError as error:
        return error
    return None


class _Cast:
    """A stage in this process: who acts, and the environments to act in."""

    def __init__(
        self, stage: Stage, slots: int, threads: SharedThreads, policy: PolicyAddress
    ) -> None:
        agent = stage.agent
        self._agent = None if agent.is_program else build_agent(agent, stage.env)
        self._guest = guest_of(agent) if agent.type == "cli" else None
        self._harness = Harness(tuple(agent.command), policy)
        self._policy = policy
        self._bounds = Bounds(agent.context, agent.max_context_chars, agent.max_reply_tokens)
        self._films = getattr(stage.env, "films", "none")
        most = min(slots, stage.envs_per_worker or slots)
        self.room = asyncio.Semaphore(most)
        self.all = [EnvironmentThread(stage.env, number, threads) for number in range(most)]
        self.free = deque(self.all)

    def films_of(self, spec: EpisodeSpec) -> bool:
        """Whether this episode is filmed."""
        is_measured = spec.group_id is None
        return self._films == "all" or (self._films == "measured" and is_measured)

    async def play(self, spec: EpisodeSpec, slot: EnvironmentThread, chat: PolicyChat) -> Episode:
        if self._guest is not None:
            return await run_guest(
                spec, slot, self._guest, self._policy, chat, slot.call, chat.waits_of(spec)
            )
        if self._agent is None:
            return await run_harness(
                spec, slot, self._harness, chat, slot.call, chat.waits_of(spec)
            )
        return await run_episode(
            spec, slot, self._agent, chat, slot.call, self._bounds, chat.waits_of(spec)
        )


class RolloutWorker(EpisodeRunner):
    """Runs episodes; as many at a time as it has slots. `run/cluster.py` makes an actor of it."""

    def __init__(
        self,
        stages: Stages,
        slots: int,
        policy: PolicyAddress,
        request_timeout_s: float,
        plugins: Mapping[str, str] | None = None,
        growth_mb: int = 0,
    ) -> None:
        """`plugins`: fingerprints that the driver has; another one here is told by `ready`.
        `growth_mb`: as `MemoryWatch` has it."""
        self._problem = _difference(plugins or {})
        if self._problem is not None:
            return
        self._slots = asyncio.Semaphore(slots)
        self._threads = SharedThreads()
        self._casts = {
            name: _Cast(stage, slots, self._threads, policy) for name, stage in stages.items()
        }
        self._slot_count = slots
        self._memory = MemoryWatch(slots, growth_mb)
        self._stale: set[EnvironmentThread] = set()
        """Environments to recreate before their next episode."""
        self._in_flight = 0
        self._batches = PlayedBatches(self.run)
        self._retires = False
        self._policy = policy
        self._request_timeout_s = request_timeout_s
        self._replaceable = False
        self._notices = Notices()
        self._chat: PolicyChat | None = None

    def may_be_replaced(self) -> None:
        """It is a process of its own, which somebody starts again, and whose log nobody reads."""
        self._replaceable = True
        self._notices.listen()

    async def ready(self) -> bool:
        """Answers once the actor runs; opens the connection pool on the actor's own loop.

        Raises ConfigError when a plug-in here is not the driver's.
        """
        if self._problem is not None:
            raise self._problem
        if self._chat is None:
            self._chat = chat_of(self._policy, self._request_timeout_s, limit=2 * self._slot_count)
        return True

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode on the next free slot. Raises WorkerRetired once it has to make room."""
        await self.ready()
        if self._retires:
            raise WorkerRetired
        self._in_flight += 1
        try:
            episode = await self._run(spec)
            return replace(episode, notice=self._look_at_memory() or self._notices.next())
        finally:
            self._in_flight -= 1

    async def begin(self, epoch: int, is_first: bool, beginnings: list[Beginning]) -> None:
        """`run` for many; see `batches.py`."""
        self._batches.begin(epoch, is_first, beginnings)

    async def ended(self, epoch: int) -> list[Ending]:
        """Ends since the last call, of the episodes that `begin` got."""
        return await self._batches.ended(epoch)

    def process_id(self) -> int:
        """Process id; it changes when the worker is replaced."""
        return os.getpid()

    def retire_if_empty(self) -> bool:
        """Whether it has to end; it does once no episode is lost by it, and Ray starts it again."""
        if self._retires and not self._in_flight:
            os._exit(0)
        return self._retires

    def _look_at_memory(self) -> str | None:
        cure = self._memory.episode_ended()
        if cure is Cure.RENEW:
            self._stale = {one for cast in self._casts.values() for one in cast.all}
            return f"{self._memory.words}: its environments are recreated"
        if cure is Cure.RETIRE:
            self._retires = self._replaceable
            what = "it is replaced" if self._replaceable else "stop the run before memory is full"
            return f"{self._memory.words}, and new environments freed nothing: {what}"
        return None

    async def _run(self, spec: EpisodeSpec) -> Episode:
        assert self._chat is not None
        cast = self._casts[spec.task.env]
        async with cast.room, self._slots:
            slot = cast.free.popleft()
            if slot in self._stale:
                self._stale.remove(slot)
                slot.discard()
            slot.filming = cast.films_of(spec)
            try:
                episode = await cast.play(spec, slot, self._chat)
                if episode.stop_reason in _SPOILS_ENVIRONMENTS:
                    slot.discard()
                elif slot.filming:
                    await self._send_film(spec, slot, self._chat)
                return episode
            finally:
                cast.free.append(slot)

    async def _send_film(
        self, spec: EpisodeSpec, slot: EnvironmentThread, chat: PolicyChat
    ) -> None:
        """A film that does not arrive is a line in the log, and nothing to the episode."""
        try:
            async with asyncio.timeout(_FILM_TIMEOUT_S):
                film = await slot.call(slot.film)
                if film is not None:
                    await chat.film(spec, film)
        except ClawError as error:
            _log.warning("the film of episode %s is lost: %s", spec.session_id, error)
        except TimeoutError:
            slot.discard()  # its thread may still be drawing
            _log.warning("no film of episode %s in %g s", spec.session_id, _FILM_TIMEOUT_S)

    async def close(self) -> None:
        """Close every environment and the connections."""
        try:
            every = [one for cast in self._casts.values() for one in cast.all]
            await asyncio.gather(*(one.close() for one in every))
        finally:
            self._threads.end()
            self._notices.close()
            if self._chat is not None:
                await self._chat.close()
