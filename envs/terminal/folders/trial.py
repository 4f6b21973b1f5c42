"""One task on one machine, from its start to its grade; a task of several steps step by step."""

from __future__ import annotations

import shlex
from dataclasses import replace

from clawrl_gym.core.errors import AgentFault, EnvError, NoVerdict, TaskError
from clawrl_gym.envs.report import Grade
from clawrl_gym.envs.sandbox.interface import ExecResult, Sandbox
from clawrl_gym.envs.terminal.folders.grading import MissingVerdict, grade
from clawrl_gym.envs.terminal.folders.machines import (
    Machines,
    absolute_path,
    agents_doing,
    await_health,
    make_log_folders,
    must_succeed,
    write_files,
)
from clawrl_gym.envs.terminal.folders.verdicts import problem_of, rewarded
from clawrl_gym.envs.terminal.task import SUBMIT, Task

_STEP_S = 60.0


class Trial:
    """The machine of one episode, and what was earned on it."""

    def __init__(
        self,
        task: Task,
        machines: Machines,
        grader_timeout_s: float,
        *,
        doubts_verifier: bool = True,
    ) -> None:
        """Start the machine. Raises SandboxError, or TaskError for a bad task.

        `doubts_verifier`: of a task that has a key; a 0 stands only where the verifier works.
        """
        self._task = task
        self._machines = machines
        self._grader_timeout_s = grader_timeout_s
        self._doubts_verifier = doubts_verifier and bool(task.key)
        self._grades: list[Grade] = []
        self._solving = False
        self._sandbox: Sandbox | None = None
        self._sandbox, self._workdir = machines.open(task.machine, f"task {task.id!r}")
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def part(self) -> Task:
        """The task, or the step of it that is being worked on."""
        task = self._task
        part = task.steps[len(self._grades)] if task.steps else task
        return replace(part, workdir=self._workdir)

    @property
    def workdir(self) -> str:
        """Folder that the work begins in."""
        return self._workdir

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be done or graded."""
        return self._sandbox is None

    @property
    def sandbox(self) -> Sandbox:
        """Raises EnvError when the trial has ended."""
        if self._sandbox is None:
            raise EnvError("got no sandbox: the episode has been graded")
        return self._sandbox

    @property
    def reward(self) -> float:
        """Reward of all steps; a step that was never reached counts 0."""
        earned = [graded.reward for graded in self._grades]
        if not self._task.steps:
            return earned[0] if earned else 0.0
        earned += [0.0] * (len(self._task.steps) - len(earned))
        return earned[-1] if self._task.step_reward == "final" else sum(earned) / len(earned)

    @property
    def report(self) -> str:
        """Report of the first unsolved step, else of the last; empty before the first grade."""
        wanting = [graded for graded in self._grades if graded.reward < 1.0]
        return (wanting or self._grades[-1:] or [Grade(0.0, "")])[0].report

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        """Raises AgentFault when the command has ended the sandbox."""
        with agents_doing(self._machines, self._task.machine, "the sandbox has ended"):
            return self.sandbox.exec(command, timeout_s)

    def submit(self, *, last: bool = False) -> str | None:
        """Grade what is there; the next step's instruction, or None when the task has ended.

        `last`: the episode's budget is used up, so there is no next step. Raises EnvError when
        there is no verdict, NoVerdict when the task never gets one: the machine has ended then too.
        """
        part = self.part
        try:
            graded = self._graded()
            self._grades.append(graded)
            enough = part.min_reward is None or graded.reward >= part.min_reward
            if enough and not last and len(self._grades) < len(self._task.steps):
                self._go_on()
                return self.part.instruction
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    @property
    def missing(self) -> MissingVerdict | None:
        """The first verdict that a verifier did not give."""
        return next((one for one in self._grades if isinstance(one, MissingVerdict)), None)

    def succeeds(self, command: str) -> bool:
        """Run a command of the oracle: whether it came to a good end in the verifier's time."""
        limit_s = self.part.grader_timeout_s or self._grader_timeout_s
        return self.exec(command, limit_s).exit_code == 0

    def oracle(self) -> tuple[str, ...]:
        """Commands that solve the whole task; uploads what they need as each step begins.

        Raises TaskError when a part has no solution.
        """
        parts = self._task.steps or (self._task,)
        lacking = [part.id for part in parts if not part.solution]
        if lacking:
            raise TaskError(f"task {lacking[0]!r} has no solution")
        self._solving = True
        write_files(self.sandbox, self.part.solution_files, "/")
        first, *rest = (part.solution for part in parts[len(self._grades) :])
        return (*first, *(c for commands in rest for c in (SUBMIT, *commands)))

    def close(self) -> None:
        """End the machine; idempotent."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def _graded(self) -> Grade:
        """The grade; of what earned nothing only where the verifier works."""
        try:
            graded, self._sandbox = grade(
                self.part, self.sandbox, self._grader_timeout_s, self._machines
            )
        except AgentFault:
            self.close()  # the verifier may have ended the machine by itself
            self._require_verdicts()
            raise
        if graded.reward > 0:
            if self._doubts_verifier:
                rewarded(self._task, self._machines.opener)
        else:
            self._require_verdicts()
        return graded

    def _require_verdicts(self) -> None:
        """Raises NoVerdict where the task's verifier gives none even without the agent's work."""
        if not self._doubts_verifier:
            return
        problem = problem_of(self._task, self._fresh, self._machines.opener)
        if problem is not None:
            raise NoVerdict(
                f"the verifier of task {self._task.id!r} gives no verdict even without the agent's "
                f"work: {problem}"
            )

    def _fresh(self, task: Task) -> Trial:
        return Trial(task, self._machines, self._grader_timeout_s, doubts_verifier=False)

    def _go_on(self) -> None:
        """The next step: new processes over the files, without what graded the last one.

        Raises AgentFault when that cannot be done with what was left.
        """
        sandbox = self.sandbox
        label = f"task {self._task.id!r}"
        what = "the next step cannot begin over what was left"
        try:
            with agents_doing(self._machines, self._task.machine, what):
                command = "rm -rf /tests /solution /logs/verifier /logs/agent"
                must_succeed(sandbox, command, _STEP_S, label)
                self._sandbox = sandbox.successor()
                self.sandbox.exec(f"cd {shlex.quote(self._workdir)}", _STEP_S)
                self._begin()
        except TaskError as error:
            raise AgentFault(f"{what}: {error}") from error

    def _begin(self) -> None:
        part, sandbox = self.part, self.sandbox
        label = f"task {part.id!r}"
        if part.reward_files:
            make_log_folders(sandbox)
        if self._task.steps:
            for step in part.build:
                write_files(sandbox, step.files, self._workdir)
                if step.command:
                    must_succeed(sandbox, step.command, step.timeout_s, label)
            if part.health is not None:
                await_health(sandbox, part.health, label)
        for path, data in part.files.items():
            sandbox.write(absolute_path(self._workdir, path), data)
        if part.setup:
            must_succeed(sandbox, part.setup, self._grader_timeout_s, label)
        if self._solving:
            write_files(sandbox, part.solution_files, "/")
