"""Results of all mutations that were tried, one line of a file each, so that none is tried twice.

The first line says of what: another commit, command or Python is another file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.swe.bugs.suite import Baseline

_FILE = "_attempts.jsonl"
"""Begins with a line below, so that no loader takes it for instances."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings that attempts depend on."""

    commit: str
    test_command: str
    python: str
    sandbox: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One mutation that was tried."""

    name: str
    """Name of the mutation."""
    reason: str
    """Why it is no bug; empty for one that is."""
    fail_to_pass: tuple[str, ...] = ()
    issue: str = ""
    is_noticed: bool = True
    """False: no test fails with it."""


class Attempts:
    """The file, and what is in it; thread-safe."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        """Raises ConfigError for a file of another setting, or one that is none."""
        self.path = folder / _FILE
        self.baseline: Baseline | None = None
        self.by_name = dict[str, Attempt]()
        self._setting = setting
        self._lock = threading.Lock()
        if self.path.exists():
            self._read()

    def begin(self, baseline: Baseline) -> None:
        """Write the first line."""
        self.baseline = baseline
        self._append({"setting": asdict(self._setting), "baseline": asdict(baseline)})

    def add(self, attempt: Attempt) -> None:
        with self._lock:
            self.by_name[attempt.name] = attempt
            self._append(asdict(attempt))

    def _append(self, line: Mapping[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _read(self) -> None:
        first, *rest = self.path.read_text(encoding="utf-8").split("\n")
        try:
            head = json.loads(first)
            before = Setting(**head["setting"])
            baseline = head["baseline"]
            self.baseline = Baseline(
                tuple(baseline["passing"]), tuple(baseline["notes"]), baseline["limit_s"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.path} is not a file of attempts: remove it, or give another folder"
            ) from error
        self._require_same(before)
        for line in rest:
            try:
                fields = json.loads(line)
                attempt = Attempt(**{**fields, "fail_to_pass": tuple(fields["fail_to_pass"])})
            except (ValueError, KeyError, TypeError):
                continue  # a line that a stop cut is tried again
            self.by_name[attempt.name] = attempt

    def _require_same(self, before: Setting) -> None:
        earlier, now = asdict(before), asdict(self._setting)
        differing = [name for name in now if earlier[name] != now[name]]
        if differing:
            name = differing[0]
            raise ConfigError(
                f"{self.path.parent} was started with {name} {earlier[name]!r}, got {now[name]!r}: "
                "give another folder, or remove this one"
            )
