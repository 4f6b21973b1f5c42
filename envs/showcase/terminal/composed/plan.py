"""A composed task before it is put into words and checks: its parts, and the folder's states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clawrl_gym.envs.showcase.terminal.composed.skill import Args, Skill
from clawrl_gym.envs.showcase.terminal.composed.world import Refused, World


def _nothing(world: World) -> None:
    """Effect of looking: none."""


@dataclass(frozen=True, slots=True)
class Action:
    """One command with what it does to the folder."""

    command: str
    effect: Callable[[World], None] = _nothing
    """Raises Refused."""

    @property
    def looks(self) -> bool:
        """Whether it changes nothing."""
        return self.effect is _nothing


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to do."""

    skill: Skill
    args: Args
    near: Args
    """Arguments that differ in a wrong but near solution."""
    words: Args
    """The arguments as the request says them."""
    tail: str = ""
    """Clause that the request adds: ", where N is ..."."""
    before: tuple[Action, ...] = ()
    """Deeds that look at something, or put it right, before."""
    guessed: Args = field(default_factory=dict)
    """Arguments of an agent that does not look."""
    follows: bool = False
    """Its source is what the part before it made."""

    @property
    def weight(self) -> int:
        """Number of skills that it counts as."""
        return int(self.args.get("weight", "1"))

    def depends_on(self, other: Part) -> bool:
        """Whether it works with what the other has made or changed."""
        uses = {self.args.get("a"), self.args.get("c")} - {None}
        makes = {other.args.get("b") or other.args.get("c") or other.args.get("a")}
        return bool(uses & makes)

    def action(self, **changes: str) -> Action:
        args = {**self.args, **changes}
        return Action(self.skill.command_of(args), lambda world: self.skill.effect(world, args))


@dataclass(frozen=True, slots=True)
class Plan:
    """A task's work, from its first to its last state."""

    parts: tuple[Part, ...]
    start: World
    end: World
    hidden: int
    """Names, words and numbers to be found out."""
    obstacles: int
    decoys: int

    @property
    def difficulty(self) -> int:
        """Skills, things to find out, obstacles and decoys: one each."""
        skills = sum(part.weight for part in self.parts)
        return skills + self.hidden + self.obstacles + self.decoys

    @property
    def actions(self) -> list[Action]:
        """The oracle's. What was looked at once is known."""
        actions: list[Action] = []
        for part in self.parts:
            actions += [
                action for action in part.before if not action.looks or action not in actions
            ]
            actions.append(part.action())
        return actions

    def near(self) -> Iterable[list[Action]]:
        """Wrong but near solutions: one thing is done wrongly, or left out."""
        for wrong in self.parts:
            for slip in (wrong.action(**wrong.near), None):
                parts = ((p, slip if p is wrong else p.action()) for p in self.parts)
                yield [d for p, action in parts for d in (*p.before, action) if d is not None]


def played(start: World, actions: Sequence[Action]) -> World:
    """The world after these deeds. A deed that is refused, or cannot make sense of what it meets,
    has no effect, and the next one follows."""
    world = start.copy()
    for action in actions:
        with suppress(Refused, ValueError, LookupError):
            action.effect(world)
    return world


def same(one: World, other: World) -> bool:
    """Whether two states cannot be told apart by a grade."""
    paths = (one.files.keys() | other.files.keys()) - one.free - other.free
    return one.folders == other.folders and all(_equal(one, other, path) for path in paths)


def _equal(one: World, other: World, path: str) -> bool:
    a, b = one.files.get(path), other.files.get(path)
    if a is None or b is None or a.content.strip() != b.content.strip():
        return False
    return None in (a.mode, b.mode) or a.mode == b.mode
