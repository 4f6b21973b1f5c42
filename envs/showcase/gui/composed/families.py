"""The families of composed page tasks, by name; each draws a plan and its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.gui.composed.composer import Composer, Variant
from clawrl_gym.envs.showcase.gui.composed.desk import HOSTS
from clawrl_gym.envs.showcase.gui.composed.heldout import handover, unwind
from clawrl_gym.envs.showcase.gui.composed.obstacles import OBSTACLES
from clawrl_gym.envs.showcase.gui.composed.plan import Plan
from clawrl_gym.envs.showcase.gui.composed.skill import NotApplicable
from clawrl_gym.envs.showcase.gui.composed.wording import plain_request, request
from clawrl_gym.envs.task_ids import split_of_content

MOST = 8
"""Largest difficulty."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A task without its id and grade."""

    plan: Plan
    instruction: str
    order: tuple[int, ...]
    """The parts as the text has them."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of composed tasks."""

    name: str
    build: Callable[[Composer, Draw], None]
    """Adds the parts. Raises NotApplicable."""
    heldout_only: bool = False
    alone: bool = False
    """True for one skill, so that a request belongs to one split, as others' compositions do."""
    applications: int = 1
    """Least number of applications."""
    plain: bool = False
    """Said plainly, and done on the page that is open: the text has the order of the work, and
    training's names and wording in both splits."""

    def draw(self, draw: Draw, split: Split) -> Composed | None:
        """One task; None where these draws come to none."""
        composer = Composer(draw, split, plain=self.plain)
        try:
            self.build(composer, draw)
            plan = composer.plan()
        except NotApplicable:
            return None
        if plan.difficulty > MOST or len(plan.hosts) < self.applications:
            return None
        if self.plain:
            composed = Composed(plan, *plain_request(draw, plan.parts))
        else:
            composed = Composed(plan, *request(draw, split, plan.parts))
        strange = self.alone and split_of_content(composed.instruction) != split
        return None if strange else composed


def _single(composer: Composer, draw: Draw) -> None:
    composer.add()


def _chained(count: int, composer: Composer, draw: Draw) -> None:
    for i in range(count):
        composer.add(Variant(last=i == count - 1 > 0))


def _chain(composer: Composer, draw: Draw) -> None:
    count, host = draw.between(2, 7), draw.pick(HOSTS)
    for i in range(count):
        composer.add(Variant(hosts=(host,), last=i == count - 1))


def _across(composer: Composer, draw: Draw) -> None:
    count = draw.between(2, 8)
    needs_fact = draw.below(2 * count)  # in half of the tasks one part does
    for i in range(count):
        others = tuple(host for host in HOSTS if host not in composer.last_hosts)
        composer.add(Variant(hosts=others, hops=int(i == needs_fact), last=i == count - 1))


def _discover(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    hidden = set(draw.some(range(count), draw.between(1, count)))
    for i in range(count):
        composer.add(Variant(hops=draw.between(1, 3) if i in hidden else 0, last=i == count - 1))


def _distract(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    doubled = set(draw.some(range(count), draw.between(1, count)))
    for i in range(count):
        composer.add(Variant(hops=draw.below(2), decoy=i in doubled, last=i == count - 1))


def _hold(composer: Composer, draw: Draw) -> None:
    count = draw.between(3, 5)
    holding = set(draw.some(range(count), draw.between(1, count - 2)))
    for i in range(count):
        composer.add(Variant(holds=i in holding, last=i == count - 1))


def _recover(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    blocked = set(draw.some(range(count), draw.between(1, min(2, count))))
    for i in range(count):
        obstacle = draw.pick(tuple(OBSTACLES)) if i in blocked else ""
        composer.add(Variant(obstacle=obstacle, hedge=draw.below(2) == 0, last=i == count - 1))


def _report(composer: Composer, draw: Draw) -> None:
    for _ in range(draw.between(0, 3)):
        composer.add(Variant(hops=draw.below(2)))
    composer.ask(draw.below(3))


def _handover(composer: Composer, draw: Draw) -> None:
    handover(composer, draw)
    for _ in range(draw.below(3)):
        composer.add()


def _unwind(composer: Composer, draw: Draw) -> None:
    for _ in range(draw.below(2)):
        composer.add()
    unwind(composer, draw)
    for _ in range(draw.below(2)):
        composer.add()


_ALL = (
    Family("across", _across, applications=2),
    Family("chain", _chain),
    Family("discover", _discover),
    Family("distract", _distract),
    Family("handover", _handover, heldout_only=True),
    Family("hold", _hold),
    Family("recover", _recover),
    Family("report", _report),
    Family("single", _single, alone=True),
    Family("unwind", _unwind, heldout_only=True),
)
_PLAIN = (
    Family("one", partial(_chained, 1), alone=True, plain=True),
    Family("three", partial(_chained, 3), heldout_only=True, plain=True),
    Family("two", partial(_chained, 2), plain=True),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
"""Sorted by name."""

PLAIN_FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _PLAIN})
"""Families of this many things to do on one page; three are never trained on. Sorted by name."""
