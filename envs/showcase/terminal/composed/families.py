"""The families of composed tasks, by name; each draws a plan and its request.

`difficulty` of a task is the number of its skills, of things to find out, of obstacles and of
decoys together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.terminal.composed.composer import Composer, NotApplicable
from clawrl_gym.envs.showcase.terminal.composed.obstacles import OBSTACLES
from clawrl_gym.envs.showcase.terminal.composed.plan import Plan
from clawrl_gym.envs.showcase.terminal.composed.wording import plain_request, request
from clawrl_gym.envs.task_ids import split_of_content

_MOST = 8
"""Largest difficulty."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A task without its id and checks."""

    plan: Plan
    instruction: str
    order: tuple[int, ...]
    """The parts as the text has them."""

    @property
    def skills(self) -> tuple[str, ...]:
        """Skills in the order of the work."""
        return tuple(part.skill.name for part in self.plan.parts)


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of composed tasks."""

    name: str
    build: Callable[[Composer, Draw], None]
    """Adds the parts. Raises NotApplicable."""
    heldout_only: bool = False
    plain: bool = False
    """Said plainly: the text has the order of the work, and training's wording in both splits."""

    def draw(self, draw: Draw, split: Split) -> Composed | None:
        """One task; None where these draws come to none."""
        composer = Composer(draw, split)
        try:
            self.build(composer, draw)
            plan = composer.plan()
        except NotApplicable:
            return None
        if plan.difficulty > _MOST:
            return None
        if not self.plain:
            return Composed(plan, *request(draw, split, plan.parts))
        composed = Composed(plan, *plain_request(draw, plan.parts))
        alone = len(plan.parts) == 1  # else the composition belongs to one split
        return None if alone and split_of_content(composed.instruction) != split else composed


def _single(composer: Composer, draw: Draw) -> None:
    composer.add()


def _chained(count: int, composer: Composer, draw: Draw) -> None:
    for i in range(count):
        composer.add(last=i == count - 1 > 0)


def _chain(composer: Composer, draw: Draw) -> None:
    _chained(draw.between(2, _MOST), composer, draw)


def _discover(composer: Composer, draw: Draw) -> None:
    count = draw.between(2, 5)
    hidden = set(draw.some(range(count), draw.between(1, min(3, count))))
    for i in range(count):
        composer.add(
            hide=draw.pick(("source", "target", "value")) if i in hidden else "",
            last=i == count - 1,
        )


def _recover(composer: Composer, draw: Draw) -> None:
    count = draw.between(2, 5)
    blocked = set(draw.some(range(count), draw.between(1, min(3, count))))
    for i in range(count):
        composer.add(obstacle=draw.pick(OBSTACLES) if i in blocked else "", last=i == count - 1)


def _distract(composer: Composer, draw: Draw) -> None:
    count = draw.between(2, 4)
    hidden = draw.below(count)
    for i in range(count):
        composer.add(
            hide=draw.pick(("source", "target", "value")) if i == hidden else "",
            last=i == count - 1,
        )
    for _ in range(draw.between(1, 3)):
        composer.distract()


def _audit(composer: Composer, draw: Draw) -> None:
    composer.add_heldout(
        "audit", draw.pick(("", "value")), draw.pick(("", "missing_folder", "read_only"))
    )
    for _ in range(draw.between(0, 3)):
        composer.add()


def _migrate(composer: Composer, draw: Draw) -> None:
    for _ in range(draw.between(0, 1)):
        composer.add()
    composer.add_heldout("migrate")
    for _ in range(draw.between(0, 2)):
        composer.add()


_ALL = (
    Family("audit", _audit, heldout_only=True),
    Family("chain", _chain),
    Family("discover", _discover),
    Family("distract", _distract),
    Family("migrate", _migrate, heldout_only=True),
    Family("recover", _recover),
    Family("single", _single),
)
_PLAIN = (
    Family("one", partial(_chained, 1), plain=True),
    Family("three", partial(_chained, 3), heldout_only=True, plain=True),
    Family("two", partial(_chained, 2), plain=True),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
"""Sorted by name."""

PLAIN_FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _PLAIN})
"""Families of this many skills, said plainly; three are never trained on. Sorted by name."""
