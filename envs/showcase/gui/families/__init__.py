"""The shipped families of page tasks, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.showcase.gui.families.calendar import CALENDAR
from clawrl_gym.envs.showcase.gui.families.family import Family
from clawrl_gym.envs.showcase.gui.families.mail import MAIL
from clawrl_gym.envs.showcase.gui.families.settings import SETTINGS
from clawrl_gym.envs.showcase.gui.families.sheet import SHEET
from clawrl_gym.envs.showcase.gui.families.shop import SHOP
from clawrl_gym.envs.showcase.gui.families.tickets import TICKETS

__all__ = ["FAMILIES", "Family"]

_ALL = (
    *CALENDAR,
    *MAIL,
    *SETTINGS,
    *SHEET,
    *TICKETS,
    *SHOP,
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {family.name: family for family in sorted(_ALL, key=lambda family: family.name)}
)
"""Sorted by name."""
