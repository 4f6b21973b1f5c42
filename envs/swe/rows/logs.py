"""Test logs, read by swebench's own parsers in a child process of this process's own.

One child serves all threads, one log at a time. It is started at the first log, ends with its
owner, and is started again when it died or took too long.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.envs.swe.rows.instance import Instance

READ_TIMEOUT_S = 60.0
_PROGRAM = Path(__file__).with_name("log_worker.py")
_TRIES = 2
_STOP_S = 5.0
_ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHON_DOTENV_DISABLED": "1"}


@dataclass(frozen=True, slots=True)
class LogReport:
    """Results that swebench finds in a log."""

    resolved: bool
    no_result: str
    """Empty, or why there are no results: `nothing` (no test reported), or `contradiction` (no
    test failed, but the command says that one did)."""
    failed_to_pass: tuple[str, ...]
    """Tests of FAIL_TO_PASS that do not pass."""
    broken: tuple[str, ...]
    """Tests of PASS_TO_PASS that no longer pass."""
    tests: Mapping[str, str]
    """Status of the instance's tests; those that did not run are missing."""
    infra: str
    """Name of the fault of the machine that the log tells of, or empty."""


@dataclass(frozen=True, slots=True)
class ParserRegistry:
    """Names of the parsers that swebench has."""

    parsers: frozenset[str]
    repositories: Mapping[str, str]
    """Parser by repository, in lower case."""
    fail_only: frozenset[str]
    """Repositories whose parsers tell failures only, in lower case."""


def read_log(parser: str, log: str, timeout_s: float = READ_TIMEOUT_S) -> Mapping[str, str]:
    """Status by test. Raises TaskError for an unknown parser, EnvError when it cannot be read."""
    answer = _child().ask({"kind": "read", "parser": parser, "log": log}, timeout_s)
    return answer["tests"]


def grade_log(instance: Instance, log: str, timeout_s: float = READ_TIMEOUT_S) -> LogReport:
    """swebench's judgement of a log. Raises as `read_log` does."""
    request = {
        "kind": "grade",
        "parser": instance.log_parser,
        "log": log,
        "repo": instance.repo,
        "version": instance.version,
        "fail_to_pass": list(instance.fail_to_pass),
        "pass_to_pass": list(instance.pass_to_pass),
        "eval_type": instance.eval_type,
    }
    answer = _child().ask(request, timeout_s)
    return LogReport(
        resolved=bool(answer["resolved"]),
        no_result=answer["why"],
        failed_to_pass=tuple(answer["failed_to_pass"]),
        broken=tuple(answer["broken"]),
        tests=answer["tests"],
        infra=answer["infra"],
    )


@cache
def parser_registry(timeout_s: float = READ_TIMEOUT_S) -> ParserRegistry:
    """Parsers and repositories that the installed swebench knows."""
    answer = _child().ask({"kind": "known"}, timeout_s)
    return ParserRegistry(
        frozenset(answer["parsers"]), answer["repositories"], frozenset(answer["fail_only"])
    )


class LogAnswer(TypedDict, total=False):
    """One line of the child's: what `log_worker.py` returns for a kind of request, or `error`."""

    error: str
    parsers: list[str]
    repositories: dict[str, str]
    fail_only: list[str]
    tests: dict[str, str]
    resolved: bool
    why: str
    failed_to_pass: list[str]
    broken: list[str]
    infra: str


class LogReader:
    """The child process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, object], timeout_s: float) -> LogAnswer:
        """Raises TaskError for a wrong request, EnvError when no answer comes in time."""
        line = json.dumps({**request, "timeout_s": timeout_s + _STOP_S}).encode() + b"\n"
        with self._lock:
            answer = self._answer(line, timeout_s)
        if "error" in answer:
            error = str(answer["error"])
            kind = TaskError if error.startswith("LookupError") else EnvError
            raise kind(f"reading a test log: {error.removeprefix('LookupError: ')}{_cure(error)}")
        return answer

    def close(self) -> None:
        """End the child; the next question starts another."""
        with self._lock:
            self._end()

    def _answer(self, line: bytes, timeout_s: float) -> LogAnswer:
        for _ in range(_TRIES):
            try:
                reply = self._exchange(line, timeout_s)
            except (OSError, TimeoutError) as error:
                self._end()
                if isinstance(error, TimeoutError):
                    raise EnvError(f"swebench's parser read for over {timeout_s:g} s") from error
                continue
            if reply:
                answer: LogAnswer = json.loads(reply)
                return answer
            self._end()
        raise EnvError("the process that reads test logs died twice over one log")

    def _exchange(self, line: bytes, timeout_s: float) -> bytes:
        """One line there and one back; empty when the child has ended."""
        process = self._running()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise EnvError("the process that reads test logs has no pipes")
        deadline = time.monotonic() + timeout_s
        stdin.write(line)
        stdin.flush()
        poll = select.poll()
        poll.register(stdout.fileno(), select.POLLIN | select.POLLHUP)
        chunks = list[bytes]()
        while not (chunks and chunks[-1].endswith(b"\n")):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise TimeoutError
            chunk = os.read(stdout.fileno(), 1 << 20)
            if not chunk:
                return b""
            chunks.append(chunk)
        return b"".join(chunks)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            where = json.dumps([path for path in sys.path if path])
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", str(_PROGRAM), where],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_ENV,
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait(_STOP_S)


_children: dict[int, LogReader] = {}


def _child() -> LogReader:
    """This process's own, also after a fork."""
    reader = _children.get(os.getpid())
    if reader is None:
        reader = _children.setdefault(os.getpid(), LogReader())
        atexit.register(reader.close)
    return reader


def _cure(error: str) -> str:
    missing = error.startswith(("ImportError", "ModuleNotFoundError"))
    return f"; to mend it: {how_to_install('swe')}" if missing else ""
