"""The shipped families of terminal tasks, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.showcase.terminal.families import data, files, text, turns
from clawrl_gym.envs.showcase.terminal.families.family import Family, TaskContent

__all__ = ["FAMILIES", "Family", "TaskContent"]

_ALL = (
    Family("append", files.append),
    Family("archive", files.archive),
    Family("copy", files.copy),
    Family("count", text.count),
    Family("csv", data.csv),
    Family("environ", data.environ),
    Family("find", text.find),
    Family("folder", files.folder),
    Family("git", data.git),
    Family("grep", text.grep),
    Family("json", data.json),
    Family("lines", text.lines),
    Family("logs", text.logs),
    Family("lookup", turns.lookup, turns=2),
    Family("move", files.move),
    Family("note", turns.note, turns=2),
    Family("permissions", files.permissions),
    Family("replace", text.replace),
    Family("script", data.script),
    Family("sort", text.sort),
    Family("trail", turns.trail, turns=3),
    Family("upper", text.upper),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
"""Sorted by name."""
