"""A careless demonstrator: the oracle's last command, often with a family's typical slip in it.

The warm start must leave reinforcement learning something to do. Stopping supervised training early
leaves failures that no sample gets right; slips leave a policy that can write every command and has
picked up bad habits, which sampling shows and the reward tells apart. A slip is one
decision: slips that swap two file names were tried and make copying itself unsure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

Slip = Callable[[str], str]
"""A correct command in, a wrong one out; unchanged where the slip does not apply."""

BAD_HABIT = 0.64
"""Share of slips in a family whose slip is the habit: the most likely answer is wrong."""
LAPSE = 0.25
"""Share of slips elsewhere: the most likely answer is right."""


def sub(pattern: str, replacement: str) -> Slip:
    """The slip that replaces the first match."""
    return lambda command: re.sub(pattern, replacement, command, count=1)


def first_of(*slips: Slip) -> Slip:
    """The first slip that changes the command."""

    def slip(command: str) -> str:
        changed = (wrong for wrong in (one(command) for one in slips) if wrong != command)
        return next(changed, command)

    return slip


_OVERWRITES = sub(r" >> ", " > ")
_OTHER_UNIT = first_of(sub(r"^wc -l", "wc -w"), sub(r"^wc -w", "wc -l"))
_LOSES = sub(r"^cp ", "mv ")
_KEEPS = sub(r"^mv ", "cp ")
_LOWERS = sub(r"a-z A-Z", "A-Z a-z")

SLIPS: Mapping[str, tuple[Slip, float]] = MappingProxyType(
    {
        "append": (_OVERWRITES, BAD_HABIT),
        "archive": (
            first_of(sub(r"^tar xf", "tar tf"), sub(r"^(tar cf \S+ \S+) .*", r"\1")),
            LAPSE,
        ),
        "copy": (_LOSES, BAD_HABIT),
        "count": (_OTHER_UNIT, BAD_HABIT),
        "csv": (sub(r" -d,", ""), BAD_HABIT),
        "environ": (sub(r"\$", ""), BAD_HABIT),
        "folder": (sub(r"^mkdir .* && ", ""), BAD_HABIT),
        "git": (
            first_of(sub(r"^git add .* && ", ""), sub(r"^git (branch|tag)", "git show")),
            LAPSE,
        ),
        "grep": (sub(r"^grep ", "grep -v "), BAD_HABIT),
        "json": (sub(r" \| cut .* >", " >"), BAD_HABIT),
        "lines": (sub(r" -n \d+", ""), BAD_HABIT),
        "logs": (sub(r" -c", ""), BAD_HABIT),
        "lookup": (sub(r"^cp (\S+) .*", r"cat \1"), LAPSE),
        "move": (_KEEPS, BAD_HABIT),
        "note": (first_of(_OVERWRITES, _OTHER_UNIT, _LOSES, _KEEPS, _LOWERS), LAPSE),
        "permissions": (sub(r"^chmod", "chown"), BAD_HABIT),
        "replace": (sub(r" -i", ""), BAD_HABIT),
        "script": (sub(r" && chmod .*", ""), BAD_HABIT),
        "sort": (sub(r" > \S+$", ""), BAD_HABIT),
        "trail": (sub(r"(\S+) > (\S+)$", r"\2 > \1"), LAPSE),
        "upper": (_LOWERS, BAD_HABIT),
    }
)
"""Each family's slip and how often it is made; a family that is not here is never slipped."""


def demonstrated(family: str, command: str, luck: float) -> str:
    """The last command that the demonstrator shows; `luck` is a number in [0, 1)."""
    slip, share = SLIPS.get(family, (lambda same: same, 0.0))
    return slip(command) if luck < share else command
