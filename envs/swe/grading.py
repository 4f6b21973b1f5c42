"""The grade of a patch: applied in a fresh sandbox, judged by the tests that decide.

A patch that fails earns 0.0 and a report that says why; an evaluation that fails earns nothing:
it raises. Tests that pass are believed only where their twins fail (`twin_runs.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from clawrl_gym.core.errors import EnvError, NoVerdict
from clawrl_gym.envs.report import report_of, with_left_out
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.swe.evaluation import EvaluationFailed, Evaluations, PatchFails
from clawrl_gym.envs.swe.patch import Patch, PatchRefused
from clawrl_gym.envs.swe.patch_reader import read_patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.logs import LogReport, grade_log
from clawrl_gym.envs.swe.rows.protected_files import without_tests
from clawrl_gym.envs.swe.rows.script import swebench_log
from clawrl_gym.envs.swe.twin_runs import gold_patch, require_twins_fail

MAX_FILES = 5_000
"""Most files of a patch; git takes minutes over more."""
MAX_NAMED = 10
"""Tests and files that a report names; further tests are counted."""
_MACHINE_FAULTS = frozenset((126, 127))
"""Exit codes of a test command that could not be started."""
_NO_RUNNER = re.compile(r"No module named '?(pytest|tox|nose|django)\b|: command not found")
_PATCHES_FAULTS = frozenset(("out_of_memory",))
"""Faults of the machine that a patch can bring about, all by itself."""


@dataclass(frozen=True, slots=True)
class PatchGrade:
    """Reward of a patch, and why it is not higher."""

    reward: float
    report: str
    """Report for training and for people; no prompt of the episode has it."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """Status of the instance's tests as swebench calls it; those that did not run are missing."""
    trusted: bool = True
    """False for a reward that rests on tests without twins: the patch's code may have made them
    pass."""


def grade(
    instance: Instance, patch: str, open_fresh: Callable[[], Sandbox], timeout_s: float
) -> PatchGrade:
    """Judge a patch.

    `open_fresh` gives the repository as it was before the agent, in a sandbox that is closed here.
    Raises EnvError when the evaluation itself fails, and NoVerdict when it says nothing whatever
    the patch. One that only fails with the patch is the patch's doing, else a bad patch could ask
    to be forgotten by killing its judge.
    """
    try:
        parsed = read_patch(patch)
    except PatchRefused as refused:
        return _failed(str(refused))
    graded = _grade(Evaluations(instance, open_fresh, timeout_s), parsed)
    return replace(graded, report=with_left_out(graded.report, parsed.left_out[:MAX_NAMED]))


def _grade(evaluations: Evaluations, parsed: Patch) -> PatchGrade:
    try:
        source_patch = _source_patch(evaluations.instance, parsed)
        try:
            return _judged(evaluations, source_patch)
        except EvaluationFailed:  # a machine that fails once may not fail again
            return _judged(evaluations, source_patch)
    except PatchFails as failure:
        return _failed(str(failure))
    except EvaluationFailed as error:
        _require_judge(evaluations, error)
        return _failed("the tests come to their end without the patch, and not with it")


def _source_patch(instance: Instance, parsed: Patch) -> Patch:
    """The part of a patch that is graded. Raises PatchFails."""
    if not parsed.files:
        raise PatchFails("nothing of the patch can be applied" if parsed.left_out
                         else "the patch is empty")  # fmt: skip
    source_patch = without_tests(parsed, instance)
    if not source_patch.files:
        raise PatchFails(
            "the patch changes only tests and what steers them, which counts for nothing"
        )
    if len(source_patch.files) > MAX_FILES:
        raise PatchFails(
            f"the patch changes {len(source_patch.files)} files, at most {MAX_FILES} are taken"
        )
    return source_patch


def _judged(evaluations: Evaluations, patch: Patch) -> PatchGrade:
    """One run of the tests, and where they pass those of their twins."""
    instance = evaluations.instance
    output = evaluations.run(patch, instance.eval_script)
    report = grade_log(instance, swebench_log(output))
    if report.no_result == "nothing":
        _blame_machine(instance, report, output.exit_code, output.text)
    if report.no_result:
        _require_verdict(evaluations)
    trusted = True
    if report.resolved:
        trusted = require_twins_fail(evaluations, patch) >= set(instance.fail_to_pass)
    failures = report_of(_failures(instance, report))
    return PatchGrade(float(report.resolved), failures, report.tests, trusted)


def _require_judge(evaluations: Evaluations, error: EvaluationFailed) -> None:
    """Raises NoVerdict when the tests do not come to their end without a patch either."""
    try:
        _judged(evaluations, Patch())
    except PatchFails:
        return
    except EvaluationFailed:
        raise NoVerdict(str(error)) from (error.__cause__ or error)


def _require_verdict(evaluations: Evaluations) -> None:
    """Raises NoVerdict when the tests report nothing with the gold patch either; without a patch
    where there is none."""
    instance = evaluations.instance
    try:
        output = evaluations.run(gold_patch(instance), instance.eval_script)
    except PatchFails:
        return
    if grade_log(instance, swebench_log(output)).no_result:
        raise NoVerdict(
            f"instance {instance.id!r}: its tests report no result that {instance.log_parser} can "
            f"read, whatever the patch: {output.text[-500:]!r}"
        )


def _failed(*failures: str) -> PatchGrade:
    return PatchGrade(0.0, report_of(failures))


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
        error = EnvError(f"instance {instance.id!r}: no test ran: {reason}: {text[-500:]!r}")
        raise EvaluationFailed(str(error)) from error


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
    rest = len(lines) - MAX_NAMED
    if rest > 0:
        lines = [*lines[:MAX_NAMED], f"and {rest} more"]
    return lines or [f"not resolved: none of {len(instance.fail_to_pass)} tests was judged"]


def _how(report: LogReport, test: str) -> str:
    status = report.tests.get(test)
    return "did not run" if status is None else "fails" if status != "SKIPPED" else "was skipped"
