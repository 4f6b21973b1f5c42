"""All skills of composed page tasks, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.showcase.gui.composed.skill import Skill
from clawrl_gym.envs.showcase.gui.composed.skills.calendar import CALENDAR
from clawrl_gym.envs.showcase.gui.composed.skills.mail import MAIL
from clawrl_gym.envs.showcase.gui.composed.skills.settings import SETTINGS
from clawrl_gym.envs.showcase.gui.composed.skills.sheet import SHEET
from clawrl_gym.envs.showcase.gui.composed.skills.shop import SHOP
from clawrl_gym.envs.showcase.gui.composed.skills.tickets import TICKETS

_ALL = (*CALENDAR, *MAIL, *SETTINGS, *SHEET, *SHOP, *TICKETS)
SKILLS: Mapping[str, Skill] = MappingProxyType({skill.name: skill for skill in _ALL})
