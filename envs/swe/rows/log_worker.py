"""The program of the child process that reads test logs with swebench's own code.

Run by its path, in / and with an environment of its own, for importing swebench reads .env files
and brings in much that parsing needs not. One JSON object a line in, one a line out; nothing else
of this package is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, Required, TypedDict

if TYPE_CHECKING:
    from swebench.types import TestSpec

MAX_MEMORY_BYTES = 4 << 30
Parser = Callable[[str, "TestSpec"], dict[str, str]]
"""Function from a log to the status of each test."""
_PARSERS = ("c", "go", "java", "javascript", "php", "python", "ruby", "rust")


class LogRequest(TypedDict, total=False):
    """One line of input."""

    kind: Required[Literal["known", "read", "grade"]]
    timeout_s: Required[float]
    parser: str
    log: str
    repo: str
    version: str
    fail_to_pass: list[str]
    pass_to_pass: list[str]
    eval_type: str


def main() -> None:
    """Answer requests until the input ends."""
    sys.path[:] = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is no answer
    _limit_memory()
    for line in sys.stdin:
        request: LogRequest = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])  # ends an orphan too
        try:
            answer = _ANSWERS[request["kind"]](request)
        except Exception as error:  # noqa: BLE001 - the border: reported to the owner
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _limit_memory() -> None:
    import resource

    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def _swebench(name: str) -> types.ModuleType:
    """A module of swebench's harness without the package's own imports (docker, modal, ...)."""
    if "swebench.harness" not in sys.modules:
        package_spec = importlib.util.find_spec("swebench")
        if package_spec is None or package_spec.submodule_search_locations is None:
            raise ImportError("there is no package swebench")
        package = types.ModuleType("swebench.harness")
        package.__path__ = [os.path.join(package_spec.submodule_search_locations[0], "harness")]  # noqa: PTH118
        sys.modules["swebench.harness"] = package
    return importlib.import_module(f"swebench.harness.{name}")


def _registry(_: LogRequest) -> dict[str, object]:
    """Names of parsers, and those of each repository that swebench knows."""
    registry = _swebench("log_parsers").PARSER_REGISTRY
    repositories: dict[str, str] = {}
    for language in _PARSERS:
        for name, value in vars(_swebench(f"log_parsers.{language}")).items():
            if name.startswith("MAP_REPO_TO_PARSER"):
                repositories |= {repo.lower(): f.__name__ for repo, f in value.items()}
    fail_only = sorted(repo.lower() for repo in _swebench("constants").FAIL_ONLY_REPOS)
    parsers = {repo: name for repo, name in repositories.items() if name in registry}
    return {"parsers": sorted(registry), "repositories": parsers, "fail_only": fail_only}


def _read(request: LogRequest) -> dict[str, object]:
    return {"tests": _parser(request)(request["log"], _spec(request))}


def _grade(request: LogRequest) -> dict[str, object]:
    """swebench's report on a log, and why when it finds no results in it."""
    grading = _swebench("grading")
    spec = _spec(request)
    cases = [*spec.FAIL_TO_PASS, *spec.PASS_TO_PASS]
    parser = _with_whole_ids(_parser(request), cases)
    with (
        _registered(request["parser"], parser),
        tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace") as file,
    ):
        file.write(request["log"])
        file.flush()
        statuses, has_results = grading.get_logs_eval(spec, file.name)
        prediction = {"instance_id": spec.instance_id, "model_patch": "-"}
        report = grading.get_eval_report(spec, prediction, file.name, True)[spec.instance_id]
    no_result = (
        "" if has_results else ("contradiction" if parser(request["log"], spec) else "nothing")
    )
    keys = {case: grading._resolve_case(case, statuses) for case in cases}
    tests = report.get("tests_status", {})
    failed = {name: tests.get(name, {}).get("failure", []) for name in _LISTS}
    return {
        "resolved": report["resolved"],
        "why": no_result,
        "failed_to_pass": failed["FAIL_TO_PASS"],
        "broken": failed["PASS_TO_PASS"],
        "tests": {case: statuses[key] for case, key in keys.items() if key is not None},
        "infra": report.get("infra_failure_reason", "") if report["infra_failure"] else "",
    }


_LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def _parser(request: LogRequest) -> Parser:
    registry = _swebench("log_parsers").PARSER_REGISTRY
    if request["parser"] not in registry:
        raise LookupError(f"got log_parser {request['parser']!r}, expected one of swebench's: "
                          + ", ".join(sorted(registry)))  # fmt: skip
    parser: Parser = registry[request["parser"]]
    return parser


@contextlib.contextmanager
def _registered(name: str, parser: Parser) -> Iterator[None]:
    """The parser in the place of swebench's own, which its grading looks up by name."""
    registry = _swebench("log_parsers").PARSER_REGISTRY
    own, registry[name] = registry[name], parser
    try:
        yield
    finally:
        registry[name] = own


def _with_whole_ids(parser: Parser, cases: list[str]) -> Parser:
    """A parser that knows ids with spaces whole, which most parsers cut at the first one.

    A case that is cut itself, as in SWE-bench's own rows, may stand for several tests: it fails
    where one of them does.
    """
    whole, cut = dict[str, list[str]](), set[str]()
    for case in sorted(cases, key=len, reverse=True):
        words = case.split()
        if len(words) > 1:
            whole.setdefault(words[0], []).append(case)
        elif case.count("[") > case.count("]"):
            cut.add(case)

    def parse(log: str, spec: TestSpec) -> dict[str, str]:
        statuses = dict(parser(log, spec))
        marks = dict[str, str]()
        lines = [_marked(line, whole, marks) for line in log.split("\n")]
        if marks:
            read = parser("\n".join(lines), spec)
            statuses |= {case: read[mark] for case, mark in marks.items() if mark in read}
        for line in log.split("\n") if cut else ():
            if _status_of(line) in _FAILING:
                statuses |= dict.fromkeys(cut.intersection(line.split()), "FAILED")
        return statuses

    return parse


def _marked(line: str, whole: Mapping[str, list[str]], marks: dict[str, str]) -> str:
    """A line with a word of its own in the place of each whole id, kept by the id."""
    for word in line.split():
        for case in whole.get(word, ()):
            found = re.search(rf"(?<!\S){re.escape(case)}{_BEHIND_AN_ID}", line)
            if found is not None:
                mark = marks.setdefault(case, f"\ue000{len(marks)}\ue000")
                line = line[: found.start()] + mark + line[found.end() :]
    return line


def _status_of(line: str) -> str:
    """pytest's status of a test on a line, before its id or behind it; may be empty."""
    words = line.split()
    if words and words[0] in _STATUSES:
        return words[0]
    return next((word for word in words[-3:] if word in _STATUSES), "")


_BEHIND_AN_ID = r"(?=\s*$|\s+(?:[-\[(.:]|PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS))"
"""Text that may follow: a reason, progress, a time, a status. Any other word is of a longer id."""
_FAILING = frozenset(("FAILED", "ERROR"))
_STATUSES = _FAILING | {"PASSED", "SKIPPED", "XFAIL", "XPASS"}


def _spec(request: LogRequest) -> TestSpec:
    from swebench.types import TestSpec

    return TestSpec(
        instance_id="instance",
        image="",
        eval_script_list=[],
        repo=request.get("repo", ""),
        version=request.get("version", ""),
        FAIL_TO_PASS=request.get("fail_to_pass", []),
        PASS_TO_PASS=request.get("pass_to_pass", []),
        log_parser=request["parser"],
        eval_type=request.get("eval_type", "pass_and_fail"),
    )


_ANSWERS: Mapping[str, Callable[[LogRequest], dict[str, object]]] = {
    "known": _registry,
    "read": _read,
    "grade": _grade,
}

if __name__ == "__main__":
    main()
