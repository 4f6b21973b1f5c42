"""Rows of R2E-Gym, as rows in SWE-bench's fields.

They have no ids, no patch as text and no lists of tests: these follow from the commit that they
were made from and from what its tests printed before and after it. Their tests lie in the images,
outside of git, beside the script that runs them; an agent's sandbox loses both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.swe.rows.instance import WORKDIR
from clawrl_gym.envs.swe.rows.logs import read_log
from clawrl_gym.envs.swe.rows.script import END, EXIT_CODE, START

ENV_FIELD, HIDDEN_FIELD = "_env", "_hidden"
"""Put into the rows: variables of an image, and what an agent is not shown of it."""
_MARKS = frozenset(("repo_name", "docker_image", "commit_hash", "parsed_commit_content"))
_TESTS, _RUN = "r2e_tests", "run_tests.sh"
_NOTES = (
    "expected_test_output.json", "execution_result.json", "parsed_commit.json", "syn_issue.json",
    "modified_files.json", "modified_entities.json",
)  # fmt: skip
"""Files of older images: what the solution changes, and the results of its tests."""
_ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_TEST_FOLDERS = frozenset(("test", "tests", "Test", "Tests"))
_SIGNS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}
_PATH = (
    f"{WORKDIR}/.venv/bin:/root/.venv/bin:/root/.local/bin:/root/.cargo/bin:"
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
_SCRIPT = f"""\
cd {WORKDIR}
if [ -d /{_TESTS} ]; then rm -rf {_TESTS}; cp -r /{_TESTS} {_TESTS}; fi
: '{START}'
bash {_RUN}
status=$?
: '{END}'
echo "{EXIT_CODE}: $status"
"""

Row = Mapping[str, object]


class _Part(BaseModel):
    """A part of a row's JSON; what is not needed here is not looked at."""

    model_config = ConfigDict(frozen=True)


class _Range(_Part):
    start: int
    length: int | None = None

    @property
    def text(self) -> str:
        return f"{self.start}" if self.length is None else f"{self.start},{self.length}"


class _Descriptor(_Part):
    old_range: _Range
    new_range: _Range
    section: str = ""


class _Line(_Part):
    content: str
    type: Literal["context", "added", "deleted", "note"]


class _Lines(_Part):
    all_lines: tuple[_Line, ...]


class _Hunk(_Part):
    descriptor: _Descriptor
    line_group: _Lines

    @property
    def text(self) -> str:
        head, section = self.descriptor, self.descriptor.section
        places = f"-{head.old_range.text} +{head.new_range.text}"
        lines = [f"{_SIGNS[line.type]}{line.content}" for line in self.line_group.all_lines]
        return "\n".join([f"@@ {places} @@{' ' if section else ''}{section}", *lines]) + "\n"


class _Name(_Part):
    path: str


class _Header(_Part):
    file: _Name
    misc_line: str | None = None


class _FileDiff(_Part):
    header: _Header
    minus_file: _Name | None = None
    plus_file: _Name | None = None
    hunks: tuple[_Hunk, ...] = ()

    @property
    def is_source(self) -> bool:
        """Python that is no test: upstream's own gold patches are of these files."""
        path = PurePosixPath(self.header.file.path)
        is_test = path.name.startswith("test_") or path.name.endswith("_test.py")
        return path.suffix == ".py" and not is_test and not _TEST_FOLDERS & set(path.parts)

    @property
    def text(self) -> str:
        path, misc = self.header.file.path, self.header.misc_line
        if self.minus_file is None or self.plus_file is None:
            return ""
        lines = [f"diff --git a/{path} b/{path}", *([misc] if misc else [])]
        lines += [f"--- {self.minus_file.path}", f"+++ {self.plus_file.path}", ""]
        return "\n".join(lines) + "".join(hunk.text for hunk in self.hunks)


class _Commit(_Part):
    file_diffs: tuple[_FileDiff, ...]


class _Runs(_Part):
    """The tests' output."""

    old_commit_res_stdout: str | None = None
    new_commit_res_stdout: str | None = None


_EXPECTED = TypeAdapter(dict[str, str])


def is_r2e(row: object) -> bool:
    return isinstance(row, Mapping) and row.keys() >= _MARKS and "FAIL_TO_PASS" not in row


def swebench_row(row: Row) -> Row:
    """Raises TaskError for a row that lacks something."""
    name = f"{row['repo_name']}__{row['commit_hash']}"
    try:
        commit = _Commit.model_validate_json(_text(row, "parsed_commit_content"))
        runs = _Runs.model_validate_json(_text(row, "execution_result_content"))
        expected = _EXPECTED.validate_json(_text(row, "expected_output_json"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TaskError(
            f"instance {name!r}: {place or error.title}: {first['msg']}; expected the fields of "
            "R2E-Gym's rows, as in R2E-Gym/R2E-Gym-Subset"
        ) from error
    before, after = (
        read_log("parse_log_pytest", _COLOUR.sub("", stdout or ""))
        for stdout in (runs.old_commit_res_stdout, runs.new_commit_res_stdout)
    )
    shall_pass = {_of_summary(test) for test, status in expected.items() if status == "PASSED"}
    tests = [test for test in after if ".".join(test.split("::")[1:]) in shall_pass]
    return {
        "instance_id": name,
        "repo": row["repo_name"],
        "base_commit": "HEAD",
        "problem_statement": _issue(_text(row, "problem_statement")),
        "patch": "".join(file.text for file in commit.file_diffs if file.is_source),
        "FAIL_TO_PASS": [test for test in tests if before.get(test) != "PASSED"],
        "PASS_TO_PASS": [test for test in tests if before.get(test) == "PASSED"],
        "image": row["docker_image"],
        "log_parser": "parse_log_pytest",
        "eval_script": _SCRIPT,
        ENV_FIELD: {"PATH": _PATH},
        HIDDEN_FIELD: [f"/{_TESTS}", *(f"{WORKDIR}/{path}" for path in (_TESTS, _RUN, *_NOTES))],
    }


def _of_summary(test: str) -> str:
    """A test's name as swebench's parser leaves it: up to its first space."""
    return (_COLOUR.sub("", test).split(" - ")[0].split() or [""])[0]


def _text(row: Row, field: str) -> str:
    value = row.get(field)
    return value if isinstance(value, str) else ""


def _issue(text: str) -> str:
    match = _ISSUE.search(text)
    return match[1].strip() if match else text.strip()
