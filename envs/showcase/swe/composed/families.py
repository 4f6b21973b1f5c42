"""The families of composed repositories, by name; each draws a plan and its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.swe.composed.checks import code_of
from clawrl_gym.envs.showcase.swe.composed.ground import Ground, clash, draw_ground, repositories
from clawrl_gym.envs.showcase.swe.composed.made_bugs import MadeBug, made_bugs
from clawrl_gym.envs.showcase.swe.composed.plan import Plan, Register, Report
from clawrl_gym.envs.showcase.swe.composed.registers import Entry, draw_register
from clawrl_gym.envs.showcase.swe.composed.wording import check_texts, request

MOST = 8
"""Largest difficulty."""
Range = tuple[int, int]
_ALL: Range = (MOST, MOST)
_NONE: Range = (0, 0)
_PYTHON = ("pytest", "unittest")
_MOST_CLOSED = 3
"""Entries of a register that are not open."""
_WARNED_FOR_NOTHING = 3
"""One request in this many says that not all need be bugs where all are."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A task without its id."""

    plan: Plan
    instruction: str


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of composed repositories: how many of what, from least to most."""

    name: str
    bugs: Range = (2, 4)
    seen: Range = _NONE
    """Bugs that are reported by their symptoms."""
    filed: Range = _NONE
    """Reports that stand in the register alone; all of them, or all but one at most."""
    no_bugs: Range = _NONE
    made: Range = _NONE
    """Bugs that tests which are there show."""
    checks: bool = False
    """At least one bug is reported by code that should hold, the others by their symptoms.
    """
    runners: tuple[str, ...] = _PYTHON
    heldout_only: bool = False

    def draw(self, draw: Draw, split: Split) -> Composed | None:
        """One task; None where these draws come to none."""
        ground = draw_ground(draw, draw.pick(repositories(self.runners, split)))
        count = draw.between(*self.bugs)
        if count > len(ground.family.bugs):
            return None
        bugs = draw.some(range(len(ground.family.bugs)), count)
        made = _draw_made(draw, ground, bugs) if draw.between(*self.made) else None
        if clash(ground.name, bugs) or (made is None and self.made[0]):
            return None
        reports = self._reports(draw, split, ground, bugs)
        if self.checks and not any(report.how == "check" for report in reports):
            return None
        no_bugs = any(report.no_bug is not None for report in reports)
        warned = no_bugs or draw.below(_WARNED_FOR_NOTHING) == 0
        register = _draw_register(draw, split, ground, reports)
        plan = Plan(ground, tuple(reports), register, made, warned)
        return None if plan.difficulty > MOST else Composed(plan, request(draw, split, plan))

    def _reports(self, draw: Draw, split: Split, ground: Ground, bugs: list[int]) -> list[Report]:
        """All reports, in the order of the text."""
        no_bugs = range(len(ground.family.no_bugs))
        things: list[tuple[int | None, int | None]] = [(bug, None) for bug in bugs]
        things += [(None, one) for one in draw.some(no_bugs, draw.between(*self.no_bugs))]
        things = draw.some(things, len(things))
        seen = draw.some(bugs, min(len(bugs), draw.between(*self.seen)))
        most = len(things) if self.filed == _ALL else len(things) - 1
        filed = draw.some(range(len(things)), min(most, draw.between(*self.filed)))
        codes = _codes(ground, bugs) if self.checks else {}
        checks = dict(zip(codes, check_texts(draw, split, list(codes.values())), strict=True))
        reports = list[Report]()
        for place, (bug, no_bug) in enumerate(things):
            if no_bug is not None:
                text = ground.filled(draw.pick(ground.family.no_bugs[no_bug].said))
                reports.append(Report(text, filed=place in filed, no_bug=no_bug))
            elif bug in checks:
                reports.append(Report(checks[bug], how="check", bug=bug))
            elif bug is not None:
                is_seen = bug in seen or self.checks
                reports.append(_told(draw, ground, bug, seen=is_seen, filed=place in filed))
        return reports


def _codes(ground: Ground, bugs: list[int]) -> dict[int, str]:
    """Code that should hold by bug, where there is such code."""
    codes = {bug: code_of(ground.filled(ground.bug(bug).hidden)) for bug in bugs}
    return {bug: code for bug, code in codes.items() if code is not None}


def _told(draw: Draw, ground: Ground, number: int, *, seen: bool, filed: bool) -> Report:
    """A bug in one of the ways to tell it; in a register it has no title."""
    bug = ground.bug(number)
    if seen:
        text = ground.filled(draw.pick(bug.seen))
        return Report(text, how="seen", filed=filed, bug=number)
    issues = () if filed or bug.vague else bug.issues
    text = ground.filled(draw.pick((*bug.said, *issues)))
    title, _, body = text.partition("\n\n")
    if not body:
        return Report(text, filed=filed, bug=number)
    return Report(body, title, filed=filed, bug=number)


def _draw_made(draw: Draw, ground: Ground, bugs: list[int]) -> MadeBug | None:
    """One that goes together with these; None where there is none."""
    fitting = [
        bug for bug in made_bugs().get(ground.name, ()) if frozenset(bugs) <= frozenset(bug.beside)
    ]
    return draw.pick(fitting) if fitting else None


def _draw_register(
    draw: Draw, split: Split, ground: Ground, reports: list[Report]
) -> Register | None:
    """A file of the reports that are filed, among others that are not open."""
    entries = [Entry(report.text, "open") for report in reports if report.filed]
    if not entries:
        return None
    bugs = {report.bug for report in reports}
    no_bugs = {report.no_bug for report in reports}
    closed = [
        Entry(ground.filled(draw.pick((*bug.said, *bug.seen))), "done")
        for number, bug in enumerate(ground.family.bugs)
        if number not in bugs
    ]
    closed += [
        Entry(ground.filled(draw.pick(one.said)), "declined")
        for number, one in enumerate(ground.family.no_bugs)
        if number not in no_bugs
    ]
    closed = draw.some(closed, min(len(closed), draw.between(0, _MOST_CLOSED)))
    count = len(entries) + len(closed)
    open_places = set(draw.some(range(count), len(entries)))
    open_ones, others = iter(entries), iter(closed)
    mixed = [next(open_ones if place in open_places else others) for place in range(count)]
    return draw_register(draw, split, mixed)


_FAMILIES = (
    Family("backlog", seen=(0, 2), filed=_ALL, no_bugs=(0, 2), heldout_only=True),
    Family("checks", no_bugs=(0, 1), checks=True, heldout_only=True),
    Family("distract", bugs=(2, 3), seen=(0, 1), no_bugs=(1, 2)),
    Family("filed", seen=(0, 2), filed=(1, 3)),
    Family("javascript", seen=(0, 3), filed=(0, 2), no_bugs=(0, 1), runners=("node",)),
    Family("mixed", seen=(0, 3), filed=(0, 2), no_bugs=(0, 2), made=(0, 1)),
    Family("red", bugs=(1, 3), seen=(0, 1), made=(1, 1)),
    Family("several"),
    Family("symptoms", seen=(1, 4)),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _FAMILIES})
"""Sorted by name."""
