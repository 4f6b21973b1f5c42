"""The shipped families of tool-call tasks, by name: short requests for a small policy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.showcase.toolcall.families import files, shop, sums
from clawrl_gym.envs.showcase.toolcall.families.family import Family, TaskContent

__all__ = ["FAMILIES", "Family", "TaskContent"]

_ALL = (
    Family("add", sums.add),
    Family("append", files.append),
    Family("bill", sums.bill),
    Family("both", sums.both),
    Family("cancel", shop.cancel),
    Family("copy", files.copy),
    Family("look", files.look),
    Family("move", shop.move),
    Family("price", shop.price),
    Family("range", sums.range_),
    Family("save", files.save),
    Family("steps", sums.steps),
    Family("trail", files.trail),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
"""Sorted by name."""
