"""The shipped families of page tasks, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.gui.families.calendar import CALENDAR
from clawrl_gym.envs.gui.families.calendar_long import CALENDAR_LONG
from clawrl_gym.envs.gui.families.family import Family, TaskDraft
from clawrl_gym.envs.gui.families.mail import MAIL
from clawrl_gym.envs.gui.families.mail_long import MAIL_LONG
from clawrl_gym.envs.gui.families.settings import SETTINGS
from clawrl_gym.envs.gui.families.settings_long import SETTINGS_LONG
from clawrl_gym.envs.gui.families.sheet import SHEET
from clawrl_gym.envs.gui.families.shop import SHOP
from clawrl_gym.envs.gui.families.shop_long import SHOP_LONG
from clawrl_gym.envs.gui.families.shop_orders import SHOP_ORDERS
from clawrl_gym.envs.gui.families.tickets import TICKETS
from clawrl_gym.envs.gui.families.tickets_long import TICKETS_LONG

__all__ = ["FAMILIES", "Family", "TaskDraft"]

_ALL = (
    *CALENDAR,
    *CALENDAR_LONG,
    *MAIL,
    *MAIL_LONG,
    *SETTINGS,
    *SETTINGS_LONG,
    *SHEET,
    *TICKETS,
    *TICKETS_LONG,
    *SHOP,
    *SHOP_LONG,
    *SHOP_ORDERS,
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {family.name: family for family in sorted(_ALL, key=lambda family: family.name)}
)
"""Sorted by name."""
