"""One episode's environment, driven step by step, and what has come of it so far.

The environment blocks, so its calls go to its own thread. What has happened survives the deadline
that ends an episode from outside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, SupportsFloat

from clawrl_gym.core.errors import EnvError, boundary
from clawrl_gym.core.types import Json, Message, StopReason, TaskRef, Tool

InThread = Callable[..., Awaitable[Any]]
"""Runs a blocking call on the environment's own thread."""


class TextEnv(Protocol):
    """What an episode needs of a Gymnasium environment.

    One with checks may report on them at the end: in `info["report"]` of the last step, and after
    `finish()` in an attribute `report`. Rules that hold for the whole episode stand in
    `info["system"]` of reset.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[object, Json]: ...

    def step(self, action: str) -> tuple[object, SupportsFloat, bool, bool, Json]: ...

    def finish(self) -> float:
        """Reward for what is there, when the episode ends outside of the environment."""
        ...


class Progress:
    """What has happened so far."""

    def __init__(self, env: TextEnv, in_thread: InThread) -> None:
        self._env = env
        self._in_thread = in_thread
        self.observations: list[str] = []
        self.replies: list[Message] = []
        self.tokens = 0
        """Sampled by the policy."""
        self.reward = 0.0
        self.family: str | None = None
        self.scores: dict[str, float] = {}
        self.report: str | None = None
        """Of the environment's checks, at the end; it teaches, and no prompt holds it."""
        self.info: Json = {}
        """Of the last reset or step."""

    async def reset(self, task: TaskRef) -> None:
        options: dict[str, object] = {}
        if task.id is not None:
            options = {"task": task.id, "split": task.split}
        with boundary(EnvError, "reset"):
            observation, info = await self._in_thread(
                self._env.reset, seed=task.seed, options=options
            )
            self._note(observation, info)
        family = info.get("family")
        self.family = None if family is None else str(family)

    async def step(self, action: str) -> StopReason | None:
        """Why the environment ended the episode; None while it goes on."""
        with boundary(EnvError, "step"):
            observation, reward, terminated, truncated, info = await self._in_thread(
                self._env.step, action
            )
            self._note(observation, info)
        self.reward += float(reward)
        if terminated:
            return StopReason.TERMINATED
        return StopReason.TRUNCATED if truncated else None

    async def finish(self) -> None:
        """Grade what is there; an environment that reports tells it in its attribute `report`."""
        with boundary(EnvError, "finish"):
            self.reward += float(await self._in_thread(self._env.finish))
            self.report = _report_text(getattr(self._env, "report", None))

    @property
    def tools(self) -> list[Tool]:
        """The tools that the environment offers."""
        tools = self.info.get("tools") or []
        if not isinstance(tools, list | tuple):
            raise EnvError(f"got info['tools'] of type {type(tools).__name__}, expected list")
        return list(tools)

    @property
    def system(self) -> str:
        """What the environment says about the whole episode."""
        system = self.info.get("system") or ""
        if not isinstance(system, str):
            raise EnvError(f"got info['system'] of type {type(system).__name__}, expected str")
        return system

    def _note(self, observation: object, info: Json) -> None:
        self.observations.append(_text(observation))
        scores = info.get("scores") or {}
        if not isinstance(scores, Mapping):
            raise EnvError(f"got info['scores'] of type {type(scores).__name__}, expected dict")
        self.scores = {name: float(score) for name, score in scores.items()}
        self.report = _report_text(info.get("report"))
        self.info = info


def _report_text(report: object) -> str | None:
    if report is not None and not isinstance(report, str):
        raise EnvError(f"got a report of type {type(report).__name__}, expected str or None")
    return report


def _text(observation: object) -> str:
    if not isinstance(observation, str):
        raise EnvError(
            f"got an observation of type {type(observation).__name__}, expected str: "
            "wrap the environment so that it speaks text"
        )
    return observation
