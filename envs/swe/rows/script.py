"""Evaluation scripts: bash that restores and runs an instance's tests between marks.

A script is swebench's when the row brings one; else it is made from the test patch and a command.
Before it runs, each mark gets a secret of this one run, so that a line that the tests print
themselves is never taken for a mark.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.protected_files import own_patch

START = ">>>>> Start Test Output"
END = ">>>>> End Test Output"
EXIT_CODE = ">>>>> Test Exit Code"
_STATUS = "SWEBENCH_TEST_EXIT_CODE"
_HEADER = "#!/bin/bash\nset -uxo pipefail\n"
_DROPPED = frozenset(("#!/bin/bash", "set -uxo pipefail"))
_FILES = "{files}"
_DJANGO = "{django}"
_NO_TESTS = (".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml",
             ".toml")  # fmt: skip
"""A test patch brings data too, which no test runner takes for tests."""

PYTEST = f"pytest -rA {_FILES}"
COMMANDS = {
    "astropy/astropy": f"pytest -rA -vv -o console_output_style=classic --tb=no {_FILES}",
    "django/django": "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 "
    + _DJANGO,
    "matplotlib/matplotlib": PYTEST,
    "mwaskom/seaborn": f"pytest --no-header -rA {_FILES}",
    "pallets/flask": PYTEST,
    "psf/requests": PYTEST,
    "pydata/xarray": PYTEST,
    "pylint-dev/pylint": PYTEST,
    "pytest-dev/pytest": PYTEST,
    "scikit-learn/scikit-learn": PYTEST,
    "sphinx-doc/sphinx": f"tox --current-env -epy39 -v -- {_FILES}",
    "sympy/sympy": "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' "
    f"bin/test -C --verbose {_FILES}",
}
"""Test commands of SWE-bench's repositories, for old rows without one."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The secrets of one run; the end's is in no output before the end."""

    start: str = field(default_factory=lambda: secrets.token_hex(8))
    end: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class TestOutput:
    """Output of the tests."""

    __test__ = False
    text: str
    exit_code: int | None
    """Exit code of the test command; None when the script does not record it."""
    forged: bool
    """The tests wrote a mark themselves."""


def marked(script: str, marks: Marks) -> str:
    """The script as it is run: header, recorded exit code, secret marks. Raises TaskError."""
    lines = [line for line in script.strip().split("\n") if line not in _DROPPED]
    body = "\n".join(lines)
    for mark in (START, END):
        if mark not in body:
            raise TaskError(f"got an eval script without the mark {mark!r}, expected swebench's")
    if EXIT_CODE not in body:
        body = "\n".join(_with_exit_code(lines))
    body = body.replace(START, f"{START} {marks.start}").replace(END, f"{END} {marks.end}")
    return f"{_HEADER}{body.replace(EXIT_CODE, f'{EXIT_CODE} {marks.end}')}\n"


def _with_exit_code(lines: Sequence[str]) -> list[str]:
    """Keep the test command's own status: scripts end by restoring files, whose status it hides."""
    end_line = next(i for i, line in enumerate(lines) if END in line)
    echo_status = f'echo "{EXIT_CODE}: ${_STATUS}"'
    return [
        *lines[:end_line],
        f"{_STATUS}=$?",
        lines[end_line],
        echo_status,
        *lines[end_line + 1 :],
    ]


def started(log: str, marks: Marks) -> bool:
    """Whether the script came as far as the tests."""
    return f"{START} {marks.start}" in log


def read_output(log: str, marks: Marks) -> TestOutput:
    """The part between the marks. Raises EnvError when the script did not write them."""
    before, end_mark, rest = log.partition(f"{END} {marks.end}")
    _, start_mark, text = before.rpartition(f"{START} {marks.start}")
    if not start_mark or not end_mark:
        failure = "never came to the tests" if not start_mark else "ended within the tests"
        raise EnvError(f"the eval script {failure}; its last output: {log[-500:]!r}")
    code = re.search(rf"^{re.escape(EXIT_CODE)} {marks.end}: *(-?\d+)", rest, re.MULTILINE)
    forged = any(mark in text for mark in (START, END, EXIT_CODE))
    return TestOutput(text, int(code.group(1)) if code else None, forged)


def swebench_log(output: TestOutput) -> str:
    """The output as swebench's grader expects a log."""
    code = "" if output.exit_code is None else f"{EXIT_CODE}: {output.exit_code}\n"
    return f"{START}{output.text}\n{END}\n{code}"


def make_script(
    base_commit: str, test_patch: Patch, command: str, workdir: str, files: Sequence[str] = ()
) -> str:
    """A script for a row that brings none: restores test files, brings the new ones, runs them.

    `command` may hold {files}: `files`, or when there are none those of the test patch.
    """
    run = files or test_files_of(test_patch)
    touched = shlex.join(sorted(test_patch.old_paths))
    restore = f"git checkout {shlex.quote(base_commit)} -- {touched}" if touched else ":"
    created = sorted(test_patch.paths - test_patch.old_paths)
    text = test_patch.text
    word = "END_OF_TEST_PATCH_" + secrets.token_hex(4)
    return "\n".join([
        "set +u",
        "if [ -d /opt/miniconda3/envs/testbed ]; then",
        "  source /opt/miniconda3/bin/activate; conda activate testbed",
        "fi",
        "set -u",
        f"cd {shlex.quote(workdir)}",
        "git config --global --add safe.directory '*'",
        restore,
        f"rm -rf -- {shlex.join(created)}" if created else ":",
        *([f"git apply --verbose - <<'{word}'", text + word] if text else []),
        f": '{START}'",
        fill(command, run),
        f"{_STATUS}=$?",
        f": '{END}'",
        f'echo "{EXIT_CODE}: ${_STATUS}"',
        restore,
        "",
    ])  # fmt: skip


def preparation(script: str) -> str:
    """The part of a script before its tests begin."""
    lines = script.split("\n")
    return "\n".join(lines[: _start_line(lines)]) + "\n"


def with_files(instance: Instance, files: Mapping[str, str], others: Mapping[str, str]) -> str:
    """The instance's script with other test files in the places of its own, which it loses."""
    text = instance.eval_script
    written = dict[str, str]()
    for path, content in others.items():
        if files[path] in text:
            text = text.replace(files[path], content)
        else:
            written[path] = content
    if not written:
        return text
    test_patch = own_patch(instance.test_patch, instance.id, "test_patch")
    rest = Patch(tuple(file for file in test_patch.files if not file.paths & set(written)))
    for whole in (instance.test_patch, test_patch.text):
        text = text.replace(whole, rest.text) if whole else text
    lines = text.split("\n")
    at = _start_line(lines)
    writing = [_writing(f"{instance.workdir}/{path}", one) for path, one in written.items()]
    return "\n".join([*lines[:at], *writing, *lines[at:]])


def _start_line(lines: Sequence[str]) -> int:
    """Raises TaskError for a script without the mark."""
    for number, line in enumerate(lines):
        if START in line:
            return number
    raise TaskError(f"got an eval script without the mark {START!r}, expected swebench's")


def _writing(path: str, text: str) -> str:
    word = "END_OF_FILE_" + secrets.token_hex(4)
    ending = "" if text.endswith("\n") else "\n"
    return f"cat > {shlex.quote(path)} <<'{word}'\n{text}{ending}{word}"


def fill(command: str, files: Sequence[str]) -> str:
    """The command with the test files in the place of {files}."""
    modules = [path.removesuffix(".py").removeprefix("tests/").replace("/", ".") for path in files]
    return command.replace(_FILES, shlex.join(files)).replace(_DJANGO, shlex.join(modules))


def test_files_of(patch: Patch) -> list[str]:
    """Files that a test patch leaves and that may hold tests."""
    return sorted(path for path in patch.new_paths if not path.endswith(_NO_TESTS))
