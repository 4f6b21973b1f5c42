"""The work in one repository: reports of bugs and of non-bugs, some of them in a file.

`difficulty` counts bugs, reports of what is no bug, and what makes a bug harder to find: told only
by what is seen of it, by tests that fail, or in a file, which may have to be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.envs.showcase.swe.composed.ground import Ground
from clawrl_gym.envs.showcase.swe.composed.made_bugs import MadeBug

How = Literal["said", "seen", "check"]
"""Form of a report: stated outright; by symptoms from outside; by code that should hold."""
Files = dict[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """A report of one thing."""

    text: str
    title: str = ""
    """Empty where the text is all."""
    how: How = "said"
    filed: bool = False
    """Told in the register alone, not in the request."""
    bug: int | None = None
    """Which of the repository's bugs it is."""
    no_bug: int | None = None
    """Which of what is only taken for one."""

    @property
    def whole(self) -> str:
        return f"{self.title}.\n\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Register:
    """A file of reports in the repository: those that are open, and others."""

    path: str
    text: str
    is_named: bool
    """Whether the request names it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One task without its words."""

    ground: Ground
    reports: tuple[Report, ...]
    """Reports in the order of the text."""
    register: Register | None = None
    made: MadeBug | None = None
    """Told by the tests that fail, and by nothing else."""
    warned: bool = False
    """The request says that not all that is reported need be a bug."""

    @property
    def bugs(self) -> tuple[int, ...]:
        """Bugs of the repository that are reported."""
        return tuple(report.bug for report in self.reports if report.bug is not None)

    @property
    def no_bugs(self) -> tuple[int, ...]:
        return tuple(report.no_bug for report in self.reports if report.no_bug is not None)

    @property
    def seen(self) -> int:
        """Number of bugs that are reported by their symptoms."""
        return sum(report.how != "said" for report in self.reports)

    @property
    def difficulty(self) -> int:
        filed = 0 if self.register is None else 1 if self.register.is_named else 2
        made = 0 if self.made is None else 2
        return len(self.reports) + self.seen + filed + made

    @property
    def start(self) -> Files:
        """The repository as it is found."""
        return self._with_register(self.ground.wrong(self.bugs, self.made))

    @property
    def end(self) -> Files:
        """The repository as it should be left."""
        return self._with_register(self.ground.right())

    @property
    def tests(self) -> Files:
        """The test files with those that tell the bugs."""
        return self.ground.tests(self.bugs)

    def near(self) -> Iterator[Files]:
        """Files after fixing all but one thing, or after changing what is no bug as well."""
        for bug in self.bugs:
            yield self._with_register(self.ground.wrong((bug,)))
        if self.made is not None:
            yield self._with_register(self.ground.wrong((), self.made))
        for no_bug in self.no_bugs:
            yield self._with_register(self.ground.mistaken(no_bug))

    def _with_register(self, files: Files) -> Files:
        register = self.register
        return files if register is None else {**files, register.path: register.text}
