"""The families of composed tool-call tasks, by name; each draws a plan and its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.toolcall.composed.composer import Composer, Variant
from clawrl_gym.envs.showcase.toolcall.composed.heldout import handover, restock
from clawrl_gym.envs.showcase.toolcall.composed.obstacles import MISSPELT, OBSTACLES
from clawrl_gym.envs.showcase.toolcall.composed.plan import Plan, Verdict
from clawrl_gym.envs.showcase.toolcall.composed.skill import NotApplicable
from clawrl_gym.envs.showcase.toolcall.composed.wording import plain_request, request
from clawrl_gym.envs.task_ids import split_of_content

MOST_CALLS = 8
"""Most calls of the oracle, and the largest difficulty."""
_VERDICTS: tuple[Verdict, ...] = ("allowed", "allowed", "confirmed", "denied", "forbidden")
"""What sounds forbidden is mostly allowed: an agent that refuses by the sound is wrong."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A task without its id and goals."""

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
    plain: bool = False
    """Said plainly: the text has ids and the order of the work, and training's wording in both
    splits."""

    def draw(self, draw: Draw, split: Split) -> Composed | None:
        """One task; None where these draws come to none."""
        composer = Composer(draw, split, plain=self.plain)
        try:
            self.build(composer, draw)
            plan = composer.plan()
        except NotApplicable:
            return None
        least = 1 if self.alone else 2
        if not least <= len(plan.calls) <= MOST_CALLS or plan.difficulty > MOST_CALLS:
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
    count = draw.between(2, 7)
    for i in range(count):
        composer.add(Variant(makes=i == 0 and draw.below(2) == 0, last=i == count - 1))


def _discover(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    hidden = set(draw.some(range(count), draw.between(1, count)))
    for i in range(count):
        composer.add(Variant(hops=draw.between(1, 3) if i in hidden else 0, last=i == count - 1))


def _recover(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    blocked = set(draw.some(range(count), draw.between(1, min(2, count))))
    for i in range(count):
        obstacle = draw.pick((*OBSTACLES, MISSPELT)) if i in blocked else ""
        composer.add(Variant(obstacle=obstacle, last=i == count - 1))


def _distract(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    doubled = set(draw.some(range(count), draw.between(1, count)))
    for i in range(count):
        composer.add(Variant(hops=draw.below(2), decoy=i in doubled, last=i == count - 1))


def _obey(composer: Composer, draw: Draw) -> None:
    count = draw.between(1, 3)
    ruled = draw.below(count)
    for i in range(count):
        if i == ruled:
            composer.add_ruled(draw.pick(_VERDICTS), last=i == count - 1)
        else:
            composer.add(Variant(hops=draw.below(2), last=i == count - 1))
    composer.add_rules(draw.between(1, 3))


def _report(composer: Composer, draw: Draw) -> None:
    for _ in range(draw.between(0, 2)):
        composer.add(Variant(hops=draw.below(2)))
    composer.ask(draw.below(3))


def _handover(composer: Composer, draw: Draw) -> None:
    handover(composer, draw)
    for _ in range(draw.below(2)):
        composer.add()


def _restock(composer: Composer, draw: Draw) -> None:
    for _ in range(draw.below(2)):
        composer.add()
    restock(composer, draw)
    for _ in range(draw.below(2)):
        composer.add()


_ALL = (
    Family("chain", _chain),
    Family("discover", _discover),
    Family("distract", _distract),
    Family("handover", _handover, heldout_only=True),
    Family("obey", _obey),
    Family("recover", _recover),
    Family("report", _report),
    Family("restock", _restock, heldout_only=True),
    Family("single", _single, alone=True),
)
_PLAIN = (
    Family("one", partial(_chained, 1), alone=True, plain=True),
    Family("three", partial(_chained, 3), heldout_only=True, plain=True),
    Family("two", partial(_chained, 2), plain=True),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
"""Sorted by name."""

PLAIN_FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _PLAIN})
"""Families of this many skills, said plainly; three are never trained on. Sorted by name."""
