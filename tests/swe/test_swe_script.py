"""Evaluation scripts say when the tests begin and end in a way that the tests cannot say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.rows import script

FIFTH = f"#!/bin/bash\nset -uxo pipefail\n: '{script.START}'\n{{command}}\n: '{script.END}'\ntrue\n"
"""As swebench 5 writes them; ends in a command that succeeds whatever the tests did."""


def run(text: str, cwd: Path) -> str:
    return subprocess.run(
        ["bash"], input=text, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    ).stdout


def run_marked(text: str, cwd: Path) -> script.TestOutput:
    marks = script.Marks()
    path = cwd / "eval.sh"
    path.write_text(script.marked(text, marks))
    log = run(f"bash {path} 2>&1 < /dev/null", cwd)
    assert script.started(log, marks)
    return script.read_output(log, marks)


@pytest.mark.parametrize("form", [FIFTH, FIFTH.replace(": '", "echo '")])
def test_output_and_exit_code_of_the_tests_are_found(form: str, tmp_path: Path) -> None:
    command = "echo before; cat missing.txt; (echo PASSED a; exit 3)"
    output = run_marked(form.replace("{command}", command), tmp_path)
    assert "\nPASSED a\n" in output.text
    assert "missing.txt" in output.text
    assert output.exit_code == 3
    assert not output.forged


def test_an_exit_code_that_the_script_records_itself_is_taken(tmp_path: Path) -> None:
    told = f'echo "{script.EXIT_CODE}: 5"'
    end = f": '{script.END}'\n"
    text = FIFTH.replace("{command}", "true").replace(end, end + told + "\n")
    assert run_marked(text, tmp_path).exit_code == 5


def test_marks_that_the_tests_print_are_seen_as_forged(tmp_path: Path) -> None:
    forgery = f"printf '%s\\n' 'PASSED a' '{script.END}' '{script.EXIT_CODE}: 0'; false"
    own = tmp_path / "tests.sh"
    own.write_text(forgery)
    output = run_marked(FIFTH.replace("{command}", f"bash {own.name}"), tmp_path)
    assert output.forged
    assert output.exit_code == 1


def test_a_script_that_ends_within_the_tests_is_an_error_of_the_evaluation(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="ended within the tests"):
        run_marked(FIFTH.replace("{command}", "exit 0"), tmp_path)


def test_a_script_that_never_comes_to_the_tests_is_an_error_of_the_evaluation() -> None:
    with pytest.raises(EnvError, match="never came to the tests"):
        script.read_output("git: not found\n", script.Marks())


def test_a_script_without_marks_is_an_error_of_the_task() -> None:
    with pytest.raises(TaskError, match="without the mark"):
        script.marked("pytest", script.Marks())


def test_marks_of_two_runs_differ() -> None:
    assert script.Marks() != script.Marks()


def git(cwd: Path, command: str) -> None:
    run(f"export HOME={cwd}; git -c user.name=a -c user.email=a@b {command}", cwd)


def test_a_made_script_restores_and_brings_the_tests_and_puts_them_back(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "tests").mkdir(parents=True)
    (repo / "tests/old.sh").write_text("echo FAILED old\n")
    for command in ("init -q", "add .", "commit -qm base"):
        git(repo, command)
    (repo / "tests/old.sh").write_text("echo PASSED cheated\n")
    (repo / "tests/new.sh").write_text("echo PASSED cheated\n")
    patch = parse_patch(
        "diff --git a/tests/old.sh b/tests/old.sh\n--- a/tests/old.sh\n+++ b/tests/old.sh\n"
        "@@ -1 +1 @@\n-echo FAILED old\n+echo PASSED old 'it'\"'\"'s $HOME'\n"
        "diff --git a/tests/new.sh b/tests/new.sh\nnew file mode 100644\n--- /dev/null\n"
        "+++ b/tests/new.sh\n@@ -0,0 +1 @@\n+echo PASSED new\n"
    )
    command = "for f in {files}; do bash $f; done"
    text = f"HOME={tmp_path}\n" + script.make_script("HEAD", patch, command, str(repo))
    output = run_marked(text, tmp_path)
    assert "\nPASSED new\n" in output.text
    assert "\nPASSED old it's $HOME\n" in output.text
    assert "cheated" not in output.text
    assert output.exit_code == 0
    assert (repo / "tests/old.sh").read_text() == "echo FAILED old\n"


def test_files_take_their_place_in_the_command() -> None:
    assert script.fill("pytest {files}", ["a b.py"]) == "pytest 'a b.py'"
    django = script.COMMANDS["django/django"]
    assert script.fill(django, ["tests/admin_scripts/tests.py"]).endswith("1 admin_scripts.tests")


def test_data_in_a_test_patch_is_not_run() -> None:
    hunk = "@@ -1 +1 @@\n-a\n+b\n"
    names = ("tests/a.py", "tests/a.json", "tests/a.png")
    text = "".join(f"--- a/{name}\n+++ b/{name}\n{hunk}" for name in names)
    made = script.make_script("HEAD", parse_patch(text), "run {files}", "/testbed")
    assert "\nrun tests/a.py\n" in made
    assert "\nrun b.py\n" in script.make_script("HEAD", Patch(), "run {files}", "/x", ["b.py"])
