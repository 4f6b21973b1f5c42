"""`serve`: live conversations behind the gateway; judged turns become updates as they come.

The gateway listens first and requests wait inside until vLLM answers. The learner starts beside
it: conversations never wait for learning.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from clawrl_gym.config import ServeConfig
from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.core.interrupt import INTERRUPTS
from clawrl_gym.core.types import Verdict
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.openclaw import snippet
from clawrl_gym.gateway.server import check_key
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.policy.models import resolve_device
from clawrl_gym.rollout.live_collector import LiveCollector
from clawrl_gym.run.counts import ServingCounts
from clawrl_gym.run.folder import RunFolder
from clawrl_gym.run.judge import check_judge
from clawrl_gym.run.kept_model import model_of
from clawrl_gym.run.observer import Observer
from clawrl_gym.run.parts import RunParts
from clawrl_gym.store import UpdateRow
from clawrl_gym.trainers.algorithm import build_algorithm
from clawrl_gym.trainers.batch_queue import BatchQueue
from clawrl_gym.trainers.loop import TrainLoop, Update
from clawrl_gym.trainers.objectives import check_objectives
from clawrl_gym.ui.report import write_report
from clawrl_gym.ui.serving import SERVING
from clawrl_gym.ui.transcripts import find_tokenizer
from clawrl_gym.ui.view import RunView, make_view

_KEY_FILE = "gateway.key"
_FOREVER = sys.maxsize


def check(config: ServeConfig) -> RunFolder:
    """Find what is wrong before the port is opened. Raises ConfigError."""
    if config.run.dir is None:
        raise ConfigError("got no run.dir, expected the folder that serving goes on in")
    check_key(config.gateway)
    model_of(Path(config.run.dir), config.policy.model)
    resolve_device(config.policy.device)
    check_judge(config.judge)
    check_objectives(config.trainer, config.learner)
    build_algorithm(config.trainer, None)
    folder = RunFolder(Path(config.run.dir))
    if folder.exists:
        stored = folder.read_config(ServeConfig)
        if stored.policy.model != config.policy.model:
            raise ConfigError(
                f"{folder.path} holds weights of {stored.policy.model!r}, got "
                f"policy.model={config.policy.model!r}: choose another folder (run.dir=PATH)"
            )
    folder.write(config)
    return folder


def write_snippet(config: ServeConfig, folder: RunFolder) -> str:
    """What a user pastes into openclaw.json."""
    gateway = config.gateway
    if gateway.port == 0:
        raise ConfigError(
            "got gateway.port=0 with print_config=true, expected the port that clients shall use: "
            "a free one is only known once serving has begun"
        )
    host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    return snippet(
        f"http://{host}:{gateway.port}",
        key_of(config, folder),
        context_window=config.policy.max_model_len,
        max_tokens=config.policy.sampling.max_tokens,
    )


def key_of(config: ServeConfig, folder: RunFolder) -> str:
    """The configured key, else the folder's own: the same in every run, so clients keep working."""
    if config.gateway.key is not None:
        return config.gateway.key
    path = folder.path / _KEY_FILE
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"sk-{secrets.token_urlsafe(32)}")
    return path.read_text().strip()


async def serve(config: ServeConfig, sock: socket.socket) -> None:
    """Serve on an open socket until stopped."""
    folder = check(config)
    key = key_of(config, folder)
    gateway = config.gateway.model_copy(update={"key": key})
    config = config.model_copy(update={"gateway": gateway})
    view = make_view(config.ui, SERVING, title=str(folder.path))
    leaving_report: asyncio.Task[None] | None = None
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(INTERRUPTS.goes_on(folder.way_on("serve")))
            service = Service(config, RunParts(config, folder, view), view)
            await service.start(stack, sock)
            try:
                await service.run(stack)
            finally:
                view.close()
                # Beside the closing of everything, for which there is little time.
                leaving_report = asyncio.create_task(
                    asyncio.to_thread(leave_report, folder.path, view)
                )
    finally:
        if leaving_report is not None:
            await leaving_report
        view.close()


def leave_report(folder: Path, view: RunView) -> None:
    """What was served and learned, on a page; one that cannot be written costs a message."""
    try:
        view.message(f"report: {write_report(folder)}")
    except ClawError as error:
        view.message(f"no report: {error}")


class Service:
    """What serves and learns, alive."""

    def __init__(self, config: ServeConfig, parts: RunParts, view: RunView) -> None:
        self._config = config
        self._parts = parts
        self._view = view

    async def start(self, stack: AsyncExitStack, sock: socket.socket) -> None:
        """Open the store and listen; nothing slow."""
        config, parts = self._config, self._parts
        self._resumed = await parts.open(stack, resume=True)
        self._ready = BatchQueue.live(config.live, parts.policy.store)
        algorithm = build_algorithm(config.trainer, None)
        judge = parts.judging(stack, hints=algorithm.needs_hints)
        self._collector = LiveCollector(
            config.live,
            parts.policy.store,
            algorithm,
            self._ready,
            judged=judge is not None,
            enhancer=parts.enhancer() if algorithm.needs_hints else None,
        )
        self._queue = JudgeQueue(judge, parts.policy.store, config.judge, self._on_verdict)
        self._observer = Observer(
            parts.metrics,
            parts.timeline,
            self._view,
            parts.policy,
            ServingCounts(parts.policy, self._collector, self._queue, self._ready),
            find_tokenizer([parts.policy.model]),
        )
        hooks = Hooks(
            on_turn=self._observer.turn,
            on_next_state=self._queue.add,
            on_verdict=self._on_verdict,
            on_end=self._on_end,
            on_delete=self._collector.deleted,
        )
        if config.learn:
            await self._collector.restore()
        await parts.policy.listen(stack, hooks, sock)
        self._view.message(
            f"base URL: {parts.policy.address.base_url}/v1   key: {parts.policy.gateway.key}"
        )

    async def run(self, stack: AsyncExitStack) -> None:
        """Serve, judge and learn, until cancelled."""
        parts = self._parts
        async with asyncio.TaskGroup() as running:
            running.create_task(parts.policy.gateway.sessions.reap())
            running.create_task(self._queue.run())
            running.create_task(self._observer.run())
            running.create_task(self._serve_policy())
            if self._config.learn:
                running.create_task(self._collector.run())
                stack.callback(parts.cluster.stop)
                running.create_task(self._learn(self._resumed))

    async def _serve_policy(self) -> None:
        await self._parts.policy.start(self._resumed)
        self._view.message(f"ready: talk to {self._parts.policy.address.base_url}/v1")
        await self._parts.policy.servers.watch()

    async def _learn(self, resumed: UpdateRow | None) -> None:
        await self._parts.start_cluster()
        async with self._parts.cluster.required():
            await self._learn_for_ever(resumed)

    async def _learn_for_ever(self, resumed: UpdateRow | None) -> None:
        config, parts = self._config, self._parts
        await parts.start_learner(resumed)
        loop = TrainLoop(
            config.learner,
            parts.learner,
            self._ready.batch,
            parts.publish,
            self._on_update,
            parts.folder.checkpoints,
            parts.timeline,
        )
        await loop.run(parts.policy.version, _FOREVER)

    def _on_verdict(self, verdict: Verdict) -> None:
        """Without learning, verdicts stay in the store; their samples come when it is on again."""
        if self._config.learn:
            self._collector.verdict(verdict)
        self._observer.verdict(verdict)

    def _on_end(self, session_id: str) -> None:
        if self._config.learn:
            self._collector.session_ended(session_id)

    async def _on_update(self, update: Update) -> None:
        await self._parts.record(update)
        await self._observer.update(update)
