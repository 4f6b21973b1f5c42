"""`ClawRL/Terminal-v0`: a shell in a sandbox as a Gymnasium environment.

The environment knows tasks, turns and grades; what isolates the shell is behind `Sandbox`.
"""

from __future__ import annotations

from collections.abc import Callable

from clawrl_gym.envs.example import Example, Examples, with_example
from clawrl_gym.envs.sandbox.interface import ExecResult, Workplace
from clawrl_gym.envs.sandbox.sandboxes import Opener, Sandboxes
from clawrl_gym.envs.task_env import Info, TaskEnv
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.terminal.agent import reply_text
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.folders.machines import Machines
from clawrl_gym.envs.terminal.folders.trial import Trial
from clawrl_gym.envs.terminal.folders.verifier import is_trusted
from clawrl_gym.envs.terminal.source import needs_of, open_source
from clawrl_gym.envs.terminal.submission import Submission
from clawrl_gym.envs.terminal.task import SUBMIT, Task


class TerminalEnv(TaskEnv[Task, Trial]):
    """A Linux shell in a sandbox, one task an episode.

    Observation
        Text (`Unicode`). At reset the task's instruction, with the number of replies that there
        are (but for generated tasks without `spare_replies`); after a command its
        output, "(no output)" when there is none, followed by a line such as "(exit code 2)" when
        the command failed, was stopped at its deadline, printed too much or ended the shell.
    Action
        Text (`Unicode`): any bash command, run in a shell that keeps its directory and variables;
        or `submit`, which ends the episode (or the step of a task in several steps, whose next
        instruction is then the observation). `submit` is a command like others: it may stand in
        a line of its own, behind `;`, `&&` or `||`, or in a condition, and does nothing in quotes,
        comments and files' contents. The episode ends once the whole action has run. No text is
        illegal: what bash refuses is a failed command.
    Reward
        0 until the end, then the task's grade: 1 or 0 for the shipped tasks, the verifier's own
        number for a user's. The grade looks only at what the agent left: generated tasks are
        checked from outside the sandbox, graders run in a fresh sandbox after the agent's
        processes have ended. Several steps earn their mean or the last one's grade.
    Start
        A fresh sandbox with the task's files. `options={"task": ID}` names the task; without it
        one of `options["split"]` ("train" unless given) is drawn from the seed.
    End
        Terminated by `submit`, or when the task's own number of turns is used up (1 to 3 for the
        generated families of single commands, a budget that the request says for composed ones).
        Truncated, and graded all the same, after `max_turns` commands. A sandbox that fails raises
        EnvError: no reward is made up for it.
    Options
        The fields of `TerminalEnvConfig`; `open_sandbox` (None for the kind's own) and
        `render_mode` ("ansi": the transcript so far).
    Info
        Always `task`, `family`, `split`, `tools` (empty), `next_state_role` ("user"), `error`
        (None: failures are exceptions), `scores` (of a folder's task `trusted`: 0 where the agent
        may have prepared its grade), `difficulty` (1 where a source does not rate its tasks) and
        `report`: empty until the end, then what the checks say,
        "Test report: passed" or "Test report: failed" with a line for each failure. Checks do not
        give the wanted contents away, and no observation holds the report.
        `system` of generated tasks without `spare_replies`: after how many commands they are
        graded; with `example`, a solved task as well. `max_replies` of all others: the number that
        the request says, which replies without a command use up, too.
    Version
        v0: first version.
    """

    shows_shell = True

    def __init__(
        self,
        *,
        open_sandbox: Opener | None = None,
        render_mode: str | None = None,
        **options: object,
    ) -> None:
        """`options`: the keys of `TerminalEnvConfig`. Raises ConfigError for wrong ones."""
        config = TerminalEnvConfig.of(options, "env.")
        super().__init__(config.max_turns, render_mode)
        self._command_timeout_s = config.command_timeout_s
        self._grader_timeout_s = config.grader_timeout_s
        sandboxes = Sandboxes.of(config.sandbox, open_sandbox)
        self._machines = Machines(sandboxes)
        self._source = open_source(config)
        sandboxes.require(needs_of(config))
        self._examples = Examples(self._source, self._example_of) if config.example else None

    @staticmethod
    def source_of(config: TerminalEnvConfig) -> TaskSource[Task]:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        return open_source(config)

    @staticmethod
    def check_sandbox(config: TerminalEnvConfig) -> None:
        """Raises ConfigError where the kind of sandbox lacks what the tasks need."""
        Sandboxes.of(config.sandbox).require(needs_of(config))

    @staticmethod
    def prepare(config: TerminalEnvConfig, say: Callable[[str], None]) -> None:
        """Have the image that tasks without one of their own share. Raises SandboxError.

        A task's own image is built or pulled when the task is first drawn.
        """
        if Sandboxes.of(config.sandbox).capabilities.images:
            from clawrl_gym.envs.sandbox.docker.images import TERMINAL_IMAGE, ensure_image

            ensure_image(config.sandbox.image or TERMINAL_IMAGE, say)

    @staticmethod
    def long_preparation(config: TerminalEnvConfig) -> str | None:
        """Where there are images; None where an episode can begin at once."""
        sandboxes = Sandboxes.of(config.sandbox)
        missing = sandboxes.missing_image()
        if (
            missing is None
            and sandboxes.capabilities.images
            and config.tasks not in config.shipped_tasks
        ):
            return "images of tasks are built or pulled when a task is first drawn"
        return missing

    def solve(self) -> tuple[str, ...]:
        """The oracle: commands that solve the current task, one a step.

        Uploads the files that the oracle needs, which the agent never sees.
        """
        _, trial = self._current("solve")
        return trial.oracle()

    def workplace(self) -> Workplace:
        _, trial = self._current("workplace")
        return Workplace(trial.sandbox, trial.workdir, SUBMIT)

    def _info(self, task: Task) -> Info:
        trusted = is_trusted(task)
        scores = {} if trusted is None else {"trusted": float(trusted)}
        info: Info = {**super()._info(task), "scores": scores, "difficulty": task.difficulty}
        if task.turns is not None and not task.tells_budget:
            info["system"] = single_commands(task.turns)
        else:
            info["max_replies"] = task.budget(self._max_turns)
        if self._examples is not None:
            info["system"] = with_example(str(info.get("system", "")), self._examples, task)
        return info

    def _example_of(self, task: Task) -> Example:
        """All commands in one reply; what says that a task is done stands behind them."""
        ends = task.turns is None or task.tells_budget
        commands = (*task.solution, SUBMIT) if ends else task.solution
        replies = (reply_text("\n".join(commands)),) if task.solution and not task.steps else ()
        return Example(self._request(task), replies)

    def _request(self, task: Task) -> str:
        return task.request(self._max_turns)

    def _open(self, task: Task) -> Trial:
        self._machines.agent_mounts = self.agent_mounts
        return Trial(task, self._machines, self._grader_timeout_s)

    def _act(self, task: Task, trial: Trial, action: str) -> tuple[str, bool]:
        submission = Submission.of(action)
        if submission is not None and submission.is_bare:
            self._turns -= 1  # only commands count
            return self._submit(trial)
        command = action if submission is None else submission.command
        result = trial.exec(command, self._command_timeout_s)
        self.waited_s += result.waited_s
        observation = observation_of(result)
        if submission is not None and trial.succeeds(submission.question):
            following, ended = self._submit(trial)
            return f"{observation}\n{following}", ended
        return observation, task.turns is not None and self._turns >= task.turns

    def _submit(self, trial: Trial) -> tuple[str, bool]:
        """Text that comes back, such as the next step's instruction; whether the task has ended."""
        try:
            next_instruction = trial.submit()
        except BaseException:
            self.close()  # without a verdict the trial has ended
            raise
        return next_instruction or "(submitted)", next_instruction is None

    def _grade(self, task: Task, trial: Trial) -> tuple[float, str]:
        if not trial.ended:
            trial.submit(last=True)
        return trial.reward, trial.report


def observation_of(result: ExecResult) -> str:
    """Text that the agent reads after a command: nothing in it varies from run to run."""
    notes = []
    if result.timed_out:
        notes.append("(stopped: it took too long)")
    elif result.exit_code not in (0, None):
        notes.append(f"(exit code {result.exit_code})")
    if result.truncated:
        notes.append("(output cut)")
    if result.shell_restarted:
        notes.append("(the shell ended, this is a new one)")
    output = result.output.rstrip("\n")
    return "\n".join([output, *notes] if output else ["(no output)", *notes])


def single_commands(count: int) -> str:
    """Line of the system message about a task that ends by itself after `count` commands."""
    if count > 1:
        return f"This task is graded after {count} commands, or at submit."
    return (
        "This task is graded after your first command, without submit: there is no command to look "
        "around first."
    )
