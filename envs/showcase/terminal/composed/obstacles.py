"""Obstacles to a natural first command, whose output tells of them."""

from __future__ import annotations

import posixpath
import shlex
import struct
import zlib
from collections.abc import Callable

from clawrl_gym.envs.draw import text
from clawrl_gym.envs.showcase.terminal.composed.skill import TEXTS, Args, Kind, Skill
from clawrl_gym.envs.showcase.terminal.composed.tool import LOCK
from clawrl_gym.envs.showcase.terminal.composed.world import World

OBSTACLES = ("missing_folder", "read_only", "unwritable", "spaces", "compressed", "locked")
OF_SOURCES = ("unwritable", "spaces", "compressed")
"""Obstacles that need a source that no part has made."""
_READ_ONLY = 0o444

Fix = tuple[str, Callable[[World], None]]
"""A command that puts something right, and what it does."""


def fits(obstacle: str, skill: Skill) -> bool:
    """Whether the obstacle can stand in the way of this skill."""
    writes = skill.makes in (*TEXTS, Kind.VALUE, Kind.PACKED) and not skill.same
    files = TEXTS | {Kind.RECORD}
    return {
        "": True,
        "missing_folder": writes,
        "read_only": writes,
        "unwritable": skill.name == "append",
        "spaces": bool(skill.takes & files),
        "compressed": bool(skill.takes & (files | {Kind.ARCHIVE})) and skill.makes is not None
        and skill.keeps and Kind.VALUE not in skill.takes,
        "locked": skill.tool is not None,
    }[obstacle]  # fmt: skip


def put(obstacle: str, args: Args, start: World, now: World) -> list[Fix]:
    """Put it in the way, and say what clears it."""
    source, target = args.get("a", ""), args.get("b", "")
    if obstacle == "missing_folder":
        folder = posixpath.dirname(target)
        return [(f"mkdir {folder}", lambda world: world.add_folder(folder))]
    if obstacle in ("read_only", "unwritable"):
        path = target if obstacle == "read_only" else source
        content = start.files[source].content if path == source else text(["of last week"])
        for world in (start, now):
            world.add(path, content, _READ_ONLY)
        command = f"chmod u+w {shlex.quote(path)}"
        return [(command, lambda world: world.set_mode(path, None))]
    if obstacle == "compressed":
        return [_compress(source, start, now)]
    if obstacle == "locked":
        for world in (start, now):
            world.add(LOCK, text(["process 4711, ended"]))
        return [(f"rm {LOCK}", lambda world: world.remove(LOCK))]
    return []


def _compress(path: str, start: World, now: World) -> Fix:
    """Only `path`.gz is there; afterwards either may be left."""
    content = start.files[path].content
    for world in (start, now):
        world.remove(path)
        world.add(f"{path}.gz", gzipped(content))
    now.free |= {path, f"{path}.gz"}

    def unpack(world: World) -> None:
        world.read(f"{path}.gz")
        world.add(path, content)

    return f"gunzip -k {shlex.quote(path)}.gz", unpack


def gzipped(content: bytes) -> bytes:
    """A gzip file whose bytes follow from the content alone, whatever zlib there is."""
    size = struct.pack("<HH", len(content), len(content) ^ 0xFFFF)
    ending = struct.pack("<II", zlib.crc32(content), len(content))
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\x01" + size + content + ending
