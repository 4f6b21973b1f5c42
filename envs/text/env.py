"""`ClawRL/Text-v0`: a request, one reply, and a grader, as a Gymnasium environment."""

from __future__ import annotations

from dataclasses import dataclass

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.example import Example, Examples, with_example
from clawrl_gym.envs.task_env import Info, TaskEnv
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.source import open_source
from clawrl_gym.envs.text.task import TextTask, graded


@dataclass(slots=True)
class Answer:
    """The reply of one episode; empty until there is one."""

    text: str = ""

    def close(self) -> None:
        """Do nothing: nothing is held."""


class SingleReplyEnv(TaskEnv[TextTask, Answer]):
    """A request that the first reply answers; one task an episode.

    Observation
        Text (`Unicode`). At reset the request; "(done)" after the reply.
    Action
        Text (`Unicode`): the reply. No text is illegal.
    Reward
        The grader's, once, for the reply; from 1 on the task counts as solved. It may be below 0.
        An episode that ends without a reply is graded as one with an empty reply.
    Start
        `options={"task": ID}` names the task; without it one of `options["split"]` ("train" unless
        given) is drawn from the seed.
    End
        Terminated by the first reply. A grader that raises, or returns what is no finite number,
        raises EnvError naming grader and task: no reward is made up for it.
    Options
        The keys of `TextEnvConfig` (`tasks` and what each of its values takes), and `render_mode`
        ("ansi": the conversation so far).
    Info
        Always `task`, `family`, `split`, `tools` (none), `next_state_role`, `system` (what the
        system message says, with the example where `example` is set), `error` (None: failures are
        exceptions) and `report`: empty until the end, then "Test report: passed", or "Test report:
        failed" with a line for each thing that is missing.
    Version
        v0: first version.
    """

    def __init__(self, *, render_mode: str | None = None, **options: object) -> None:
        """`options`: the keys of `TextEnvConfig`. Raises ConfigError for wrong ones."""
        config = TextEnvConfig.of(options, "env.")
        super().__init__(config.max_turns, render_mode)
        self._source = open_source(config)
        self._examples = Examples(self._source, _example_of) if config.example else None

    @staticmethod
    def source_of(config: TextEnvConfig) -> TaskSource[TextTask]:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        return open_source(config)

    def solve(self) -> tuple[str, ...]:
        """The oracle: the reply that earns the whole reward of the current task."""
        task, _ = self._current("solve")
        if task.solution is None:
            raise TaskError(f"task {task.id!r} has no solution")
        return (task.solution,)

    def _request(self, task: TextTask) -> str:
        return task.prompt

    def _open(self, task: TextTask) -> Answer:
        return Answer()

    def _act(self, task: TextTask, answer: Answer, action: str) -> tuple[str, bool]:
        answer.text = action
        return "(done)", True

    def _grade(self, task: TextTask, answer: Answer) -> tuple[float, str]:
        grade = graded(task, answer.text)
        return grade.reward, grade.report

    def _info(self, task: TextTask) -> Info:
        return super()._info(task) | {"system": with_example(task.system, self._examples, task)}


def _example_of(task: TextTask) -> Example:
    return Example(task.prompt, () if task.solution is None else (task.solution,))
