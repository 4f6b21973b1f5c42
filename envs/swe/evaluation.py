"""One run of an instance's tests over a patched repository, in a sandbox that nothing has touched.

Failures are told apart: `PatchFails` is the patch's doing and worth nothing, an
`EvaluationFailed` may be anybody's, any other EnvError no patch can bring about.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clawrl_gym.core.errors import EnvError, SandboxError, TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult, Sandbox
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.script import (
    Marks,
    TestOutput,
    marked,
    preparation,
    read_output,
    started,
)

MAX_LOG_BYTES = 32 << 20
MAX_TEST_FILE_BYTES = 2 << 20
GIT_TIMEOUT_S = 120.0
_DISK_FULL = "[disk full"
"""Text that the Docker sandbox appends to the output of a command that it killed for writing."""
_GIT = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c safe.directory='*'"


class PatchFails(Exception):
    """The patch is worth nothing, and why."""


class EvaluationFailed(EnvError):
    """A run that cannot be judged, be it the patch's doing or not."""


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Runs an instance's tests, each time in a sandbox of its own."""

    instance: Instance
    open_fresh: Callable[[], Sandbox]
    """Gives the repository as it was before the agent, in a sandbox that is closed here."""
    timeout_s: float

    def run(self, patch: Patch, script: str) -> TestOutput:
        """Output of a script's tests once the patch is applied."""
        marks = Marks()
        script = marked(script, marks)
        sandbox = self.open_fresh()
        try:
            self._require_repository(sandbox)
            if patch.files:
                self._apply(sandbox, patch)
            try:
                return self._output(self._execute(sandbox, script), marks)
            except TaskError:
                raise
            except EnvError as error:
                raise EvaluationFailed(str(error)) from error
        finally:
            sandbox.close()

    def prepared_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Files as the tests find them, without a patch; those that are no text are left out."""
        files = dict[str, str]()
        sandbox = self.open_fresh()
        try:
            self._execute(sandbox, preparation(self.instance.eval_script))
            for path in paths:
                try:
                    where = f"{self.instance.workdir}/{path}"
                    files[path] = sandbox.read(where, MAX_TEST_FILE_BYTES).decode()
                except (FileNotFoundError, SandboxError, UnicodeDecodeError):
                    continue
        finally:
            sandbox.close()
        return files

    def _require_repository(self, sandbox: Sandbox) -> None:
        result = self._in_repository(sandbox, f"{_GIT} rev-parse --verify -q HEAD")
        if result.exit_code != 0:
            raise EnvError(
                f"instance {self.instance.id!r}: {self.instance.workdir} in the fresh sandbox is "
                f"no git repository, or there is no git: {result.output[-300:].strip()!r}"
            )

    def _apply(self, sandbox: Sandbox, patch: Patch) -> None:
        """Bring the patch in, as swebench does. Raises PatchFails."""
        path = f"/tmp/{secrets.token_hex(8)}.diff"
        sandbox.write(path, patch.text.encode(errors="surrogateescape"))
        before = self._changed(sandbox)
        error_output = ""
        for command in (
            f"{_GIT} apply --whitespace=nowarn {path}",
            f"{_GIT} apply --whitespace=nowarn --3way {path}",
            f"patch --batch --forward --fuzz=5 --no-backup-if-mismatch -p1 -i {path}",
        ):
            result = self._in_repository(sandbox, command)
            if result.exit_code == 0:
                strange = sorted(self._changed(sandbox) - before - patch.paths)
                if strange:
                    paths = ", ".join(repr(path) for path in strange[:3])
                    raise PatchFails(f"the patch changes more than it names: {paths}")
                return
            error_output = error_output or " ".join(result.output.split())[-300:]
            if self._changed(sandbox) != before:
                self._reset(sandbox)
        raise PatchFails(f"the patch does not apply: {error_output}")

    def _reset(self, sandbox: Sandbox) -> None:
        """Undo what a command that failed left."""
        command = f"{_GIT} reset -q --hard && {_GIT} clean -fdq"
        result = self._in_repository(sandbox, command)
        if result.exit_code != 0:
            raise EnvError(
                f"instance {self.instance.id!r}: git reset: {result.output[-300:].strip()!r}"
            )

    def _changed(self, sandbox: Sandbox) -> frozenset[str]:
        """Paths that are not as the commit has them."""
        listing = f"/tmp/{secrets.token_hex(8)}.changed"
        status = f"{_GIT} status --porcelain -z --no-renames --untracked-files=all > {listing}"
        result = self._in_repository(sandbox, status)
        if result.exit_code != 0:
            raise EnvError(
                f"instance {self.instance.id!r}: git status: {result.output[-300:].strip()!r}"
            )
        entries = sandbox.read(listing, MAX_LOG_BYTES).decode(errors="surrogateescape")
        return frozenset(entry[3:] for entry in entries.split("\0") if entry)

    def _execute(self, sandbox: Sandbox, script: str) -> _Run:
        folder = f"/tmp/{secrets.token_hex(8)}"
        sandbox.write(f"{folder}/eval.sh", script.encode(errors="surrogateescape"), 0o755)
        run = f"bash {folder}/eval.sh < /dev/null > {folder}/log 2>&1"
        result = self._in_repository(sandbox, run, self.timeout_s)
        room = f"head -c 65536 /dev/zero > {folder}/room"
        look = f"[ -f {folder}/log ] && wc -c < {folder}/log; {room} && echo room"
        words = sandbox.exec(look, GIT_TIMEOUT_S).output.split()
        if not words or not words[0].isdecimal():
            raise EnvError(
                f"instance {self.instance.id!r}: the eval script left no log: {words[:20]}"
            )
        full = words[-1] != "room" or _DISK_FULL in result.output
        if int(words[0]) > MAX_LOG_BYTES:
            return _Run(None, result.timed_out, full)
        try:
            log = sandbox.read(f"{folder}/log", MAX_LOG_BYTES).decode(errors="replace")
        except (FileNotFoundError, SandboxError) as error:
            raise EnvError(
                f"instance {self.instance.id!r}: the eval script's log: {error}"
            ) from error
        return _Run(log, result.timed_out, full)

    def _output(self, run: _Run, marks: Marks) -> TestOutput:
        """Raises PatchFails for what tests alone can bring about."""
        if run.log is None:
            raise PatchFails(f"the tests wrote more than {MAX_LOG_BYTES} bytes")
        if run.timed_out and started(run.log, marks):
            raise PatchFails(f"the tests ran past {self.timeout_s:g} s")
        if run.timed_out:
            raise EnvError(
                f"instance {self.instance.id!r}: the eval script took over {self.timeout_s:g} s "
                f"before its tests began; its last output: {run.log[-500:]!r}"
            )
        try:
            output = read_output(run.log, marks)
        except EnvError as error:
            if run.disk_full and started(run.log, marks):
                raise PatchFails("the tests filled the disk") from error
            raise EnvError(f"instance {self.instance.id!r}: {error}") from error
        if output.forged:
            raise PatchFails("the tests wrote a mark of the eval script themselves")
        return output

    def _in_repository(
        self, sandbox: Sandbox, command: str, timeout_s: float = GIT_TIMEOUT_S
    ) -> ExecResult:
        return sandbox.exec(f"(cd {shlex.quote(self.instance.workdir)} && {command})", timeout_s)


@dataclass(frozen=True, slots=True)
class _Run:
    """Result of the eval script."""

    log: str | None
    """Log of the run; None for one that is too long."""
    timed_out: bool
    disk_full: bool
