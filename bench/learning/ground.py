"""Tasks of one reply as prompts and rewards, from any environment of text that a run can have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clawrl_gym.agents.agent import Action
from clawrl_gym.config import RunConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message, TaskRef
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.collection.worker import build_agent


class Ground:
    """The environment and agent of a run's configuration, asked directly."""

    def __init__(self, config: RunConfig) -> None:
        self._env = config.env.make()
        self._agent = build_agent(config.agent, config.env)
        self._sampler = TaskSampler.of(config.env, config.seed)

    def train(self, count: int) -> list[TaskRef]:
        """The first training tasks that a run with this seed draws, in order."""
        return [self._sampler.train(number) for number in range(count)]

    def held_out(self, count: int) -> list[TaskRef]:
        """Held-out tasks, the same for each seed."""
        return self._sampler.heldout(count)

    def messages(self, task: TaskRef) -> list[Message]:
        """The request that the policy is sent."""
        observation, info = self._begin(task)
        if info.get("tools"):
            raise ConfigError("got an environment with tools, expected one whose reply is text")
        messages = self._agent.messages([observation], [])
        system = info.get("system")
        if not system:
            return messages
        return [{"role": "system", "content": str(system)}, *messages]

    def reward(self, task: TaskRef, reply: str) -> float:
        """The environment's reward for the one reply."""
        self._begin(task)
        action = self._agent.action({"role": "assistant", "content": reply})
        if not isinstance(action, Action):
            raise ConfigError(
                "got an agent that finds no action in a reply, expected one whose action is the "
                "whole reply: the other trainer has prompts and rewards alone"
            )
        _, reward, terminated, truncated, _ = self._env.step(action.text)
        if not (terminated or truncated):
            raise ConfigError(
                "got an environment that continues after one reply, expected one that ends: the "
                "other trainer has prompts and rewards alone"
            )
        if not math.isfinite(reward):
            raise ConfigError(f"got the reward {reward}, expected a finite number")
        return float(reward)

    def _begin(self, task: TaskRef) -> tuple[str, Mapping[str, Any]]:
        options: dict[str, object] = {"split": task.split}
        if task.id is not None:
            options["task"] = task.id
        observation, info = self._env.reset(seed=task.seed, options=options)
        return observation, info


def task_name(task: TaskRef) -> str:
    """The same for a task wherever it is met."""
    return task.id or str(task.seed)
