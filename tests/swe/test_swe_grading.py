"""Patches are judged by the tests, in a fresh sandbox; what fails to judge is no reward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from clawrl_gym.core.errors import EnvError, NoVerdict, SandboxError, TaskError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox
from clawrl_gym.envs.swe.grading import PatchGrade, grade
from clawrl_gym.envs.swe.rows import script
from clawrl_gym.envs.swe.rows.instance import Instance

pytestmark = pytest.mark.sandbox

SHOP = "total() {\n  echo $(($1 - $2))\n}\n"
OLD_TEST = '. ./shop.sh\n[ "$(total 3 0)" = 3 ] && echo PASSED old || echo FAILED old\n'
NEW_TEST = '. ./shop.sh; [ "$(total 3 1)" = 4 ] && echo PASSED new || echo FAILED new\n'
GOLD = """\
diff --git a/shop.sh b/shop.sh
--- a/shop.sh
+++ b/shop.sh
@@ -1,3 +1,3 @@
 total() {
-  echo $(($1 - $2))
+  echo $(($1 + $2))
 }
"""
RUN = "bash tests/old.sh; bash tests/new.sh; true"


def eval_script(command: str) -> str:
    return (
        "#!/bin/bash\nset -uxo pipefail\ngit checkout HEAD -- tests\n"
        f"cat > tests/new.sh <<'EOF'\n{NEW_TEST}EOF\n"
        f": '{script.START}'\n{command}\n: '{script.END}'\ngit checkout HEAD -- tests\n"
    )


INSTANCE = Instance(
    id="shop-1",
    repo="me/shop",
    split="train",
    problem_statement="the total is wrong",
    fail_to_pass=("new",),
    pass_to_pass=("old",),
    log_parser="parse_log_pytest",
    eval_script=eval_script(RUN),
    patch=GOLD,
)


class Openings:
    """Opens the repository in real sandboxes, and counts."""

    def __init__(self) -> None:
        self.opened: list[Sandbox] = []

    def __call__(self) -> Sandbox:
        sandbox = open_sandbox(Limits(pids=64), workdir="/testbed")
        self.opened.append(sandbox)
        sandbox.write("/testbed/shop.sh", SHOP.encode())
        sandbox.write("/testbed/tests/old.sh", OLD_TEST.encode())
        done = sandbox.exec(
            "cd /testbed && git init -q && git config user.name a && git config user.email a@b && "
            "git add . && git commit -qm base",
            20.0,
        )
        assert done.exit_code == 0, done.output
        return sandbox

    def grade(
        self, patch: str, instance: Instance = INSTANCE, timeout_s: float = 20.0
    ) -> PatchGrade:
        return grade(instance, patch, self, timeout_s)


@pytest.fixture
def openings() -> Iterator[Openings]:
    openings = Openings()
    yield openings
    for sandbox in openings.opened:
        with pytest.raises(SandboxError, match="closed"):
            sandbox.exec(":", 1.0)


def test_the_gold_patch_earns_one(openings: Openings) -> None:
    graded = openings.grade(GOLD)
    tests = {"new": "PASSED", "old": "PASSED"}
    no_twins = PatchGrade(1.0, "Test report: passed", tests, trusted=False)
    assert graded == no_twins, "shell scripts have none"


def test_a_wrong_patch_earns_nothing_and_hears_which_test_fails(openings: Openings) -> None:
    graded = openings.grade(GOLD.replace("+ $2", "* $2"))
    assert (graded.reward, graded.tests["new"]) == (0.0, "FAILED")
    assert graded.report == "Test report: failed\n- new fails\n- old passed before and fails"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("", "the patch is empty"),
        ("I fixed it.", "nothing of the patch can be applied"),
        (GOLD.replace("shop.sh", "tests/new.sh"), "only tests"),
        (GOLD.replace("shop.sh", "../shop.sh"), "out of the repository"),
        (GOLD.replace("shop.sh", ".git/hooks/post-checkout"), "git's own"),
        ("diff --git a/x b/x\nindex 0..1\nGIT binary patch\n", "binary"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n",
         "symbolic link"),
    ],
)  # fmt: skip
def test_what_cannot_solve_anything_opens_no_sandbox(
    openings: Openings, patch: str, why: str
) -> None:
    graded = openings.grade(patch)
    assert (graded.reward, openings.opened) == (0.0, [])
    assert why in graded.report


SILENT = {
    "nothing is printed": "bash tests/new.sh > /dev/null; true",
    "another form": "echo new: ok; echo old: ok",
    "passes that the exit code denies": "echo PASSED new; echo PASSED old; false",
    "nothing is run": "true",
    "a closed output": "exec 1>&- 2>&-; true",
}


@pytest.mark.parametrize("command", SILENT.values(), ids=list(SILENT))
@pytest.mark.parametrize("patch", [GOLD, GOLD.replace("+ $2", "* $2")])
def test_tests_that_say_nothing_whatever_the_patch_are_no_verdict(
    openings: Openings, command: str, patch: str
) -> None:
    broken = replace(INSTANCE, eval_script=eval_script(command))
    with pytest.raises(NoVerdict, match="instance 'shop-1'"):
        openings.grade(patch, broken)


def test_a_patch_that_silences_the_tests_earns_nothing(openings: Openings) -> None:
    graded = openings.grade(GOLD.replace("echo $(($1 + $2))", "exec > /dev/null"))
    assert graded.reward == 0.0


def test_a_patch_that_does_not_apply_earns_nothing(openings: Openings) -> None:
    graded = openings.grade(GOLD.replace("$1 - $2", "$1 / $2"))
    assert graded.reward == 0.0
    assert "does not apply" in graded.report


def test_a_patch_against_moved_lines_is_applied_as_swebench_does(openings: Openings) -> None:
    moved = GOLD.replace("@@ -1,3 +1,3 @@", "@@ -7,3 +9,3 @@")
    assert openings.grade(moved).reward == 1.0


def test_a_patch_that_edits_tests_gains_nothing(openings: Openings) -> None:
    """Defect 4.4 of the reference: a model that edits tests is not detected."""
    cheat = "".join(
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        "@@ -0,0 +1 @@\n+echo PASSED new; echo PASSED old; exit\n"
        for path in ("tests/new.sh", "tests/more.sh")
    )
    over = "--- a/tests/old.sh\n+++ b/tests/old.sh\n@@ -1 +1 @@\n-. ./shop.sh\n+echo PASSED old\n"
    wrong = GOLD.replace("+ $2", "* $2")
    assert openings.grade(cheat + over + wrong).tests == {"new": "FAILED", "old": "FAILED"}
    assert openings.grade(cheat + over + GOLD).reward == 1.0


def sourced(line: str) -> str:
    """A patch that runs a line wherever the tests use the shop."""
    return GOLD.replace("@@ -1,3 +1,3 @@\n total", f"@@ -1,3 +1,4 @@\n+{line}\n total")


def test_printed_success_does_not_count_against_the_exit_code(openings: Openings) -> None:
    instance = replace(INSTANCE, eval_script=eval_script("bash tests/old.sh && bash tests/new.sh"))
    graded = openings.grade(sourced("echo PASSED old; echo PASSED new; exit 1"), instance)
    assert graded.reward == 0.0
    assert "no test reported a failure" in graded.report


def test_printed_marks_do_not_count(openings: Openings) -> None:
    line = f"printf '%s\\\\n' 'PASSED old' 'PASSED new' '{script.END}' '{script.EXIT_CODE}: 0'"
    graded = openings.grade(sourced(line))
    assert graded.reward == 0.0
    assert "mark of the eval script" in graded.report


def test_tests_that_hang_fail(openings: Openings) -> None:
    graded = openings.grade(sourced("sleep 60"), timeout_s=1.0)
    assert (graded.reward, graded.report) == (0.0, "Test report: failed\n- the tests ran past 1 s")


def test_tests_that_report_nothing_earn_nothing(openings: Openings) -> None:
    graded = openings.grade(sourced("exit 1"))
    assert (graded.reward, graded.tests) == (0.0, {})
    assert "no test reported a result" in graded.report


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("head -c 40000000 /dev/zero", "wrote more than"),
        ("head -c 70000000 /dev/zero > filler; head -c 99999 /dev/zero", "filled the disk"),
    ],
)
def test_tests_that_flood_earn_nothing(openings: Openings, line: str, why: str) -> None:
    graded = openings.grade(sourced(line))
    assert graded.reward == 0.0
    assert why in graded.report


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("no-such-test-runner", "no test ran"),
        ("python3 -m pytest_gone; exit 0", "within the tests"),
        ("echo Cannot connect to the Docker daemon; false", "container_unavailable"),
    ],
)
def test_an_evaluator_that_fails_is_an_error_and_never_a_reward(
    openings: Openings, command: str, why: str
) -> None:
    """S12: the failure of the evaluator became reward -1 and was trained on."""
    with pytest.raises(EnvError, match=why):
        openings.grade(GOLD, replace(INSTANCE, eval_script=eval_script(command)))


@pytest.mark.parametrize(
    "line",
    [
        "exit 127",
        "echo bash: x: command not found; exit 1",
        "kill -9 $(cat /proc/$PPID/stat | cut -d' ' -f4) $PPID",
        "rm -f $(readlink /proc/self/fd/2)",
        "l=$(readlink /proc/self/fd/2); rm $l; mkfifo $l",
        "echo Cannot connect to the Docker daemon; exit 1",
    ],
)
def test_a_patch_that_ends_its_own_evaluation_earns_nothing(openings: Openings, line: str) -> None:
    """A failure of the evaluator is retried and never rewarded: a bad patch must not bring it."""
    instance = replace(INSTANCE, eval_script=eval_script("bash tests/old.sh && bash tests/new.sh"))
    graded = openings.grade(sourced(line), instance)
    assert graded.reward == 0.0
    assert graded.report.startswith("Test report: failed")


def test_a_machine_that_failed_once_is_asked_again(openings: Openings) -> None:
    class Dies:
        """A sandbox that is killed from outside once the patch is in."""

        def __init__(self, sandbox: Sandbox) -> None:
            self._sandbox = sandbox

        def __getattr__(self, name: str) -> object:
            return getattr(self._sandbox, name)

        def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
            if path.endswith("eval.sh"):
                raise SandboxError("killed")
            self._sandbox.write(path, data, mode)

    def dies_once() -> Sandbox:
        sandbox = openings()
        return sandbox if len(openings.opened) > 1 else cast(Sandbox, Dies(sandbox))

    assert grade(INSTANCE, GOLD, dies_once, 20.0).reward == 1.0


def test_a_script_that_hangs_before_its_tests_is_an_error(openings: Openings) -> None:
    """S12: so is an evaluator that never comes to judge."""
    slow = replace(INSTANCE, eval_script="sleep 60\n" + INSTANCE.eval_script)
    with pytest.raises(EnvError, match="before its tests began"):
        openings.grade(GOLD, slow, timeout_s=1.0)


def test_a_sandbox_that_dies_is_an_error(openings: Openings) -> None:
    """S12: so is a machine that is gone."""

    def dead() -> Sandbox:
        sandbox = openings()
        sandbox.close()
        return sandbox

    with pytest.raises(SandboxError):
        grade(INSTANCE, GOLD, dead, 20.0)


def test_an_unknown_parser_and_a_script_without_marks_are_errors(openings: Openings) -> None:
    with pytest.raises(TaskError, match="parse_me"):
        openings.grade(GOLD, replace(INSTANCE, log_parser="parse_me"))
    with pytest.raises(TaskError, match="without the mark"):
        openings.grade(GOLD, replace(INSTANCE, eval_script="make test"))


def test_a_folder_that_is_no_repository_is_an_error(openings: Openings) -> None:
    with pytest.raises(EnvError, match="no git repository"):
        openings.grade(GOLD, replace(INSTANCE, workdir="/usr"))


def test_what_stood_changed_before_is_no_fault_of_the_patch(openings: Openings) -> None:
    def dirty() -> Sandbox:
        sandbox = openings()
        sandbox.write("/testbed/built.o", b"made by the image")
        sandbox.exec("echo '# more' >> /testbed/tests/old.sh", 5.0)
        return sandbox

    assert grade(INSTANCE, GOLD, dirty, 20.0).reward == 1.0
