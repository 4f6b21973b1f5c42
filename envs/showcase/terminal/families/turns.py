"""Families of several turns: what the last command must be stands in a file, not in the request."""

from __future__ import annotations

from collections.abc import Callable

from clawrl_gym.envs.draw import WORDS, Draw, text
from clawrl_gym.envs.showcase.terminal.families.family import TaskContent
from clawrl_gym.envs.showcase.terminal.families.files import append, copy, move
from clawrl_gym.envs.showcase.terminal.families.text import count, upper
from clawrl_gym.envs.terminal.checks import FileIs

NOTED: tuple[Callable[[Draw], TaskContent], ...] = (copy, move, append, upper, count)
"""Tasks that a note may ask for."""


def note(draw: Draw) -> TaskContent:
    inner = draw.pick(NOTED)(draw)
    name = "note.txt"
    template = draw.pick(("Do what {a} says.", "Read {a} and follow it."))
    return TaskContent(
        instruction=template.format(a=name),
        solution=(f"cat {name}", *inner.solution),
        checks=inner.checks,
        files={**inner.files, name: text([inner.instruction])},
        key="\n".join((inner.instruction, *inner.solution)),
    )


def lookup(draw: Draw) -> TaskContent:
    pointer, target, source, decoy = draw.names(4)
    content = text(draw.lines(1, 3))
    decoy_content = text([*draw.lines(1, 3), draw.pick(WORDS)])
    template = draw.pick(
        ("{a} names a file. Copy that file to {b}.", "Copy the file that {a} names to {b}.")
    )
    return TaskContent(
        instruction=template.format(a=pointer, b=target),
        solution=(f"cat {pointer}", f"cp {source} {target}"),
        checks=(FileIs(target, content, exact=True),),
        files={pointer: text([source]), source: content, decoy: decoy_content},
        key=f"lookup {pointer} {target}",
    )


def trail(draw: Draw) -> TaskContent:
    first, second, target = draw.names(3)
    word = draw.pick(WORDS)
    template = draw.pick(("Follow the trail that starts in {a}.", "Start with {a} and go on."))
    return TaskContent(
        instruction=template.format(a=first),
        solution=(f"cat {first}", f"cat {second}", f"echo {word} > {target}"),
        checks=(FileIs(target, word.encode()),),
        files={
            first: text([f"Look into {second}."]),
            second: text([f"Write {word} to {target}."]),
        },
        key=f"trail {first}",
    )
