"""Mutation tests: the share of small wrong changes that the tests notice, on a sample.

    python -m tools.mutants cover -n 2                   # once: which test runs which line
    python -m tools.mutants run --count 150 --seed 1     # resumes where it stopped
    python -m tools.mutants show                         # killed by package, and every survivor

Each mutant is tried in a copy of the tracked files, with the tests that run its line, the fastest
first; it is killed when one of them fails or takes far too long. A line that no test of `cover`
runs has the tests that import its module. What no test notices `make check` may: mypy looks at it
last, and `show` says how many it caught. Nothing of the checkout is changed; `.mutants/` holds it
all. `run --again` tries the survivors with whole test files that are called after their module or
folder: lines that run in other processes, in a browser or beside an engine, and newer tests.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".mutants"
SOURCES = ("clawrl_gym", "envs", "agents", "trainers")
_MOST_TESTS, _MOST_S = 360, 120.0
"""Limits of a line's tests, fastest first: a line that hundreds run is one of imports."""
_TESTS_AT_ONCE = 60
_OF_VIEWS = ("tests/ui/test_golden_views.py",)
_OF_CONFIGURATION = "tests/recipe/test_stable_keys.py"
"""Runs no line of a configuration's module, and reads all that it says."""
_OF_RUNS = {
    "tests/e2e/test_main_job.py": (
        "run", "cluster", "run_folder", "rollout", "policy", "trainers", "core", "store",
    ),
    "tests/e2e/serve/test_serve.py": (
        "run", "cluster", "serving", "gateway", "policy", "trainers", "judge",
    ),
    "tests/e2e/test_policy_server.py": ("policy",),
}  # fmt: skip
"""Whole runs beside vLLM, and the packages that do their work in them."""
_TIMEOUT_S, _FILES_TIMEOUT_S = 300.0, 900.0
"""Time-outs of a few single tests, and of whole files."""
_BY_TYPES = "mypy: "

Span = tuple[int, int, int, int]
"""First line, column, last line, column: as in `ast`, lines from 1 and columns in bytes from 0."""

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str
    """Path of the file, relative to the repository."""
    span: Span
    original: str
    replacement: str

    @property
    def package(self) -> str:
        """`clawrl_gym/store`, `envs`, ..."""
        parts = Path(self.path).parts
        return "/".join(parts[:2]) if parts[0] == "clawrl_gym" and len(parts) > 2 else parts[0]

    def __str__(self) -> str:
        change = f"{' '.join(self.original.split())} -> {' '.join(self.replacement.split())}"
        return f"{self.path}:{self.span[0]}  {change}"

    def applied(self, text: str) -> str:
        """The file's text with the change."""
        lines = text.encode().splitlines(keepends=True)
        first, start, last, end = self.span
        head = b"".join(lines[: first - 1]) + lines[first - 1][:start]
        tail = lines[last - 1][end:] + b"".join(lines[last:])
        return (head + self.replacement.encode() + tail).decode()


@dataclass(frozen=True)
class Trial:
    """Result of a mutant's tests."""

    mutant: Mutant
    killed: bool
    tests: int
    """Number of tests that were to run; 0 where none reaches the line."""
    by: str
    """The test that noticed, or why it counts as killed."""


class _Mutator(ast.NodeVisitor):
    """Collects the mutants of a file."""

    def __init__(self, path: str, text: str) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._lines = text.encode().splitlines(keepends=True)

    def _add(self, node: ast.expr | ast.stmt, replacement: str) -> None:
        self.mutants.append(Mutant(self._path, _span(node), self._code(node), replacement))

    def _code(self, node: ast.expr | ast.stmt) -> str:
        """Source of a node; `ast.get_source_segment` would split the whole text for each node."""
        first, start, last, end = _span(node)
        lines = self._lines[first - 1 : last]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        return b"".join(lines).decode()

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(_is_time(ast.unparse(target)) for target in node.targets):
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not _is_time(ast.unparse(node.target)):
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        """`zip`'s `strict` is an assertion: it says what is true anyway."""
        if not _is_time(node.arg or "") and node.arg != "strict":
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        named = [*positional[len(positional) - len(arguments.defaults) :], *arguments.kwonlyargs]
        defaults = [*arguments.defaults, *arguments.kw_defaults]
        for argument, default in zip(named, defaults, strict=True):
            if default is not None and not _is_time(argument.arg):
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Not its decorators: that a dataclass is frozen or has slots is for who writes code."""
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
            return
        self._add(node.test, f"not ({self._code(node.test)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and (operator := _COMPARISONS.get(type(node.ops[0]))):
            self._add(node, f"{self._code(node.left)} {operator} {self._code(node.comparators[0])}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        operator = " or " if isinstance(node.op, ast.And) else " and "
        self._add(node, operator.join(f"({self._code(value)})" for value in node.values))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
        of_text = any(
            isinstance(side, texts)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
            for side in (node.left, node.right)
        )
        if (operator := _ARITHMETIC.get(type(node.op))) and not of_text:
            self._add(node, f"{self._code(node.left)} {operator} {self._code(node.right)}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, repr(2 * node.value + 1))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (
            isinstance(node.value, ast.Constant) and node.value.value is None
        ):
            self._add(node.value, "None")
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message's words are not behaviour, and positions in it are not those of the file."""


def _span(node: ast.expr | ast.stmt) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _is_time(name: str) -> bool:
    """Whether a name is a duration, which is not mutated: no test asserts a time."""
    return name.lower().endswith("_s")


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Every change of one file that is worth trying."""
    visitor = _Mutator(path, text)
    visitor.visit(ast.parse(text))
    return visitor.mutants


def sample(count: int, seed: int) -> list[Mutant]:
    """At least two of each package, the rest evenly over all."""
    draw = random.Random(seed)
    by_package = _all_mutants()
    chosen: dict[Mutant, None] = {}
    for package in sorted(by_package):
        mutants = by_package[package]
        chosen.update(dict.fromkeys(draw.sample(mutants, min(2, len(mutants)))))
    everything = [mutant for mutants in by_package.values() for mutant in mutants]
    draw.shuffle(everything)
    for mutant in everything:
        if len(chosen) >= count:
            break
        chosen[mutant] = None
    return list(chosen)[:count]


@functools.cache
def _all_mutants() -> dict[str, list[Mutant]]:
    """Mutants by package."""
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    for path in _tracked():
        if path.startswith(tuple(f"{part}/" for part in SOURCES)) and path.endswith(".py"):
            for mutant in mutants_of(path, (ROOT / path).read_text("utf-8")):
                by_package[mutant.package].append(mutant)
    return by_package


# -- which test runs which line ------------------------------------------------------------------
def cover(arguments: list[str]) -> int:
    """Run the tests that need no server under coverage, with a context for each test."""
    WORK.mkdir(exist_ok=True)
    config = WORK / "coveragerc"
    sources = "\n    ".join(str(ROOT / part) for part in SOURCES)
    config.write_text(f"[run]\nsource =\n    {sources}\nconcurrency = thread\n", "utf-8")
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not vllm",
        "--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report=",
        f"--junit-xml={WORK / 'junit.xml'}", *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "COVERAGE_FILE": str(WORK / "coverage")}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


class Tests:
    """Tests that run a line, as `cover` recorded."""

    def __init__(self) -> None:
        from coverage import CoverageData

        self._lines = CoverageData(basename=str(WORK / "coverage"))
        self._lines.read()
        if not self._lines.measured_files():
            raise SystemExit("nothing is recorded; first: python -m tools.mutants cover")
        self._by_file: dict[str, dict[int, list[str]]] = {}
        self._lasted_s = _durations_s()

    def of(self, mutant: Mutant) -> list[str]:
        """Ids of tests, the fastest first."""
        if mutant.path not in self._by_file:
            by_line = self._lines.contexts_by_lineno(str(ROOT / mutant.path))
            self._by_file[mutant.path] = by_line
        by_line = self._by_file[mutant.path]
        lines = range(mutant.span[0], mutant.span[2] + 1)
        contexts = {one for line in lines for one in by_line.get(line, []) if one}
        first: list[str] = []
        if not contexts:  # a line that runs when the module is imported: tests of the module
            contexts = {one for ones in by_line.values() for one in ones if one}
            first = [_OF_CONFIGURATION] if "config" in mutant.path else []
        ids = sorted({context.partition("|")[0] for context in contexts})
        ids.sort(key=self._lasted_s)
        until_s = itertools.accumulate(map(self._lasted_s, ids))
        affordable = [id for id, end_s in zip(ids, until_s, strict=True) if end_s < _MOST_S]
        return [*first, *affordable][:_MOST_TESTS] or _importers(mutant.path)

    def more(self, mutant: Mutant) -> list[str]:
        """Test files called after its module or folders, with browsers and engines, those that
        name the module, and those of views and configuration."""
        path = Path(mutant.path)
        words = (path.stem, path.parent.name, path.parent.parent.name)
        called = [
            test
            for word in words
            for test in _tracked()
            if re.match(rf"tests/(security/)?test_{word or '-'}(_\w+)?\.py", test)
        ]
        named = [
            test
            for test in _importers(mutant.path)
            if not test.startswith(("tests/e2e", "tests/gpu"))
        ]
        return list(dict.fromkeys([*_OF_VIEWS, _OF_CONFIGURATION, *named, *called]))

    def runs(self, mutant: Mutant) -> list[str]:
        """Test files of whole runs that its package does the work of."""
        package = mutant.package.rpartition("/")[2]
        return [test for test, packages in _OF_RUNS.items() if package in packages]


def _durations_s() -> Callable[[str], float]:
    """Duration of each test of `cover`; later ones count as middling."""
    cases = ElementTree.parse(WORK / "junit.xml").iter("testcase")
    durations_s = {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(
            case.get("time", 0.0)
        )
        for case in cases
    }
    return lambda id: durations_s.get(id, 0.5)


def _importers(path: str) -> list[str]:
    """Test files that name a module or package: of lines that run when it is imported, or in other
    processes."""
    package = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    module = package if package.startswith("clawrl_gym") else f"clawrl_gym.{package}"
    parent, _, name = module.rpartition(".")
    names = re.compile(rf"{re.escape(module)}\b|from {re.escape(parent)} import .*\b{name}\b")
    return [
        test
        for test in _tracked()
        if test.startswith("tests/")
        and "/test_" in test
        and names.search((ROOT / test).read_text())
    ]


# -- the trials ----------------------------------------------------------------------------------
class Copies:
    """Copies of the tracked files, one for each running trial."""

    def __init__(self, count: int) -> None:
        self._free = [self._make(number) for number in range(count)]
        self._lock = threading.Lock()

    def _make(self, number: int) -> Path:
        folder = WORK / f"copy{number}"
        shutil.rmtree(folder, ignore_errors=True)
        for path in _tracked():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / path, follow_symlinks=False)
        if (ROOT / ".mypy_cache").exists():
            shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")
        if complaint := _mypy(folder):
            raise SystemExit(f"mypy complains without any mutant: {complaint}")
        return folder

    def take(self) -> Path:
        with self._lock:
            return self._free.pop()

    def give_back(self, folder: Path) -> None:
        with self._lock:
            self._free.append(folder)


def attempt(mutant: Mutant, tests: list[str], folder: Path) -> Trial:
    """Whether one of the tests notices the mutant."""
    file = folder / mutant.path
    text = (ROOT / mutant.path).read_text("utf-8")
    file.write_text(mutant.applied(text), "utf-8")
    try:
        trial = Trial(mutant, *_outcome(tests, folder))
        if not trial.killed and (complaint := _mypy(folder)):
            return replace(trial, killed=True, by=f"{_BY_TYPES}{complaint}")
        return trial
    finally:
        file.write_text(text, "utf-8")


def _outcome(tests: list[str], folder: Path) -> tuple[bool, int, str]:
    if not tests:
        return False, 0, "no test reaches it"
    for start in range(0, len(tests), _TESTS_AT_ONCE):
        if by := _who_fails(tests[start : start + _TESTS_AT_ONCE], folder):
            return True, len(tests), by
    return False, len(tests), ""


def _who_fails(tests: list[str], folder: Path) -> str:
    """The first of the tests that fails, or how they ended; "" when all pass."""
    of_files = any("::" not in test for test in tests)
    timeout_s = _FILES_TIMEOUT_S if of_files else _TIMEOUT_S
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-o", "addopts=-q --strict-markers --import-mode=importlib --tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            if of_files:
                return ""  # they may well take that long
            return f"not done after {timeout_s:g} s"
    if process.returncode == 0 and " passed" in output:
        return ""  # a mutant may also end the process with this code
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"exit {process.returncode}"


def _mypy(folder: Path) -> str:
    """mypy's first complaint; "" when it has none."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return (process.stdout or process.stderr).strip()[:200] if process.returncode else ""


def run(count: int, seed: int, jobs: int, *, again: bool) -> None:
    """Try a sample; what is tried already is not tried again, but for survivors with `again`.

    A kill by a test that fails without any mutant, too, is not recorded: the next run tries again.
    """
    tests = Tests()
    log = WORK / f"trials-{seed}.jsonl"
    tried = trials_of(log)
    if again:
        chosen = [trial.mutant for trial in tried if not trial.killed]
    else:
        done = {trial.mutant for trial in tried}
        chosen = [mutant for mutant in sample(count, seed) if mutant not in done]
    copies = Copies(jobs)
    lock = threading.Lock()
    fails_alone = functools.cache(_fails_without_a_mutant)

    def one(mutant: Mutant) -> None:
        folder = copies.take()
        try:
            trial = attempt(mutant, tests.more(mutant) if again else tests.of(mutant), folder)
            if again and not trial.killed and (runs := tests.runs(mutant)):
                trial = attempt(mutant, runs, folder)
            killer = _killer(trial)
            if killer and fails_alone(killer, folder):
                print(f"fails by itself: {killer}", flush=True)
                return
        finally:
            copies.give_back(folder)
        with lock, log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(trial)) + "\n")
            print(f"{'killed  ' if trial.killed else 'SURVIVED'}  {mutant}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, chosen))
    show(seed)


def _fails_without_a_mutant(killer: str, folder: Path) -> bool:
    return bool(_who_fails([killer], folder))


def _killer(trial: Trial) -> str:
    """The test that failed; "" for what was killed otherwise."""
    named = re.search(r"tests/.*", trial.by) if trial.by.startswith(("FAILED", "ERROR")) else None
    return named[0].partition(" - ")[0] if named else ""


def show(seed: int) -> None:
    """Killed by package, and the survivors."""
    trials = trials_of(WORK / f"trials-{seed}.jsonl")
    by_package: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_package[trial.mutant.package].append(trial)
    for package, of_package in sorted(by_package.items()):
        killed = sum(trial.killed for trial in of_package)
        print(f"{package:32} {killed:4} of {len(of_package)}")
    killed = sum(trial.killed for trial in trials)
    print(f"{'all':32} {killed:4} of {len(trials)}  {killed / max(1, len(trials)):.0%}")
    by_types = sum(trial.by.startswith(_BY_TYPES) for trial in trials)
    print(f"{'of these by types alone':32} {by_types:4}")
    for trial in trials:
        if not trial.killed:
            print(f"survived ({trial.tests} tests)  {trial.mutant}")


def trials_of(log: Path) -> list[Trial]:
    """The last trial of each mutant."""
    trials: dict[Mutant, Trial] = {}
    for line in log.read_text("utf-8").splitlines() if log.exists() else []:
        row = json.loads(line)
        fields = row["mutant"]
        mutant = Mutant(**{**fields, "span": tuple(fields["span"])})
        trials[mutant] = Trial(mutant, row["killed"], row["tests"], row["by"])
    return list(trials.values())


def _tracked() -> list[str]:
    output = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return output.splitlines()


def read(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and what is for pytest (of `cover` alone)."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cover", help="what follows is for pytest: -n 2, say")
    trial = commands.add_parser("run")
    trial.add_argument("--count", type=int, default=150)
    trial.add_argument("--jobs", type=int, default=1)
    trial.add_argument("--again", action="store_true", help="try the survivors once more")
    for command in (trial, commands.add_parser("show")):
        command.add_argument("--seed", type=int, default=1)
    options, for_pytest = parser.parse_known_args(arguments)
    if for_pytest and options.command != "cover":
        parser.error(f"unknown arguments: {' '.join(for_pytest)}")
    return options, for_pytest


def main() -> int:
    options, for_pytest = read(sys.argv[1:])
    if options.command == "cover":
        return cover(for_pytest)
    if options.command == "show":
        show(options.seed)
    else:
        run(options.count, options.seed, options.jobs, again=options.again)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
