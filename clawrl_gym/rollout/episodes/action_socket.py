"""Socket for an external program's actions: a Unix socket in front of one episode.

One line of JSON `{"action": "..."}` a step, answered by one line `{"observation": "...",
"done": false, "info": {...}}`, or by `{"error": "..."}` when there is no step to take.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.text import read_json
from clawrl_gym.core.types import Episode, Json, Message, StopReason
from clawrl_gym.rollout.episodes.episode import Chat, EpisodeSpec, conclude, record_end, with_report
from clawrl_gym.rollout.episodes.progress import Progress

_MAX_LINE_BYTES = 16 << 20


class HarnessChat(Chat, Protocol):
    """The gateway, which also opens sessions for others."""

    async def begin(self, spec: EpisodeSpec) -> None: ...


class ActionSocket:
    """Takes a program's actions one at a time, and reports the end."""

    def __init__(
        self, spec: EpisodeSpec, progress: Progress, chat: HarnessChat, started_s: float
    ) -> None:
        self.spec = spec
        self.progress = progress
        self.chat = chat
        self.episode: Episode | None = None
        """Once it has ended."""
        self.ended = asyncio.Event()
        self.failure: Exception | None = None
        self._started_s = started_s
        self._one_at_a_time = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Take connections on a socket at this path, which there must not be yet.

        Afterwards no step continues: the environment may be another episode's then.
        """
        try:
            server = await asyncio.start_unix_server(self._connected, path, limit=_MAX_LINE_BYTES)
        except OSError as error:
            raise EnvError(f"no socket for the harness at {path}: {error}") from error
        try:
            yield
            async with self._one_at_a_time:
                pass  # a step that the program did not wait for counts as well
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the program."""
        try:
            while line := await reader.readline():
                answer = json.dumps(await self._answer(line)) + "\n"
                writer.write(answer.encode())
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # it left, or its line was too long to be read
        except asyncio.CancelledError:
            writer.transport.abort()  # else it closes once all was read, which may be never
            raise
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def conclude(
        self, stop: StopReason, error: str | None, state: list[Message] | None
    ) -> Episode:
        """Report the end, once, with the last next state and the environment's report."""
        episode = conclude(self.spec, self.progress, stop, error, self._started_s)
        last_state = with_report(state or [], self.progress, episode) or None
        self.episode = await record_end(self.spec, episode, last_state, self.chat)
        self.ended.set()
        return self.episode

    async def _answer(self, line: bytes) -> Json:
        action = _action(line)
        if action is None:
            return {"error": 'expected one line of JSON, {"action": "..."}'}
        async with self._one_at_a_time:
            if self.ended.is_set():
                return {"error": "the episode has ended", "done": True}
            try:
                return await self._step(action)
            except Exception as error:  # noqa: BLE001 (it belongs to the episode)
                self.failure = error
                self.ended.set()
                return {"error": f"the environment failed: {error}", "done": True}

    async def _step(self, action: str) -> Json:
        progress = self.progress
        stop = await progress.step(action)
        progress.replies.append({"role": "assistant", "content": action})
        observation = progress.observations[-1]
        if stop is None and len(progress.replies) >= self.spec.max_turns:
            await progress.finish()
            stop = StopReason.TRUNCATED
        if stop is not None:
            role = str(progress.info.get("next_state_role") or "user")
            await self.conclude(stop, None, [{"role": role, "content": observation}])
        return {
            "observation": observation, "done": stop is not None,
            "info": _public(progress.info, self.progress.report),
        }  # fmt: skip


def _action(line: bytes) -> str | None:
    try:
        request = read_json(line, "agent")
    except (ValueError, RecursionError):
        return None
    action = request.get("action") if isinstance(request, dict) else None
    return action if isinstance(action, str) else None


def _public(info: Json, report: str | None) -> Json:
    """The part of `info` that the program may see, as JSON; never the report of the checks."""
    return {
        name: value
        for name, value in info.items()
        if name != "report" and isinstance(value, str | int | float | None) and value != report
    }
