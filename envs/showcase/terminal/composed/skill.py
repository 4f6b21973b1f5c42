"""A skill: one thing to do with a file or folder, how it is asked for, done, and nearly done."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

from clawrl_gym.envs.draw import Draw, text
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.terminal.composed.world import World

Args = Mapping[str, str]
"""Arguments of a skill: `a` its source, `b` its target, `c` a second source, and its own."""
Effect = Callable[[World, Args], None]
"""Effect of its command. Raises Refused."""
Own = Callable[[Draw, World, Args], "tuple[Args, Args] | None"]
"""Own arguments of a skill, and those that differ in a wrong but near solution; None where the
source is not suitable."""

FILE_ARGS = ("a", "b", "c", "first", "then")


class Kind(StrEnum):
    """Kind of content of a source."""

    LINES = auto()
    """Words, one to three a line."""
    NUMBERS = auto()
    TABLE = auto()
    """Comma separated, without a header."""
    RECORD = auto()
    """A JSON object of texts."""
    LOG = auto()
    """Time, level, words."""
    VALUE = auto()
    """One number or name."""
    ARCHIVE = auto()
    PACKED = auto()
    """An archive that was made of what is still there."""
    FOLDER = auto()
    EMPTY = auto()
    """A folder of empty folders."""
    LOGS = auto()
    """A folder of logs and others."""
    MESS = auto()
    """A folder with rules that say how it should be."""


TEXTS = frozenset({Kind.LINES, Kind.NUMBERS, Kind.TABLE, Kind.LOG})


@dataclass(frozen=True, slots=True)
class Skill:
    """One thing to do."""

    name: str
    takes: frozenset[Kind]
    """Kinds of its source; empty: it has none."""
    makes: Kind | None
    """Kind of its target, unless that is its source's own; None: it has no target."""
    phrasings: Phrasings
    """Fields are the arguments, and `{put} ... {into}`, which stands for "write ... to B" and
    others."""
    command: str
    """Command with the arguments as fields; those of files are quoted."""
    effect: Effect
    own: Own
    keeps: bool = True
    """Its source is left where it was."""
    same: bool = False
    """Its target is its source by another name or place."""
    exact: bool = False
    """Every byte of its source counts, so that no part may have made it: white space at the end of
    a file is everybody's own."""
    second: Kind | None = None
    """Kind of a second source `c`."""
    hideable: str = ""
    """Argument that can stand in a file instead of the request."""
    tool: tuple[str, bytes] | None = None
    """A program of the work folder that it uses: name and content."""

    def command_of(self, args: Args) -> str:
        return self.command.format(
            **{key: shlex.quote(arg) if key in FILE_ARGS else arg for key, arg in args.items()}
        )


def turned(turn: Callable[[list[str], Args], list[str]]) -> Effect:
    """The effect that makes the target's lines of the source's."""

    def effect(world: World, args: Args) -> None:
        world.write(args["b"], text(turn(world.lines(args["a"]), args)))

    return effect


def fixed(args: Args, near: Args) -> Own:
    """Own arguments that are always the same."""
    return lambda draw, world, given: (args, near)
