"""Conversations with simulated users: a task, its files, and the user's reactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from clawrl_gym.agents.tool_calls import Reply, encode
from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.types import Json, Split, Tool
from clawrl_gym.envs.conversation.tools import Workspace
from clawrl_gym.envs.conversation.user import Reaction
from clawrl_gym.envs.task_env import Info, TaskLike
from clawrl_gym.envs.task_source import TaskSource, requested_task


class Talk(TaskLike, Protocol):
    """A conversation to hold."""

    @property
    def opening(self) -> str: ...
    @property
    def files(self) -> Mapping[str, str]: ...
    @property
    def tools(self) -> list[Tool]: ...


class Listener(Protocol):
    """The user's side of one conversation."""

    def hear(self, text: str, files: Mapping[str, str]) -> Reaction: ...


TaskT = TypeVar("TaskT", bound=Talk)
UserT = TypeVar("UserT", bound=Listener)


class ScriptedPartner(ABC, Generic[TaskT, UserT]):
    """A user that lives for one task at a time."""

    _source: TaskSource[TaskT]
    """Where the tasks come from; set by the subclass."""

    def __init__(self) -> None:
        self._playing: tuple[TaskT, UserT] | None = None
        self._turns = 0
        self._over = True
        self._satisfied = False

    @abstractmethod
    def _user_of(self, task: TaskT, number: int) -> UserT:
        """The user of a task."""

    @abstractmethod
    def _turn_limit(self, task: TaskT) -> int:
        """Replies after which the episode is truncated."""

    @abstractmethod
    def _solution(self, task: TaskT) -> Sequence[Reply]:
        """The oracle's replies."""

    def _opening(self, task: TaskT) -> str:
        """The first message."""
        return task.opening

    @abstractmethod
    def _seen(self, task: TaskT, user: UserT) -> Info:
        """Additions to the Info that all conversations have."""

    @property
    def source(self) -> TaskSource[TaskT]:
        """The tasks to talk about."""
        return self._source

    def ids(self, split: Split) -> Sequence[str]:
        """The tasks of a split."""
        return self._source.ids(split)

    def begin(self, number: int, options: Json) -> tuple[str, Info]:
        """The task that `options` names, else one of its split."""
        task_id, split = requested_task(options)
        ids = self.ids(split)
        task = self._source.load(ids[number % len(ids)] if task_id is None else str(task_id))
        user = self._user_of(task, number)
        self._playing = task, user
        self._files = Workspace(
            task.files, frozenset(tool["function"]["name"] for tool in task.tools)
        )
        self._turns = 0
        self._over = self._satisfied = False
        return self._opening(task), self._info(task, user, "user")

    def hear(self, reply: Reply) -> tuple[str, float, bool, bool, Info]:
        if self._playing is None or self._over:
            raise EnvError("got step() outside an episode, expected reset() first")
        task, user = self._playing
        self._turns += 1
        if reply.calls:
            observation, role = self._files.results(reply.calls), "tool"
        else:
            reaction = user.hear(reply.content, self._files.files)
            observation, role = reaction.text, "user"
            self._over, self._satisfied = reaction.over, reaction.satisfied
        truncated = not self._over and self._turns >= self._turn_limit(task)
        terminated = self._over
        self._over = terminated or truncated
        reward = 1.0 if self._satisfied else 0.0
        return observation, reward, terminated, truncated, self._info(task, user, role)

    def solve(self) -> tuple[str, ...]:
        """The oracle's actions from the start."""
        if self._playing is None:
            raise EnvError("got solve() outside an episode, expected reset() first")
        return tuple(encode(reply) for reply in self._solution(self._playing[0]))

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _info(self, task: TaskT, user: UserT, role: str) -> Info:
        return {
            "task": task.id,
            "family": task.family,
            "split": task.split,
            "tools": task.tools,
            "next_state_role": role,
            "satisfied": self._satisfied,
            **self._seen(task, user),
            "error": None,
        }
