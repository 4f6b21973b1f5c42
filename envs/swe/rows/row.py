"""Rows of data sets, in the fields of SWE-bench and its kin, as instances.

A row of swebench 5.x says how it is run and graded (`eval_script`, `log_parser`). An older row, or
one of SWE-Gym or SWE-smith, does not: its script is made from its test patch and a command, and
its parser is the one that swebench has for the repository. What cannot be told is an error that
names field, row and cure; nothing is graded on a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.swe.interpreter import SYSTEM_PYTHON
from clawrl_gym.envs.swe.rows import script
from clawrl_gym.envs.swe.rows.archive import open_archive, with_archive
from clawrl_gym.envs.swe.rows.images import SWE_GYM_REPOSITORIES, image_of
from clawrl_gym.envs.swe.rows.instance import WORKDIR, Instance
from clawrl_gym.envs.swe.rows.logs import parser_registry
from clawrl_gym.envs.swe.rows.protected_files import files_named_by, own_patch
from clawrl_gym.envs.swe.rows.r2e import ENV_FIELD, HIDDEN_FIELD

Row = Mapping[str, object]
SMITH_PREFIX = "swesmith/"
CONTEXT_FIELD = "_context"
"""Put into rows of a task repository: the folder of the task."""
ARCHIVE_FIELD = "_archive"
"""Put into rows with a packed repository: its path."""
_PYTEST = "parse_log_pytest"
_PARSER_CURE = "give env.log_parser, such as parse_log_pytest"
_EVAL_TYPES = ("pass_and_fail", "fail_only")


@dataclass(frozen=True, slots=True)
class RowDefaults:
    """Defaults for fields that rows leave out."""

    log_parser: str | None = None
    test_command: str | None = None


def instance_of(row: Row, split: Split, defaults: RowDefaults) -> Instance:
    """Raises TaskError for a row that cannot be run or graded."""
    reader = _Fields(row)
    instance_id, repo = reader.text("instance_id"), reader.text("repo")
    fail_to_pass = reader.tests("FAIL_TO_PASS")
    if not fail_to_pass:
        raise reader.wrong("FAIL_TO_PASS", "at least one test, for nothing grades the row")
    pass_to_pass = reader.tests("PASS_TO_PASS")
    if row.get("image_assets") not in (None, "", "{}", {}):
        raise reader.wrong("image_assets", "none", "rows with pictures cannot be graded here")
    smith, packed = _is_smith(row), ARCHIVE_FIELD in row
    patch, test_patch = reader.optional("patch"), reader.optional("test_patch")
    setup_patch = patch if smith else ""
    if smith or packed:
        reverse = own_patch(patch, instance_id, "patch").reversed().text
        patch, setup_patch = (reverse, patch) if smith else (patch, reverse)
    workdir = reader.optional("workdir") or WORKDIR
    instance = Instance(
        id=instance_id,
        repo=repo,
        family=repo,
        split=split,
        problem_statement=reader.text("problem_statement"),
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
        log_parser=_parser(row, reader, defaults),
        eval_script=_script(row, reader, defaults, workdir),
        patch=patch,
        test_patch=test_patch,
        base_commit=reader.optional("base_commit") or "HEAD",
        eval_type=_eval_type(row, reader),
        image=None if packed else image_of(row),
        setup_patch=setup_patch,
        context=reader.optional(CONTEXT_FIELD) or None,
        workdir=workdir,
        hidden=tuple(reader.tests(HIDDEN_FIELD)) if HIDDEN_FIELD in row else (),
        env=reader.variables(ENV_FIELD),
        version=str(row.get("version") or ""),
    )
    return _unpacked(instance, reader) if packed else instance


def _unpacked(instance: Instance, reader: _Fields) -> Instance:
    """The instance with the repository archived beside the row, and the Python for its tests."""
    path = reader.text(ARCHIVE_FIELD)
    archive = open_archive(path)
    if reader.text("repository_sha256") != archive.sha256:
        raise reader.wrong("repository_sha256", f"that of {path!r}, which is {archive.sha256!r}")
    return with_archive(instance, path, reader.optional("python") or SYSTEM_PYTHON)


class _Fields:
    """Reads a row's fields; errors name field, row and cure."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._id = row.get("instance_id")

    def text(self, name: str) -> str:
        value = self._row.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(name, "a text that is not empty")
        return value

    def optional(self, name: str) -> str:
        value = self._row.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value or ""

    def tests(self, name: str) -> tuple[str, ...]:
        """A list of ids, or such a list as JSON in a text."""
        value = self._row.get(name)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise self.wrong(name, "a list of tests, or one as JSON") from None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(name, "a list of tests, or one as JSON")
        if not all(isinstance(test, str) for test in value):
            raise self.wrong(name, "tests as texts")
        return tuple(dict.fromkeys(value))

    def variables(self, name: str) -> dict[str, str]:
        value = self._row.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(
            isinstance(one, str) for one in value.values()
        ):
            raise self.wrong(name, "texts by name")
        return {str(key): str(text) for key, text in value.items()}

    def wrong(self, name: str, expected: str, cure: str = "") -> TaskError:
        actual = f"got {self._row[name]!r:.200}" if name in self._row else "the field is missing"
        return TaskError(
            f"instance {self._id!r}: field {name!r}: {actual}, expected {expected}; "
            + (cure or "add it to the row, or take a data set in SWE-bench's fields")
        )


def _is_smith(row: Row) -> bool:
    """SWE-smith's patch makes the bug, in an image without it."""
    image_name = str(row.get("image_name") or "")
    return str(row.get("repo", "")).startswith(SMITH_PREFIX) or "swesmith" in image_name


def repository_of(row: Row) -> str:
    """`owner/name` in lower case, as the maps of swebench have it."""
    repo = str(row.get("repo", ""))
    if repo.startswith(SMITH_PREFIX):
        repo = re.sub(r"\.[0-9a-f]{7,}$", "", repo.removeprefix(SMITH_PREFIX)).replace("__", "/")
    return repo.lower()


def _script(row: Row, reader: _Fields, defaults: RowDefaults, workdir: str) -> str:
    if row.get("eval_script"):
        eval_script = reader.text("eval_script")
        for mark in (script.START, script.END):
            if mark not in eval_script:
                raise reader.wrong("eval_script", f"swebench's script with the mark {mark!r}")
        return eval_script
    instance_id, base = reader.text("instance_id"), reader.optional("base_commit")
    test_patch = own_patch(reader.optional("test_patch"), instance_id, "test_patch")
    first, rest = (
        {file for test in reader.tests(name) if "::" in test for file in files_named_by([test])}
        for name in ("FAIL_TO_PASS", "PASS_TO_PASS")
    )
    return script.make_script(
        "HEAD" if _is_smith(row) or not base else base,
        test_patch,
        _command(row, reader, defaults),
        workdir,
        sorted(first | rest) if first else (),
    )


def _command(row: Row, reader: _Fields, defaults: RowDefaults) -> str:
    if defaults.test_command:
        return defaults.test_command
    repository = repository_of(row)
    if repository in script.COMMANDS:
        return script.COMMANDS[repository]
    if repository in SWE_GYM_REPOSITORIES or _names_python(row):
        return script.PYTEST
    raise reader.wrong(
        "eval_script",
        "swebench's script, for no command is known that runs this repository's tests",
        "give env.test_command (with {files} for the test files), or take a newer revision of the "
        "data set that has the field",
    )


def _parser(row: Row, reader: _Fields, defaults: RowDefaults) -> str:
    if row.get("log_parser"):
        named = reader.text("log_parser")
        if named not in parser_registry().parsers:
            raise reader.wrong("log_parser", "the name of one of swebench's parsers", _PARSER_CURE)
        return named
    parser = parser_registry().repositories.get(repository_of(row)) or defaults.log_parser
    if parser is None and (repository_of(row) in SWE_GYM_REPOSITORIES or _names_python(row)):
        parser = _PYTEST
    if parser is None:
        raise reader.wrong(
            "log_parser",
            "the name of a parser of swebench, which knows none for this repository",
            _PARSER_CURE,
        )
    return parser


def _names_python(row: Row) -> bool:
    """SWE-smith's rows of Python: ids as pytest has them, and nothing else."""
    tests = _Fields(row).tests("FAIL_TO_PASS")
    return _is_smith(row) and all(".py::" in test for test in tests)


def _eval_type(row: Row, reader: _Fields) -> Literal["pass_and_fail", "fail_only"]:
    eval_type = reader.optional("eval_type")
    if eval_type and eval_type not in _EVAL_TYPES:
        raise reader.wrong("eval_type", f"one of {', '.join(_EVAL_TYPES)}")
    if eval_type:
        return "fail_only" if eval_type == "fail_only" else "pass_and_fail"
    fail_only = repository_of(row) in parser_registry().fail_only
    return "fail_only" if fail_only else "pass_and_fail"
