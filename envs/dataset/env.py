"""`ClawRL/Dataset-v0`: a row of a data set, one reply, and reward functions."""

from __future__ import annotations

from dataclasses import dataclass, field

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.dataset.agent import encode_messages
from clawrl_gym.envs.dataset.config import DatasetEnvConfig
from clawrl_gym.envs.dataset.row import RowTask
from clawrl_gym.envs.dataset.source import DatasetTasks, open_source
from clawrl_gym.envs.example import Example, Examples, with_example
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.task_env import Info, TaskEnv


@dataclass(slots=True)
class Answer:
    """The reply of one episode; empty until there is one."""

    text: str = ""

    def close(self) -> None:
        """Do nothing: nothing is held."""


@dataclass(frozen=True, slots=True)
class Graded:
    """What the reward functions said of a reply."""

    solved: bool = False
    scores: dict[str, float] = field(default_factory=dict)


class DatasetEnv(TaskEnv[RowTask, Answer]):
    """A row that the first reply answers; one row an episode.

    Observation
        Text (`Unicode`). At reset the prompt; one of several messages is the JSON object
        {"messages": [...]}, which the agent `dataset` reads. "(done)" after the reply.
    Action
        Text (`Unicode`): the reply. No text is illegal.
    Reward
        The weighted sum of the reward functions, once, for the reply. An episode that ends without
        a reply is graded as one with an empty reply.
    Start
        `options={"task": ID}` names the row; without it one of `options["split"]` ("train" unless
        given) is drawn from the seed.
    End
        Terminated by the first reply. A reward function that raises, returns no reward or takes
        too long raises EnvError naming function and row.
    Options
        The keys of `DatasetEnvConfig`, and `render_mode` ("ansi": the conversation so far).
    Info
        Always `task`, `family`, `split`, `tools` (none), `next_state_role`, `system` (the row's
        system message, with the example where `example` is set), `error` (None), `success` (False
        until the end), `scores` (`rewards/NAME`: the value of each function, empty until the end)
        and `report`: empty until the end, then "Test report: passed", or "Test report: failed" with
        a line for each function.
    Version
        v0: first version.
    """

    def __init__(self, *, render_mode: str | None = None, **options: object) -> None:
        """`options`: the keys of `DatasetEnvConfig`. Raises ConfigError for wrong ones."""
        self._config = DatasetEnvConfig.of(options, "env.")
        super().__init__(self._config.max_turns, render_mode)
        self._source: DatasetTasks = open_source(self._config)
        self._examples = Examples(self._source, _example_of) if self._config.example else None
        self._graded = Graded()

    @staticmethod
    def source_of(config: DatasetEnvConfig) -> DatasetTasks:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        return open_source(config)

    def solve(self) -> tuple[str, ...]:
        """The oracle: the row's solution, or else its answer."""
        task, _ = self._current("solve")
        if task.solution is None:
            raise TaskError(
                f"task {task.id!r} has no column 'solution' or 'answer' to reply with "
                "(env.answer=COLUMN)"
            )
        return (task.solution,)

    def _request(self, task: RowTask) -> str:
        return encode_messages(task.turns)

    def _open(self, task: RowTask) -> Answer:
        self._graded = Graded()
        return Answer()

    def _act(self, task: RowTask, answer: Answer, action: str) -> tuple[str, bool]:
        answer.text = action
        return "(done)", True

    def _grade(self, task: RowTask, answer: Answer) -> tuple[float, str]:
        reward, scores, values = 0.0, dict[str, float](), list[float]()
        for function in self._source.functions:
            parts = function.parts(f"row {task.id!r}", answer.text, task.messages, task.columns)
            scores |= {f"rewards/{part.name}": part.value for part in parts}
            values.append(sum(part.value for part in parts))
            reward += function.weight * values[-1]
        solved = values[0] >= self._config.success
        self._graded = Graded(solved=solved, scores=scores)
        lines = [
            f"{name.removeprefix('rewards/')} gave {value:g}" for name, value in scores.items()
        ]
        return reward, report_of([] if solved else lines)

    def _info(self, task: RowTask) -> Info:
        return super()._info(task) | {
            "system": with_example(task.system, self._examples, task),
            "scores": self._graded.scores,
            "success": self._graded.solved,
        }


def _example_of(task: RowTask) -> Example:
    return Example(task.prompt, () if task.solution is None else (task.solution,))
