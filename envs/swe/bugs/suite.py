"""A repository's own tests, run in sandboxes that nothing has touched, as a grade runs them."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.swe.evaluation import Evaluations, PatchFails
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.rows.instance import WORKDIR, Instance
from clawrl_gym.envs.swe.rows.logs import read_log
from clawrl_gym.envs.swe.rows.repository import open_repository
from clawrl_gym.envs.swe.rows.script import make_script

LOG_PARSER = "parse_log_pytest"
PASSES = "PASSED"
_PYTEST_OPTIONS = "-rA --color=no --tb=auto"
_SLOWER, _LEAST_LIMIT_S = 5.0, 20.0
"""Factor and seconds by which tests may take longer than without a bug."""
_PREPARATION_S = 120.0
_TIMED_OUT = frozenset((124, 137))
_NO_TESTS, _NO_COMMAND = 5, 127
_LAST = 400


class TestsHang(Exception):
    """The tests did not come to their end in time."""

    __test__ = False


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the tests."""

    statuses: Mapping[str, str]
    """Statuses by test, as swebench calls them."""
    exit_code: int | None
    log: str
    duration_s: float

    @property
    def passing(self) -> frozenset[str]:
        return frozenset(test for test, status in self.statuses.items() if status == PASSES)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Test results of the unchanged repository."""

    passing: tuple[str, ...]
    """Tests that pass in every clean run."""
    notes: tuple[str, ...]
    limit_s: int
    """Seconds after which tests count as hanging."""


def script_of(command: str, limit_s: int) -> str:
    """Script that runs the tests, in the form of a row's `eval_script`."""
    limited = f"timeout --kill-after=10 {limit_s} bash -c {shlex.quote(command)}"
    options = f"export PYTEST_ADDOPTS={shlex.quote(_PYTEST_OPTIONS)}"
    return make_script("HEAD", Patch(), f"{options}; {limited}", WORKDIR)


@dataclass(frozen=True, slots=True)
class Suite:
    """Runs the tests of one repository."""

    instance: Instance
    """The repository without a bug."""
    command: str
    sandboxes: Sandboxes

    def run(self, patch: Patch, limit_s: int) -> SuiteRun:
        """Raises TestsHang, PatchFails for what cannot be judged, EnvError for what broke."""

        def fresh() -> Sandbox:
            opened = open_repository(self.instance, self.sandboxes, _PREPARATION_S)
            return opened.sandbox

        start = time.monotonic()
        evaluations = Evaluations(self.instance, fresh, limit_s + _PREPARATION_S)
        output = evaluations.run(patch, script_of(self.command, limit_s))
        duration_s = time.monotonic() - start
        if output.exit_code in _TIMED_OUT:
            raise TestsHang
        statuses = read_log(LOG_PARSER, output.text)
        return SuiteRun(statuses, output.exit_code, output.text, duration_s)


def measure(suite: Suite, limit_s: int, say: Callable[[str], None]) -> Baseline:
    """Two clean runs: what passes in both. Raises ConfigError where no bug could be told by it."""
    runs = list[SuiteRun]()
    for number in (1, 2):
        say(f"running the tests as they are, {number} of 2")
        try:
            runs.append(suite.run(Patch(), limit_s))
        except TestsHang as error:
            raise ConfigError(
                f"the tests ({suite.command!r}) did not end within {limit_s} s at HEAD: give a "
                "--test-command that runs fewer, or more time with --timeout"
            ) from error
        except PatchFails as failure:
            raise ConfigError(
                f"the tests ({suite.command!r}) cannot be judged: {failure}"
            ) from failure
        _require_results(suite, runs[-1])
    tests = frozenset().union(*(run.statuses for run in runs))
    doctests = sorted(filter(_is_doctest, tests))
    passing = (runs[0].passing & runs[1].passing) - frozenset(doctests)
    flaky = sorted((runs[0].passing ^ runs[1].passing) - frozenset(doctests))
    failing = sorted(
        test
        for test in tests - passing - frozenset(flaky)
        if runs[0].statuses.get(test) in ("FAILED", "ERROR")
    )
    _require_passing(suite, runs, passing, failing)
    notes = [
        _left_out(flaky, "pass in one of two clean runs"),
        _left_out(failing, "fail at HEAD"),
        _left_out(doctests, "stand in the code that is changed"),
    ]
    slowest_s = max(run.duration_s for run in runs)
    limit = math.ceil(max(_LEAST_LIMIT_S, _SLOWER * slowest_s))
    return Baseline(tuple(sorted(passing)), tuple(note for note in notes if note), limit)


def _is_doctest(test: str) -> bool:
    """`shop/cart.py::shop.cart.total`; no name of a function has a dot."""
    return "." in test.partition("::")[2].partition("[")[0]


def _require_results(suite: Suite, run: SuiteRun) -> None:
    if run.statuses:
        return
    last = " ".join(run.log.split())[-_LAST:]
    if run.exit_code == _NO_TESTS:
        raise ConfigError(f"{suite.command!r} finds no tests at HEAD: only tests tell bugs")
    if run.exit_code == _NO_COMMAND or "No module named pytest" in run.log:
        raise ConfigError(
            f"{suite.command!r} does not start: {last}; give --python ENVIRONMENT/bin/python of a "
            "virtual environment with pytest and the repository's dependencies"
        )
    raise ConfigError(
        f"{suite.command!r} reports no test, expected pytest's summary: exit code "
        f"{run.exit_code}, {last!r}"
    )


def _require_passing(
    suite: Suite, runs: list[SuiteRun], passing: frozenset[str], failing: list[str]
) -> None:
    if not passing:
        last = " ".join(runs[0].log.split())[-_LAST:]
        raise ConfigError(
            f"no test passes at HEAD ({len(failing)} fail), so that no bug can be told: {last!r}; "
            "does it need dependencies? give --python ENVIRONMENT/bin/python"
        )
    if not failing and runs[0].exit_code not in (0, None):
        raise ConfigError(
            f"all tests pass at HEAD, but {suite.command!r} ends with exit code "
            f"{runs[0].exit_code}, as for too little coverage: give a --test-command that ends "
            "with 0"
        )


def _left_out(tests: list[str], why: str) -> str:
    if not tests:
        return ""
    some = ", ".join(tests[:3]) + (", ..." if len(tests) > 3 else "")
    return f"tests that {why}, left out: {len(tests)} ({some})"
