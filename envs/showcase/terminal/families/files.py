"""Families about whole files: copy, move, folder, append, permissions, archive."""

from __future__ import annotations

import io
import tarfile

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.showcase.terminal.families.family import TaskContent
from clawrl_gym.envs.terminal.checks import Absent, FileIs, ModeIs, TarHolds

MODES = (600, 640, 644, 700, 711, 744, 750, 755, 400, 440, 444, 500, 550, 555)


def copy(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    content = text(draw.lines(1, 4))
    template = draw.pick(
        ("Copy {a} to {b}.", "Make a copy of {a} called {b}.", "Duplicate {a} as {b}.")
    )
    return TaskContent(
        instruction=template.format(a=source, b=target),
        solution=(f"cp {source} {target}",),
        checks=(FileIs(target, content, exact=True), FileIs(source, content, exact=True)),
        files={source: content},
    )


def move(draw: Draw) -> TaskContent:
    source, target = draw.names(2)
    content = text(draw.lines(1, 4))
    template = draw.pick(("Rename {a} to {b}.", "Move {a} to {b}.", "Give {a} the new name {b}."))
    return TaskContent(
        instruction=template.format(a=source, b=target),
        solution=(f"mv {source} {target}",),
        checks=(FileIs(target, content, exact=True), Absent(source)),
        files={source: content},
    )


def folder(draw: Draw) -> TaskContent:
    name = draw.name()
    directory = draw.pick([stem for stem in STEMS if not name.startswith(stem)])
    content = text(draw.lines(1, 4))
    template = draw.pick(
        ("Make the folder {d} and move {a} into it.", "Put {a} into a new folder {d}.")
    )
    return TaskContent(
        instruction=template.format(a=name, d=directory),
        solution=(f"mkdir {directory} && mv {name} {directory}",),
        checks=(FileIs(f"{directory}/{name}", content, exact=True), Absent(name)),
        files={name: content},
    )


def append(draw: Draw) -> TaskContent:
    name = draw.name()
    before = draw.lines(1, 4)
    line = " ".join(draw.some(WORDS, draw.between(1, 2)))
    template = draw.pick(
        ("Append the line {w} to {a}.", "Add {w} at the end of {a}.", "Add the line {w} to {a}.")
    )
    return TaskContent(
        instruction=template.format(a=name, w=line),
        solution=(f"echo {line} >> {name}",),
        checks=(FileIs(name, text([*before, line])),),
        files={name: text(before)},
    )


def permissions(draw: Draw) -> TaskContent:
    name = draw.name()
    files = {name: text(draw.lines(1, 4))}
    if draw.below(2):
        template = draw.pick(("Make {a} executable.", "Let me execute {a}."))
        return TaskContent(
            instruction=template.format(a=name),
            solution=(f"chmod +x {name}",),
            checks=(ModeIs(name, 0o100, mask=0o100),),
            files=files,
        )
    mode = draw.pick([mode for mode in MODES if mode != 644])
    template = draw.pick(("Set the mode of {a} to {m}.", "Change the permissions of {a} to {m}."))
    return TaskContent(
        instruction=template.format(a=name, m=mode),
        solution=(f"chmod {mode} {name}",),
        checks=(ModeIs(name, int(str(mode), 8)),),
        files=files,
    )


def archive(draw: Draw) -> TaskContent:
    first, second = draw.names(2)
    contents = {first: text(draw.lines(1, 4)), second: text(draw.lines(1, 4))}
    stems = [stem for stem in STEMS if not first.startswith(stem) and not second.startswith(stem)]
    name = f"{draw.pick(stems)}.tar"
    if draw.below(2):
        template = draw.pick(("Unpack {t}.", "Extract the archive {t}."))
        return TaskContent(
            instruction=template.format(t=name),
            solution=(f"tar xf {name}",),
            checks=tuple(FileIs(path, data, exact=True) for path, data in contents.items()),
            files={name: packed_tar(contents)},
        )
    template = draw.pick(("Pack {a} and {b} into {t}.", "Make the archive {t} of {a} and {b}."))
    return TaskContent(
        instruction=template.format(a=first, b=second, t=name),
        solution=(f"tar cf {name} {first} {second}",),
        checks=(TarHolds(name, tuple(contents.items())),),
        files=contents,
    )


def packed_tar(contents: dict[str, bytes]) -> bytes:
    """An archive whose bytes follow from the contents alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as target:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
