"""The grade of a patch: applied in a fresh sandbox, judged by the tests that decide.

A patch that fails earns 0.0 and a report that says why; an evaluation that fails earns nothing:
it raises.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clawrl_gym.core.errors import EnvError, SandboxError, TaskError
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.sandbox.interface import ExecResult, Sandbox
from clawrl_gym.envs.swe.instance import CANARY, Instance
from clawrl_gym.envs.swe.logs import LogReport, grade_log, read_log
from clawrl_gym.envs.swe.patch import Patch, PatchRefused
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.protected_files import without_tests
from clawrl_gym.envs.swe.script import Marks, marked, read_output, started, swebench_log

MAX_LOG_BYTES = 32 << 20
MAX_FILES = 5_000
"""Of a patch; git takes minutes over more."""
MAX_NAMED_TESTS = 10
"""Tests that a report names; the rest are counted."""
GIT_TIMEOUT_S = 120.0
_DISK_FULL = "[disk full"
"""What the Docker sandbox puts under the output of a command that it killed for writing."""
_MACHINE_FAULTS = frozenset((126, 127))
"""Exit codes of a test command that could not be started."""
_NO_RUNNER = re.compile(r"No module named '?(pytest|tox|nose|django)\b|: command not found")
_FAILED = frozenset(("FAILED", "ERROR"))
_PATCHES_FAULTS = frozenset(("out_of_memory",))
"""Faults of the machine that a patch can bring about, all by itself."""
_GIT = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c safe.directory='*'"


@dataclass(frozen=True, slots=True)
class PatchGrade:
    """What a patch earned, and why not more."""

    reward: float
    report: str
    """For whoever learns from the episode; no prompt of the episode has it."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """Status of the instance's tests as swebench calls it; those that did not run are missing."""


def grade(
    instance: Instance, patch: str, open_fresh: Callable[[], Sandbox], timeout_s: float
) -> PatchGrade:
    """Judge a patch.

    `open_fresh` gives the repository as it was before the agent, in a sandbox that is closed here.
    Raises EnvError when the evaluation itself fails, whatever the patch: one that only fails with
    the patch is the patch's doing, else a bad patch could ask to be forgotten by killing its judge.
    """
    try:
        parsed = parse_patch(patch)
    except PatchRefused as refused:
        return _failed(str(refused))
    if not parsed.files:
        return _failed("the patch is empty")
    source_patch = without_tests(parsed, instance)
    if not source_patch.files:
        return _failed(
            "the patch changes only tests and what steers them, which counts for nothing"
        )
    if len(source_patch.files) > MAX_FILES:
        return _failed(
            f"the patch changes {len(source_patch.files)} files, at most {MAX_FILES} are taken"
        )
    judged = _evaluate(instance, source_patch, open_fresh, timeout_s)
    if isinstance(judged, EnvError):  # a machine that fails once may not fail again
        judged = _evaluate(instance, source_patch, open_fresh, timeout_s)
    if isinstance(judged, PatchGrade):
        return judged
    if isinstance(_evaluate(instance, Patch(), open_fresh, timeout_s), PatchGrade):
        return _failed("the tests come to their end without the patch, and not with it")
    raise judged


def _evaluate(
    instance: Instance, patch: Patch, open_fresh: Callable[[], Sandbox], timeout_s: float
) -> PatchGrade | EnvError:
    """One run of the tests; the error when it cannot be judged, be it the patch's doing or not.

    Raises EnvError for what no patch can bring about.
    """
    marks = Marks()
    script = marked(instance.eval_script, marks)
    sandbox = open_fresh()
    try:
        _require_repository(sandbox, instance)
        refusal = _apply(sandbox, instance, patch) if patch.files else ""
        if refusal:
            return _failed(refusal)
        try:
            run = _run(sandbox, instance, script, timeout_s)
            graded = _judge(instance, marks, run, timeout_s)
            if graded.reward > 0 and not _canaries_fail(sandbox, instance, timeout_s):
                return _failed("with the patch tests pass that must fail, or their run is cut off")
            return graded
        except TaskError:
            raise
        except EnvError as error:
            return error
    finally:
        sandbox.close()


def _failed(*failures: str) -> PatchGrade:
    return PatchGrade(0.0, report_of(failures))


def _require_repository(sandbox: Sandbox, instance: Instance) -> None:
    result = _in_repository(sandbox, instance, f"{_GIT} rev-parse --verify -q HEAD")
    if result.exit_code != 0:
        raise EnvError(
            f"instance {instance.id!r}: {instance.workdir} in the fresh sandbox is no git "
            f"repository, or there is no git: {result.output[-300:].strip()!r}"
        )


def _apply(sandbox: Sandbox, instance: Instance, patch: Patch) -> str:
    """Bring the patch in, as swebench does; why it cannot be, or empty."""
    path = f"/tmp/{secrets.token_hex(8)}.diff"
    sandbox.write(path, patch.text.encode(errors="surrogateescape"))
    before = _changed(sandbox, instance)
    error_output = ""
    for command in (
        f"{_GIT} apply --whitespace=nowarn {path}",
        f"{_GIT} apply --whitespace=nowarn --3way {path}",
        f"patch --batch --forward --fuzz=5 --no-backup-if-mismatch -p1 -i {path}",
    ):
        result = _in_repository(sandbox, instance, command)
        if result.exit_code == 0:
            strange = sorted(_changed(sandbox, instance) - before - patch.paths)
            paths = ", ".join(repr(path) for path in strange[:3])
            return f"the patch changes more than it names: {paths}" if strange else ""
        error_output = error_output or " ".join(result.output.split())[-300:]
        if _changed(sandbox, instance) != before:
            _reset(sandbox, instance)
    return f"the patch does not apply: {error_output}"


def _reset(sandbox: Sandbox, instance: Instance) -> None:
    """Undo what a command that failed left."""
    command = f"{_GIT} reset -q --hard && {_GIT} clean -fdq"
    result = _in_repository(sandbox, instance, command)
    if result.exit_code != 0:
        raise EnvError(f"instance {instance.id!r}: git reset: {result.output[-300:].strip()!r}")


def _changed(sandbox: Sandbox, instance: Instance) -> frozenset[str]:
    """Paths that are not as the commit has them."""
    listing = f"/tmp/{secrets.token_hex(8)}.changed"
    status = f"{_GIT} status --porcelain -z --no-renames --untracked-files=all > {listing}"
    result = _in_repository(sandbox, instance, status)
    if result.exit_code != 0:
        raise EnvError(f"instance {instance.id!r}: git status: {result.output[-300:].strip()!r}")
    entries = sandbox.read(listing, MAX_LOG_BYTES).decode(errors="surrogateescape")
    return frozenset(entry[3:] for entry in entries.split("\0") if entry)


@dataclass(frozen=True, slots=True)
class _Run:
    """What became of the eval script."""

    log: str | None
    """None for one that is too long."""
    timed_out: bool
    disk_full: bool


def _run(sandbox: Sandbox, instance: Instance, script: str, timeout_s: float) -> _Run:
    folder = f"/tmp/{secrets.token_hex(8)}"
    sandbox.write(f"{folder}/eval.sh", script.encode(errors="surrogateescape"), 0o755)
    run = f"bash {folder}/eval.sh < /dev/null > {folder}/log 2>&1"
    result = _in_repository(sandbox, instance, run, timeout_s)
    room = f"head -c 65536 /dev/zero > {folder}/room"
    look = f"[ -f {folder}/log ] && wc -c < {folder}/log; {room} && echo room"
    words = sandbox.exec(look, GIT_TIMEOUT_S).output.split()
    if not words or not words[0].isdecimal():
        raise EnvError(f"instance {instance.id!r}: the eval script left no log: {words[:20]}")
    full = words[-1] != "room" or _DISK_FULL in result.output
    if int(words[0]) > MAX_LOG_BYTES:
        return _Run(None, result.timed_out, full)
    try:
        log = sandbox.read(f"{folder}/log", MAX_LOG_BYTES).decode(errors="replace")
    except (FileNotFoundError, SandboxError) as error:
        raise EnvError(f"instance {instance.id!r}: the eval script's log: {error}") from error
    return _Run(log, result.timed_out, full)


def _judge(instance: Instance, marks: Marks, run: _Run, timeout_s: float) -> PatchGrade:
    if run.log is None:
        return _failed(f"the tests wrote more than {MAX_LOG_BYTES} bytes")
    if run.timed_out and started(run.log, marks):
        return _failed(f"the tests ran past {timeout_s:g} s")
    if run.timed_out:
        raise EnvError(
            f"instance {instance.id!r}: the eval script took over {timeout_s:g} s before its "
            f"tests began; its last output: {run.log[-500:]!r}"
        )
    try:
        output = read_output(run.log, marks)
    except EnvError as error:
        if run.disk_full and started(run.log, marks):
            return _failed("the tests filled the disk")
        raise EnvError(f"instance {instance.id!r}: {error}") from error
    if output.forged:
        return _failed("the tests wrote a mark of the eval script themselves")
    report = grade_log(instance, swebench_log(output))
    if report.no_result == "nothing":
        _blame_machine(instance, report, output.exit_code, output.text)
    reward = 1.0 if report.resolved else 0.0
    return PatchGrade(reward, report_of(_failures(instance, report)), report.tests)


def _canaries_fail(sandbox: Sandbox, instance: Instance, timeout_s: float) -> bool:
    """Whether tests that must fail do: a patch may pass its tests by changing the test library, or
    by printing results and leaving.

    No proof: the patch's code runs where the tests run, and whoever looks can find the names.
    """
    if not instance.canary_script:
        return True
    marks, secret = Marks(), f"canary_{secrets.token_hex(8)}_"
    names = set(re.findall(rf"{CANARY}\d", instance.canary_script))
    script = marked(instance.canary_script.replace(CANARY, secret), marks)
    run = _run(sandbox, instance, script, timeout_s)
    if run.log is None or run.timed_out:
        return False
    tests = read_log(instance.log_parser, swebench_log(read_output(run.log, marks)))
    canaries = [status for name, status in tests.items() if secret in name]
    return len(canaries) == len(names) and set(canaries) <= _FAILED


def _blame_machine(instance: Instance, report: LogReport, exit_code: int | None, text: str) -> None:
    """Raise when nothing ran for reasons that no patch brings about."""
    fault = report.infra if report.infra not in _PATCHES_FAULTS else ""
    lacks = _NO_RUNNER.search(text)
    if fault or exit_code in _MACHINE_FAULTS or lacks:
        reason = fault or f"the test command ended with exit code {exit_code}"
        if lacks:
            runner = lacks.group().removeprefix(": ")
            reason += f" ({runner}: the sandbox lacks what runs the tests, which for instances "
            reason += "without an image sandbox=docker has)"
        raise EnvError(f"instance {instance.id!r}: no test ran: {reason}: {text[-500:]!r}")


def _failures(instance: Instance, report: LogReport) -> list[str]:
    if report.resolved:
        return []
    if report.no_result == "nothing":
        return ["no test reported a result"]
    if report.no_result == "contradiction":
        return ["no test reported a failure, but the test command ended with one"]
    failed = [f"{test} {_how(report, test)}" for test in report.failed_to_pass]
    broken = [f"{test} passed before and {_how(report, test)}" for test in report.broken]
    lines = [*failed, *broken]
    rest = len(lines) - MAX_NAMED_TESTS
    if rest > 0:
        lines = [*lines[:MAX_NAMED_TESTS], f"and {rest} more"]
    return lines or [f"not resolved: none of {len(instance.fail_to_pass)} tests was judged"]


def _how(report: LogReport, test: str) -> str:
    status = report.tests.get(test)
    return "did not run" if status is None else "fails" if status != "SKIPPED" else "was skipped"


def _in_repository(
    sandbox: Sandbox, instance: Instance, command: str, timeout_s: float = GIT_TIMEOUT_S
) -> ExecResult:
    return sandbox.exec(f"(cd {shlex.quote(instance.workdir)} && {command})", timeout_s)
