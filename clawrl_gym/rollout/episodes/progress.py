"""One episode's environment, driven step by step, and what has come of it so far.

The environment blocks, so its calls go to its own thread. What has happened survives the deadline
that ends an episode from outside.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol

from clawrl_gym.core.errors import EnvError, boundary
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.text import MOST_CHARS, Replacements, valid_escapes, valid_json, valid_text
from clawrl_gym.core.types import Answer, Json, Message, StopReason, TaskRef, Tool, Transcript
from clawrl_gym.rollout.episodes.deadline import ActionTimes

_STEP = ("observation", "reward", "terminated", "truncated", "info")
InThread = Callable[..., Awaitable[Any]]
"""Runs a blocking call on the environment's own thread."""


class TextEnv(Protocol):
    """A Gymnasium environment, as far as an episode needs it.

    One with checks may report on them at the end: in `info["report"]` of the last step, and after
    `finish()` in an attribute `report`. Rules that hold for the whole episode stand in
    `info["system"]` of reset, and the number of replies that it allows in `info["max_replies"]`. An
    attribute `waited_s` may count the seconds that its processes waited for a CPU. `grades` is
    False where it has no `finish()` of its own, `agent_fault` is True once the agent has spoilt the
    episode, and `reward_range` may declare what an episode earns at least and at most. Whose it is
    may be anybody: what comes back is checked here.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> object: ...

    def step(self, action: str) -> object: ...

    def finish(self) -> object:
        """Reward for what is there, when the episode ends outside of the environment."""
        ...


class Progress:
    """An episode so far."""

    def __init__(self, env: TextEnv, in_thread: InThread) -> None:
        self._env = env
        self._in_thread = in_thread
        self.actions = ActionTimes()
        self._waited_before_s = 0.0
        self.replaced = Replacements()
        """Counts of the environment's texts that were not valid Unicode."""
        self.observations: list[str] = []
        self.replies: list[Message] = []
        self.opening: list[Message] = []
        """The first request."""
        self.offered: list[Tool] = []
        """Tools of the first request."""
        self.answers: list[Answer] = []
        """The replies and what they cost, where it is known."""
        self.tokens = 0
        """Sampled by the policy."""
        self.reward = 0.0
        self.steps = 0
        """Steps of the environment; a reply without an action makes none."""
        self.lowest_step = 0.0
        """The lowest reward of a step, 0 at most."""
        self.most_replies = math.inf
        """Most replies of the agent, once they are known."""
        self.has_ended = False
        """The environment ended the episode itself."""
        self.is_graded = False
        """The environment graded what was there when something else ended the episode."""
        self.solved: bool | None = None
        """The last `info["success"]`; None: none was given."""
        self.family: str | None = None
        self.scores: dict[str, float] = {}
        self.report: str | None = None
        """Report of the environment's checks, at the end; it teaches, and no prompt holds it."""
        self.info: Json = {}
        """The `info` of the last reset or step."""

    async def reset(self, task: TaskRef) -> None:
        options: dict[str, object] = {"split": task.split}
        if task.id is not None:
            options["task"] = task.id
        with boundary(EnvError, "reset"):
            values = await self._in_thread(self._env.reset, seed=task.seed, options=options)
            observation, info = _values_of("reset", values, ("observation", "info"))
            self._note("reset", observation, info)
            self._waited_before_s = self._waited_s()
        info = self.info
        family = info.get("family")
        self.family = None if family is None else self._valid(str(family))

    async def step(self, action: str) -> StopReason | None:
        """Why the environment ended the episode; None while it continues."""
        with boundary(EnvError, "step"):
            values = await self._acted(self._env.step, action)
            observation, reward, terminated, truncated, info = _values_of("step", values, _STEP)
            self._note("step", observation, info)
            self._earn("step", reward)
            self.steps += 1
            terminated = _flag("terminated", terminated)
            truncated = _flag("truncated", truncated)
        self.has_ended = terminated or truncated
        if terminated:
            return StopReason.TERMINATED
        return StopReason.TRUNCATED if truncated else None

    async def finish(self) -> None:
        """Grade what is there; an environment that reports tells it in its attribute `report`."""
        with boundary(EnvError, "finish"):
            reward = await self._acted(self._env.finish)
            self._earn("finish", reward)
            self.is_graded = bool(getattr(self._env, "grades", True))
            self.report = self._report(getattr(self._env, "report", None))

    async def _acted(self, function: Callable[..., object], *args: object) -> Any:
        """A call of the environment in the agent's time; it may wait for its thread."""
        with self.actions.acting() as begin:

            @wraps(function)
            def call() -> object:
                begin()
                return function(*args)

            values = await self._in_thread(call)
        waited_s = self._waited_s()
        self.actions.waited(max(0.0, waited_s - self._waited_before_s))
        self._waited_before_s = waited_s
        return values

    def _waited_s(self) -> float:
        """Seconds that its processes waited for a CPU, of an environment that counts them."""
        return _finite("step", "waited_s", getattr(self._env, "waited_s", 0.0))

    def _earn(self, method: str, reward: object) -> None:
        earned = _finite(method, "a reward", reward)
        self.reward += earned
        self.lowest_step = min(self.lowest_step, earned)

    @property
    def is_spoilt(self) -> bool:
        """The agent destroyed what was to be graded, as the environment says."""
        return bool(getattr(self._env, "agent_fault", False))

    @property
    def declared_floor(self) -> float | None:
        """The lower end of the environment's `reward_range`; None without a finite one."""
        declared = getattr(self._env, "reward_range", None)
        if not isinstance(declared, tuple | list) or len(declared) != 2:
            return None
        low = declared[0]
        return float(low) if isinstance(low, int | float) and math.isfinite(low) else None

    def unplayed(self, most: float) -> int:
        """Replies of `most` that brought no step, where the environment neither ended nor graded
        the episode."""
        if self.is_spoilt:
            return self.left_of(most)
        if self.has_ended or self.is_graded:
            return 0
        return max(0, int(min(most, self.most_replies)) - self.steps)

    def left_of(self, most: float) -> int:
        """Steps that were left of `most` replies, at least the one that went wrong."""
        return max(1, int(min(most, self.most_replies)) - self.steps)

    @property
    def transcript(self) -> Transcript:
        """Conversation so far; of a program that acts by itself its actions."""
        answers = self.answers or [Answer(reply, text_of(reply)) for reply in self.replies]
        opening: list[Message] = [{"role": "user", "content": text} for text in self.observations]
        return Transcript(
            self.opening or opening[:1], self.offered, answers, self.observations, self.report
        )

    @property
    def tools(self) -> list[Tool]:
        """The tools that the environment offers."""
        tools = self.info.get("tools") or []
        if not isinstance(tools, list | tuple):
            raise EnvError(f"got info['tools'] of type {type(tools).__name__}, expected list")
        with boundary(EnvError, "the tools of info['tools'] are no JSON"):
            _check_length("info['tools']", json.dumps(list(tools)))
            valid: list[Tool] = valid_json(list(tools), "environment", self.replaced)
        return valid

    @property
    def max_replies(self) -> float:
        """Replies that the task has, also where one of them holds no action; none: infinite."""
        most = self.info.get("max_replies")
        return math.inf if most is None else _finite("reset", "info['max_replies']", most)

    @property
    def system(self) -> str:
        """Text of the environment about the whole episode."""
        system = self.info.get("system") or ""
        if not isinstance(system, str):
            raise EnvError(f"got info['system'] of type {type(system).__name__}, expected str")
        _check_length("info['system']", system)
        return self._valid(system)

    def _note(self, method: str, observation: object, info: object) -> None:
        self.observations.append(self._valid(_text(method, observation)))
        if not isinstance(info, Mapping):
            raise EnvError(f"{method}: got info of type {type(info).__name__}, expected dict")
        scores = info.get("scores") or {}
        if not isinstance(scores, Mapping):
            raise EnvError(f"got info['scores'] of type {type(scores).__name__}, expected dict")
        self.scores = {
            self._valid(str(name)): _finite(method, f"the score {name!r}", score)
            for name, score in scores.items()
        }
        self.report = self._report(info.get("report"))
        if "success" in info:
            self.solved = _success(method, info["success"])
        self.info = info

    def _report(self, report: object) -> str | None:
        if report is None:
            return None
        if not isinstance(report, str):
            raise EnvError(f"got a report of type {type(report).__name__}, expected str or None")
        _check_length("a report", report)
        return self._valid(report)

    def _valid(self, text: str) -> str:
        text = valid_escapes(text, "environment", self.replaced)
        return valid_text(text, "environment", self.replaced)


def _values_of(method: str, values: object, names: Sequence[str]) -> tuple[Any, ...]:
    """The values of Gymnasium's tuple. Any: whoever reads a value checks it."""
    if isinstance(values, tuple) and len(values) == len(names):
        return values
    got = f"{len(values)} values" if isinstance(values, tuple) else type(values).__name__
    raise EnvError(f"{method}: got {got}, expected the {len(names)} values {', '.join(names)}")


def _finite(method: str, name: str, number: object) -> float:
    try:
        value = float(number)  # type: ignore[arg-type]  # whatever float() takes is a number
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or isinstance(number, str | bytes):
        raise EnvError(f"{method}: got {name} {number!r:.100}, expected a finite number")
    return value


def _success(method: str, success: object) -> bool | None:
    """Success by `info["success"]`; some environments write 0 and 1."""
    if success is None:
        return None
    if isinstance(success, str | bytes) or success not in (True, False):
        raise EnvError(
            f"{method}: got info['success']={success!r:.100}, expected True or False, or none"
        )
    return bool(success)


def _flag(name: str, flag: object) -> bool:
    """A bool, whoever's: NumPy has its own."""
    if type(flag).__name__ not in ("bool", "bool_"):
        raise EnvError(f"step: got {name}={flag!r:.100}, expected True or False")
    return bool(flag)


def _text(method: str, observation: object) -> str:
    if not isinstance(observation, str):
        raise EnvError(
            f"{method}: got an observation of type {type(observation).__name__}, expected str: "
            "wrap the environment so that it speaks text"
        )
    _check_length(f"{method}: an observation", observation)
    return str.__str__(observation)  # of a class of its own, it could be written as other words


def _check_length(name: str, text: str) -> None:
    """Raise EnvError for what no model could read: whoever made it is to blame."""
    if len(text) > MOST_CHARS:
        raise EnvError(
            f"{name} has {len(text):,} characters, expected at most {MOST_CHARS:,}: cut it in the "
            "environment"
        )
