"""Test runners of the corpus's repositories, and the ids that swebench's parsers give each test.

Ids depend on no version of Python, Node or Ruby: a unittest is named by its docstring, as Django's
are. Python's own modules, and those that a sandbox shows, are found before the repository's, so
that no file of a patch can take the place of the test runner.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.swe.modules import MODULES_FOLDER

IGNORED = "__pycache__/\n.pytest_cache/\n*.pyc\nnode_modules/\n"
"""Files that tests and programs leave behind, which are no part of a patch."""
_START = ">>>>> Start Test Output"
_END = ">>>>> End Test Output"
_EXIT_CODE = ">>>>> Test Exit Code"
_HEREDOC = "END_OF_THIS_FILE"
_PROBE_S = 20.0
_SHELL_WORDS = re.compile(r"^bash: line \d+: ")


@dataclass(frozen=True, slots=True)
class Runner:
    """One test framework."""

    name: str
    parser: str
    """Name in swebench's PARSER_REGISTRY."""
    probe: str
    """Bash that succeeds where the framework runs."""
    command: Callable[[Sequence[str]], str]
    """Bash that runs these test files."""
    ids: Callable[[str, str], tuple[str, ...]]
    """Returns the parser's ids of the tests of a file, given its path and text."""
    modules: tuple[str, ...] = ()
    """Python modules that a sandbox without an image is shown, as they are installed here."""


def eval_script(runner: Runner, tests: Mapping[str, str]) -> str:
    """Bash that puts the test files in place and runs them; starts in the repository's folder."""
    lines = ["#!/bin/bash"]
    for path, text in tests.items():
        if f"\n{_HEREDOC}\n" in f"\n{text}" or not text.endswith("\n"):
            raise TaskError(f"got a test file {path!r} that cannot stand in a heredoc")
        folder = str(PurePosixPath(path).parent)
        lines += [f"rm -rf {path}", f"mkdir -p {folder}"]
        lines += [f"cat > {path} <<'{_HEREDOC}'", text + _HEREDOC]
    lines += [
        f"echo '{_START}'",
        f"{runner.command(tuple(tests))} 2>&1",
        "status=$?",
        f"echo '{_END}'",
        f'echo "{_EXIT_CODE}: $status"',
    ]
    return "\n".join(lines) + "\n"


def runner_of(name: str) -> Runner:
    """The runner of that name. Raises TaskError for an unknown one."""
    if name not in RUNNERS:
        raise TaskError(f"got runner {name!r}, expected one of: {', '.join(RUNNERS)}")
    return RUNNERS[name]


def modules_for(names: Iterable[str]) -> tuple[str, ...]:
    """Python modules that a sandbox without an image is shown for these runners."""
    return tuple(dict.fromkeys(module for name in names for module in runner_of(name).modules))


def missing_runners(names: Iterable[str], sandbox: Sandbox) -> dict[str, str]:
    """Runners that do not run in this sandbox, each with its shell's message."""
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(names):
        probed = sandbox.exec(f"({runner_of(name).probe}) </dev/null", _PROBE_S)
        if probed.exit_code != 0:
            lines = probed.output.strip().splitlines() or ["it does not answer"]
            reasons[name] = f"{name}: {_SHELL_WORDS.sub('', lines[-1])[-120:]}"
    return reasons


def _python(code: str, *arguments: str) -> str:
    program = f"import sys; sys.path += [{MODULES_FOLDER!r}, '.']; {code}"
    return shlex.join(["python3", "-I", "-B", "-c", program, *arguments])


def _run_pytest(paths: Sequence[str]) -> str:
    options = ("-rA", "-q", "-c/dev/null", "--rootdir=.", "--noconftest", "-p", "no:cacheprovider")
    return _python("import pytest; sys.exit(pytest.main(sys.argv[1:]))", *options, *paths)


def _run_unittest(paths: Sequence[str]) -> str:
    modules = [path.removesuffix(".py").replace("/", ".") for path in paths]
    return _python("import unittest; unittest.main(None)", "-v", *modules)


def _run_node(paths: Sequence[str]) -> str:
    """Run in one process, unlike `node --test`; a file that does not load is a failed test."""
    program = (
        'const test = require("node:test"); const { resolve } = require("path"); '
        "for (const path of process.argv.slice(1)) { try { require(resolve(path)) } "
        "catch (error) { test(path, () => { throw error }) } }"
    )
    return shlex.join(["node", "--test-reporter=tap", "-e", program, "--", *paths])


def _run_minitest(paths: Sequence[str]) -> str:
    program = (
        'require "minitest/autorun"; $LOAD_PATH.push(File.expand_path("lib")); '
        f"%w[{' '.join(paths)}].each {{ |path| begin; require File.expand_path(path); "
        "rescue StandardError, ScriptError => error; "
        'describe(path) { it("loads.") { raise error } }; end }'
    )
    return shlex.join(["ruby", "-e", program, "--", "-v"])


def _pytest_ids(path: str, text: str) -> tuple[str, ...]:
    names = re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)
    return tuple(f"{path}::{name}" for name in names)


def _unittest_ids(path: str, text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'^    def test_\w+\(self\):\n        """(.+)"""$', text, re.MULTILINE))


def _node_ids(path: str, text: str) -> tuple[str, ...]:
    return tuple(f"- {name}" for name in re.findall(r'^test\("(.+?)",', text, re.MULTILINE))


def _minitest_ids(path: str, text: str) -> tuple[str, ...]:
    """minitest/spec: `describe "Shop"` holding `it "adds the fee."`, which ends with a dot."""
    ids: list[str] = []
    for block in re.split(r"^describe ", text, flags=re.MULTILINE)[1:]:
        (name,) = re.findall(r'\A"(.+?)" do$', block, re.MULTILINE)
        descriptions = re.findall(r'^  it "(.+?)\." do$', block, re.MULTILINE)
        ids += [f"{name}#test_{number:04d}_{line}" for number, line in enumerate(descriptions, 1)]
    return tuple(ids)


_NODE_PROBE = shlex.join(["node", "--test-reporter=tap", "-e", 'require("node:test")'])
_PYTEST_MODULES = (
    *("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"),
    *("exceptiongroup", "tomli"),  # of older Pythons
)


RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {
        runner.name: runner
        for runner in (
            Runner(
                "pytest",
                "parse_log_pytest",
                _python("import pytest"),
                _run_pytest,
                _pytest_ids,
                _PYTEST_MODULES,
            ),
            Runner(
                "unittest",
                "parse_log_django",
                _python("import unittest"),
                _run_unittest,
                _unittest_ids,
            ),
            Runner("node", "parse_log_tap", _NODE_PROBE, _run_node, _node_ids),
            Runner(
                "minitest",
                "parse_log_minitest",
                shlex.join(["ruby", "-e", 'require "minitest/autorun"']),
                _run_minitest,
                _minitest_ids,
            ),
        )
    }
)
