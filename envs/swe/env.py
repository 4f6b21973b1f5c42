"""`ClawRL/SWE-v0`: a repository with an issue, worked on through a shell."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.report import with_left_out
from clawrl_gym.envs.sandbox.docker.addresses import find_engine
from clawrl_gym.envs.sandbox.interface import ExecResult, Sandbox, Workplace
from clawrl_gym.envs.sandbox.sandboxes import Opener, Sandboxes
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.grading import grade
from clawrl_gym.envs.swe.machine import settled, usual_kind
from clawrl_gym.envs.swe.observation import observation_text
from clawrl_gym.envs.swe.rows.images import ready_image
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK, Instance
from clawrl_gym.envs.swe.rows.repository import (
    Repository,
    RepositoryChanges,
    activate,
    open_repository,
    read_changes,
)
from clawrl_gym.envs.swe.source import lives_in_images, needs_of, open_source
from clawrl_gym.envs.task_env import Info, TaskEnv
from clawrl_gym.envs.task_source import TaskSource

SUBMITTED = "(submitted)"
"""Observation after a submission."""
_NO_COMMAND = ExecResult("", 0)
_GOLD = "/tmp/gold.patch"


class SweEnv(TaskEnv[Instance, Repository]):
    """A repository with an issue in the fields of SWE-bench, one instance an episode.

    Observation
        Text (`Unicode`). At reset the issue and nothing else; after a command its exit code and
        its output in mini-swe-agent's form, long outputs without their middle.
    Action
        Text (`Unicode`): one bash command. Each runs in a process of its own in the repository:
        directory and variables do not last. No text is illegal. A command that succeeds and whose
        output begins with the line COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT submits: what follows
        that line is the patch, or, when nothing does, all that was changed in the work tree.
    Reward
        0 until the end, then 1 when the patch makes the failing tests pass and breaks none, else
        0. The patch is applied in a fresh sandbox with the tests as they were; what it does to
        tests counts for nothing.
    Start
        A fresh sandbox with the repository as the issue found it, without later history.
        `options={"task": ID}` names the instance; without it one of `options["split"]` ("train"
        unless given) is drawn from the seed.
    End
        Terminated by a submission. Truncated, and what was changed is graded all the same, after
        `max_turns` commands. A sandbox or a grade that fails raises EnvError.
    Options
        The fields of `SweEnvConfig`; `open_sandbox` (None for what `sandbox.type` says: Docker
        where an engine answers, else bubblewrap) and `render_mode` ("ansi": the transcript so far).
    Info
        `returncode`, `output` and `exception` of the last command (0 and empty after reset), whole
        where the observation is cut. Always `task`, `family`, `split`, `tools` (empty),
        `next_state_role` ("user"), `error` (None: failures are exceptions) and `report`: empty
        until the end, then which tests failed. No observation holds it. `difficulty` (1 where
        nothing rates the instances). `scores`: `trusted` is 1
        once there is a grade, and 0 still for a reward that rests on tests without twins.
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
        """`options`: the keys of `SweEnvConfig`. Raises ConfigError for wrong ones."""
        config = SweEnvConfig.of(options, "env.")
        super().__init__(config.max_turns, render_mode)
        self._command_timeout_s = config.command_timeout_s
        self._grader_timeout_s = config.grader_timeout_s
        self._sandboxes = sandboxes_of(config, open_sandbox)
        self._source = open_source(config)
        self._sandboxes.require(needs_of(config))
        self._last_result = _NO_COMMAND
        self._submitted = ""
        """A patch that was given with the submission; empty: what was changed is graded."""
        self._trusted = False
        """Whether there is a grade, and nothing that the patch alone could have made true."""

    @staticmethod
    def source_of(config: SweEnvConfig) -> TaskSource[Instance]:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        return open_source(config)

    @staticmethod
    def prepare(config: SweEnvConfig, say: Callable[[str], None]) -> None:
        """Build or check the image that instances without one of their own share."""
        sandboxes = sandboxes_of(config)
        if sandboxes.capabilities.images and sandboxes.config.image is not None:
            from clawrl_gym.envs.sandbox.docker.images import ensure_image

            ensure_image(sandboxes.config.image, say)

    @staticmethod
    def check_sandbox(config: SweEnvConfig) -> None:
        """Raises ConfigError where the kind of sandbox lacks what the instances need."""
        sandboxes_of(config).require(needs_of(config))

    @staticmethod
    def settled(config: SweEnvConfig, say: Callable[[str], None]) -> SweEnvConfig:
        """The configuration with sandbox and families that this machine runs. Builds no image."""
        return settled(config, say)

    @staticmethod
    def long_preparation(config: SweEnvConfig) -> str | None:
        """Where there are images; None where an episode can begin at once."""
        sandboxes = sandboxes_of(config)
        missing = sandboxes.missing_image()
        if missing is None and sandboxes.capabilities.images and lives_in_images(config):
            return "images of instances are pulled when an instance is first drawn"
        return missing

    def solve(self) -> tuple[str, ...]:
        """The oracle: commands that apply the gold patch and submit, one a step.

        Puts the patch into the sandbox, where an agent never has it.
        """
        instance, repository = self._current("solve")
        if not instance.patch:
            raise TaskError(f"instance {instance.id!r} has no gold patch")
        text = instance.patch if instance.patch.endswith("\n") else instance.patch + "\n"
        repository.sandbox.write(_GOLD, text.encode(errors="surrogateescape"))
        return (
            f"git apply --whitespace=nowarn {_GOLD} || patch --batch --fuzz=5 -p1 -i {_GOLD}",
            f"echo {SUBMIT_MARK}",
        )

    def workplace(self) -> Workplace:
        instance, repository = self._current("workplace")
        return Workplace(repository.sandbox, instance.workdir)

    def _request(self, task: Instance) -> str:
        return task.problem_statement.strip()

    def _open(self, task: Instance) -> Repository:
        self._last_result, self._submitted, self._trusted = _NO_COMMAND, "", False
        return self._repository(task)

    def _act(self, task: Instance, repository: Repository, action: str) -> tuple[str, bool]:
        result = self._last_result = self._run(action, task, repository.sandbox)
        self.waited_s += result.waited_s
        submitted = submission_of(result)
        if submitted is not None:
            self._submitted = submitted
            return SUBMITTED, True
        return observation_text(_code(result), result.output, self._exception()), False

    def _grade(self, task: Instance, repository: Repository) -> tuple[float, str]:
        try:
            changes = (
                RepositoryChanges(self._submitted)
                if self._submitted
                else read_changes(repository, task.workdir, self._grader_timeout_s)
            )
        finally:
            repository.close()
        if changes.failure:
            return 0.0, f"Test report: failed\n- {changes.failure}"

        def fresh() -> Sandbox:
            return self._repository(task, for_grading=True).sandbox

        patch_grade = grade(task, changes.patch, fresh, self._grader_timeout_s)
        self._trusted = patch_grade.trusted
        return patch_grade.reward, with_left_out(patch_grade.report, changes.left_out)

    def _repository(self, instance: Instance, *, for_grading: bool = False) -> Repository:
        if instance.image is not None and self._sandboxes.capabilities.images:
            ready_image(instance)
        return open_repository(
            instance,
            self._sandboxes,
            self._grader_timeout_s,
            for_grading=for_grading,
            agent_mounts={} if for_grading else self.agent_mounts,
        )

    def _run(self, command: str, instance: Instance, sandbox: Sandbox) -> ExecResult:
        """Run in a process of its own, so that nothing it sets reaches the next.

        What the session's own shell says, that a process was killed and its number, is nobody's.
        """
        own_process = f"cd {shlex.quote(instance.workdir)} && exec bash -c {shlex.quote(command)}"
        result = sandbox.exec(
            f"{{ ( {own_process} ) 2>&5 5>&-; }} 5>&2 2>/dev/null", self._command_timeout_s
        )
        if result.shell_restarted and instance.image is not None:
            activate(sandbox, self._command_timeout_s)
        return result

    def _exception(self) -> str:
        """Further remarks on the last command."""
        notes = []
        if self._last_result.timed_out:
            notes.append(f"stopped: it ran longer than {self._command_timeout_s:g} s")
        elif self._last_result.exit_code is None:
            notes.append("the command ended the shell; there is a new one")
        if self._last_result.truncated:
            notes.append("there was more output than is kept: only its beginning is here")
        return "; ".join(notes)

    def _info(self, task: Instance) -> Info:
        return super()._info(task) | {
            "returncode": _code(self._last_result),
            "output": self._last_result.output,
            "exception": self._exception(),
            "difficulty": task.difficulty,
            "scores": {"trusted": float(self._trusted)},
        }


def _code(result: ExecResult) -> int:
    return -1 if result.exit_code is None else result.exit_code


def submission_of(result: ExecResult) -> str | None:
    """The patch of a command that submits, "" for all that was changed; None when it does not.

    Output that was cut holds no whole patch.
    """
    first, _, rest = result.output.lstrip().partition("\n")
    if result.exit_code != 0 or first.strip() != SUBMIT_MARK:
        return None
    return rest if rest.strip() and not result.truncated else ""


def sandboxes_of(config: SweEnvConfig, opener: Opener | None = None) -> Sandboxes:
    """Sandboxes of the named kind, else one that fits this machine; with images where it can."""
    kind = config.sandbox.type
    if kind == "auto":
        kind = "docker" if opener is not None else usual_kind(config, find_engine())
    sandboxes = Sandboxes.of(config.sandbox.model_copy(update={"type": kind}), opener)
    if sandboxes.capabilities.images and sandboxes.config.image is None:
        from clawrl_gym.envs.sandbox.docker.images import SWE_IMAGE

        image = sandboxes.config.model_copy(update={"image": SWE_IMAGE})
        return Sandboxes.of(image, opener)
    return sandboxes
