"""A reward function: anybody's, called with what its parameters name.

    def exact(reply, answer):
        return reply.strip() == answer

A parameter is `reply` (the text that the policy replied with), `prompt` (the last user message),
`messages` (the whole prompt as messages), an argument of the configuration, or a column of the row.
A function with the parameter `completions` is one of trl's, and is called with lists of one.

What it returns is a number, a bool, or a dict of named ones, whose sum counts. Anything else, an
exception and a call that takes too long are an EnvError that names function and row: no reward is
made up for it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clawrl_gym.core.errors import ClawError, ConfigError, EnvError
from clawrl_gym.core.plugins import load, raised
from clawrl_gym.envs.dataset.builtin_rewards import BUILTIN
from clawrl_gym.envs.dataset.config import JUDGE, DatasetEnvConfig, RewardConfig

REPLY = ("reply", "prompt", "messages")
"""Names that every function may take."""
TRL_REPLY = ("prompts", "completions")
"""Names of the same in a function of trl's."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Part:
    """One value of a reward."""

    name: str
    value: float


@dataclass(frozen=True)
class RewardFunction:
    """A function that was found and can be called."""

    name: str
    """Its name or import path."""
    label: str
    """Its name in metrics."""
    weight: float
    arguments: Mapping[str, object]
    """Arguments of the configuration."""
    function: Callable[..., object]
    timeout_s: float

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @property
    def is_of_trl(self) -> bool:
        return "completions" in self.parameters

    @property
    def takes_all(self) -> bool:
        """Whether it takes every column (`**columns`)."""
        return any(p.kind is p.VAR_KEYWORD for p in self.parameters.values())

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that each row must have."""
        own = {*self.arguments, *(TRL_REPLY if self.is_of_trl else REPLY)}
        return tuple(
            name
            for name, parameter in self.parameters.items()
            if parameter.kind in _NAMED and parameter.default is parameter.empty
            if name not in own
        )

    def check(self, columns: Collection[str], data: str) -> None:
        """Raise ConfigError when it cannot be called with the columns that there are."""
        names = TRL_REPLY if self.is_of_trl else REPLY
        unknown = sorted(set(self.arguments) - set(self.parameters))
        if unknown and not self.takes_all:
            raise ConfigError(
                f"got env.reward={self.name} with {unknown[0]!r}, expected some of its parameters: "
                f"{', '.join(self.parameters)}"
            )
        for name, parameter in self.parameters.items():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ConfigError(
                    f"got env.reward={self.name}, whose parameter {name!r} is positional only, "
                    "expected parameters that are called by their names"
                )
        missing = [name for name in self.needs if name not in columns]
        if missing:
            raise ConfigError(
                f"got env.reward={self.name}, whose parameter {missing[0]!r} is no column of "
                f"{data}, expected parameters among {', '.join(names)} and its columns: "
                f"{', '.join(sorted(columns)) or 'none'}"
            )

    def parts(
        self, row: str, reply: str, messages: list[dict[str, str]], columns: Mapping[str, object]
    ) -> tuple[Part, ...]:
        """Values of a reply, by name. Raises EnvError naming the function and the row."""
        try:
            value = self._called(self._call_of(reply, messages, columns))
        except ClawError:
            raise
        except _TooLate as error:
            raise EnvError(
                f"reward function {self.name!r} gave nothing for {row} within {self.timeout_s:g} s "
                "(env.reward_timeout_s)"
            ) from error
        except BaseException as error:
            if not isinstance(error, Exception | SystemExit):
                raise
            raise EnvError(
                f"reward function {self.name!r} raised {raised(error)} for {row}; expected a reward"
            ) from error
        return self._read(value, row)

    def _call_of(
        self, reply: str, messages: list[dict[str, str]], columns: Mapping[str, object]
    ) -> dict[str, object]:
        """Keyword arguments; copies, so that a function that changes them changes no row."""
        values: dict[str, object] = {**columns, **self.arguments}
        if self.is_of_trl:
            is_text = len(messages) == 1
            prompt = messages[-1]["content"] if is_text else messages
            completion = reply if is_text else [{"role": "assistant", "content": reply}]
            values |= {"prompts": prompt, "completions": completion}
        else:
            values |= {"reply": reply, "prompt": messages[-1]["content"], "messages": messages}
        if not self.takes_all:
            values = {name: values[name] for name in self.parameters if name in values}
        if self.is_of_trl:
            values = {
                name: value if name in self.arguments else [value] for name, value in values.items()
            }
        return copy.deepcopy(values)

    def _called(self, values: Mapping[str, object]) -> object:
        """The value, from a thread of its own: one that hangs holds nobody else up."""
        future: Future[object] = Future()
        thread = threading.Thread(
            target=_call_into, args=(future, self, values), name=self.name, daemon=True
        )
        thread.start()
        wait([future], self.timeout_s)
        if not future.done():
            raise _TooLate
        value = future.result()
        if not self.is_of_trl:
            return value
        if isinstance(value, str | Mapping) or not isinstance(value, Collection) or len(value) != 1:
            raise TypeError(f"got {value!r:.100}, expected a list of one reward")
        return next(iter(value))

    def _read(self, value: object, row: str) -> tuple[Part, ...]:
        if not isinstance(value, Mapping):
            return (Part(self.label, self._number(value, value, row)),)
        if not value or not all(isinstance(name, str) for name in value):
            raise self._unreadable(value, row)
        return tuple(
            Part(f"{self.label}/{name}", self._number(one, value, row))
            for name, one in value.items()
        )

    def _number(self, one: object, value: object, row: str) -> float:
        try:
            number = float(one)  # type: ignore[arg-type]  # whatever float() takes is a number
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or isinstance(one, str | bytes):
            raise self._unreadable(value, row)
        return number

    def _unreadable(self, value: object, row: str) -> EnvError:
        return EnvError(
            f"reward function {self.name!r} returned {value!r:.100} for {row}, "
            "expected a finite number, True or False, or a dict of these by name"
        )


class _TooLate(Exception):
    """A function has not returned in time."""


def _call_into(
    future: Future[object], reward: RewardFunction, values: Mapping[str, object]
) -> None:
    """Call the function; an async one on a loop of its own, which ends when it is too late."""
    try:
        value = reward.function(**values)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value, reward.timeout_s))
        future.set_result(value)
    except BaseException as error:  # noqa: BLE001 (whoever waits for it sees to it)
        future.set_exception(error)


async def _awaited(value: Awaitable[Any], timeout_s: float) -> object:
    task = asyncio.ensure_future(value)
    await asyncio.wait([task], timeout=timeout_s)
    if not task.done():
        raise _TooLate
    return task.result()


def reward_functions(config: DatasetEnvConfig) -> tuple[RewardFunction, ...]:
    """The functions of a configuration. Raises ConfigError for what is none."""
    return tuple(_found(one, config.reward_timeout_s) for one in config.reward if not one.is_judge)


def _found(config: RewardConfig, timeout_s: float) -> RewardFunction:
    name = config.use
    if ":" not in name and name not in BUILTIN:
        raise ConfigError(
            f"got env.reward={name!r}, expected one of {', '.join((*BUILTIN, JUDGE))}, or "
            "package.module:name"
        )
    function = BUILTIN[name] if name in BUILTIN else load(name, f"env.reward={name!r}")
    if not callable(function) or inspect.isclass(function):
        kind = "a class" if inspect.isclass(function) else type(function).__name__
        raise ConfigError(f"got env.reward={name!r}, {kind}, expected a function")
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"got env.reward={name!r}, whose parameters are not known ({error}), expected a "
            "function written in Python"
        ) from error
    return RewardFunction(name, config.label, config.weight, config.arguments, function, timeout_s)
