"""Base of our environments: text in, text out, a transcript; and tasks with a grade at the end.

`TaskEnv` is the base to extend for a new kind of task: say where tasks come from, and write four
hooks. `Box` stands for what an episode holds while it lasts, such as a sandbox; it can `close()`.

    class BoxEnv(TaskEnv[Puzzle, Box]):
        def __init__(self, max_turns: int = 8, render_mode: str | None = None) -> None:
            super().__init__(max_turns, render_mode)
            self._source = Puzzles()  # has ids(split) and load(id)

        def _request(self, task: Puzzle) -> str:
            return task.text

        def _open(self, task: Puzzle) -> Box:
            return Box(task.pieces)

        def _act(self, task: Puzzle, box: Box, action: str) -> tuple[str, bool]:
            return box.move(action), box.finished

        def _grade(self, task: Puzzle, box: Box) -> tuple[float, str]:
            return (1.0, "Test report: passed") if box.solved else (0.0, "Test report: failed")
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Generic, Protocol, TypedDict, TypeVar

import gymnasium

from clawrl_gym.core.errors import AgentFault, ConfigError, EnvError, TaskError, boundary
from clawrl_gym.core.types import Split
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.sandbox.interface import Workplace
from clawrl_gym.envs.selection import Selection, selection_of
from clawrl_gym.envs.spaces import Unicode
from clawrl_gym.envs.task_source import TaskSource, requested_task

Info = dict[str, object]


class TaskLike(Protocol):
    """A task, as every one describes itself."""

    @property
    def id(self) -> str: ...
    @property
    def family(self) -> str:
        """Family name for curves."""
        ...

    @property
    def split(self) -> Split: ...


class Closable(Protocol):
    """An episode's workspace, such as a sandbox: held while the episode lasts."""

    def close(self) -> None:
        """Idempotent."""
        ...


TaskT = TypeVar("TaskT", bound=TaskLike)
WorkspaceT = TypeVar("WorkspaceT", bound=Closable)


class Metadata(TypedDict):
    """Metadata that Gymnasium reads of an environment class."""

    render_modes: list[str]
    render_fps: int


class UnicodeEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Any text as observation and action, and in render mode "ansi" the transcript so far."""

    metadata: ClassVar[Metadata] = {"render_modes": ["ansi"], "render_fps": 1}
    shows_shell: ClassVar[bool] = False
    """The transcript reads as a shell's, else as a conversation."""

    def __init__(self, max_turns: int, render_mode: str | None, **seconds: float) -> None:
        """`seconds`: further options that must be positive. Raises ConfigError."""
        if max_turns < 1 or any(value <= 0 for value in seconds.values()):
            values = ", ".join(f"{k}={v}" for k, v in {"max_turns": max_turns, **seconds}.items())
            raise ConfigError(f"got {values}, expected positive numbers")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"got render_mode={render_mode!r}, expected None or 'ansi'")
        self.observation_space = Unicode()
        self.action_space = Unicode()
        self.render_mode = render_mode
        self._transcript: list[str] = []

    def render(self) -> str | None:
        """The transcript of the current episode, in render mode "ansi"."""
        return "\n".join(self._transcript) if self.render_mode == "ansi" else None

    def _start_transcript(self, observation: str) -> None:
        self._transcript = [self._line("user", observation)]

    def _extend_transcript(self, action: str, observation: str, role: str) -> None:
        self._transcript += [self._line("assistant", action), self._line(role, observation)]

    def _line(self, role: str, text: str) -> str:
        if self.shows_shell:
            return f"$ {text}" if role == "assistant" else text
        return f"{role}: {text}"


class TaskEnv(UnicodeEnv, ABC, Generic[TaskT, WorkspaceT]):
    """One task an episode: opened, acted on, and graded once at its end, whoever ends it."""

    _source: TaskSource[TaskT]
    """Where the tasks come from; set by the subclass."""

    def __init__(self, max_turns: int, render_mode: str | None, **seconds: float) -> None:
        super().__init__(max_turns, render_mode, **seconds)
        self._max_turns = max_turns
        self._episode: tuple[TaskT, WorkspaceT] | None = None
        self._turns = 0
        self.report = ""
        """Report of the grade at the end of the episode; `finish()` sets it too."""
        self.agent_fault = False
        """Whether the agent broke the episode: its reward of 0 was not earned."""
        self.waited_s = 0.0
        """Seconds that processes of actions waited for a CPU of this machine, over all episodes:
        they are not the agent's time."""
        self.agent_mounts: Mapping[str, str] = {}
        """Folders of an agent that works inside: shown by the sandboxes of later episodes."""

    def workplace(self) -> Workplace:
        """The sandbox of the current episode, for an agent that works inside it.

        Raises EnvError where there is none.
        """
        raise EnvError(f"{type(self).__name__} has no sandbox that an agent could work in")

    @abstractmethod
    def _request(self, task: TaskT) -> str:
        """Request of the task: the first observation."""

    @abstractmethod
    def _open(self, task: TaskT) -> WorkspaceT:
        """The episode's workspace. Whatever it raises, nothing stays open."""

    @abstractmethod
    def _act(self, task: TaskT, workspace: WorkspaceT, action: str) -> tuple[str, bool]:
        """Carry out an action: what comes back, and whether it ends the task.

        Raises AgentFault for what the agent did to its own workspace: the episode ends with 0, or
        with what it might have earned at worst where rewards are below 0.
        """

    @abstractmethod
    def _grade(self, task: TaskT, workspace: WorkspaceT) -> tuple[float, str]:
        """Reward and report of what is there now. It may close the workspace itself.

        Raises AgentFault where the agent left nothing that can be graded: as in `_act`. EnvError
        is for what is provably not its doing.
        """

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[str, Info]:
        """Start an episode. Raises TaskError for a bad task, EnvError for what fails to start."""
        super().reset(seed=seed)
        self.close()
        self.report = ""
        self.agent_fault = False
        self._turns = 0
        task = self._select_task(options or {})
        with boundary(EnvError, f"starting task {task.id!r}"):
            self._episode = task, self._open(task)
        observation = self._request(task)
        self._start_transcript(observation)
        return observation, self._info(task)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act, and grade when that ends the episode. Raises EnvError for what fails by itself."""
        task, workspace = self._current("step")
        reward = 0.0
        with boundary(EnvError, f"task {task.id!r}"):
            self._turns += 1
            observation, terminated = self._attempt(task, workspace, action)
            truncated = not terminated and self._turns >= self._turn_limit(task)
            if self._episode is not None and (terminated or truncated):
                reward = self._end_with_grade(task, workspace)
        info = self._info(task)
        self._extend_transcript(action, observation, str(info["next_state_role"]))
        return observation, reward, terminated, truncated, info

    def finish(self) -> float:
        """Grade what is there now: the episode was ended from outside, say by a full context."""
        if self._episode is None:
            return 0.0
        task, workspace = self._episode
        with boundary(EnvError, f"task {task.id!r}"):
            return self._end_with_grade(task, workspace)

    def close(self) -> None:
        """End the episode without a grade; idempotent, and reset() works afterwards."""
        episode, self._episode = self._episode, None
        if episode is not None:
            episode[1].close()

    def task_ids(self, split: Split) -> Sequence[str]:
        """The ids that `options={"task": id}` takes; starts nothing."""
        return self._source.ids(split)

    @property
    def selection(self) -> Selection | None:
        """Selection that the tasks were chosen from; None when none could be left out."""
        return selection_of(self._source)

    def _current(self, caller: str) -> tuple[TaskT, WorkspaceT]:
        """The task and its workspace. Raises EnvError when none is being worked on."""
        if self._episode is None:
            raise EnvError(f"got {caller}() outside an episode, expected reset() first")
        return self._episode

    def _turn_limit(self, task: TaskT) -> int:
        """Turns after which the episode is truncated."""
        return self._max_turns

    def _info(self, task: TaskT) -> Info:
        """The same keys with values of the same types throughout."""
        return {
            "task": task.id,
            "family": task.family,
            "split": task.split,
            "tools": [],
            "next_state_role": "user",
            "report": self.report,
            "error": None,
        }

    def _select_task(self, options: Mapping[str, object]) -> TaskT:
        task_id, split = requested_task(options)
        if task_id is not None:
            return self._source.load(task_id)
        ids = self._source.ids(split)
        if not ids:
            raise TaskError(f"there is no task in the split {split!r}")
        return self._source.load(ids[int(self.np_random.integers(len(ids)))])

    def _attempt(self, task: TaskT, workspace: WorkspaceT, action: str) -> tuple[str, bool]:
        """`_act`; an action that spoils the episode ends it, and nothing is graded."""
        try:
            return self._act(task, workspace, action)
        except AgentFault as fault:
            return self._fail(fault), True

    def _end_with_grade(self, task: TaskT, workspace: WorkspaceT) -> float:
        """The reward; the episode ends with it. A grade that the agent broke is 0."""
        try:
            reward, self.report = self._grade(task, workspace)
        except AgentFault as fault:
            reward = 0.0
            self._fail(fault)
        finally:
            self.close()
        return reward

    def _fail(self, fault: AgentFault) -> str:
        """End the episode by what the agent did to it; what it did, in words."""
        self.report = report_of([str(fault)])
        self.agent_fault = True
        with suppress(EnvError):  # what it destroyed may not close either
            self.close()
        return str(fault)
