"""All skills, by name: those that all families chain, and those of held-out families."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.showcase.terminal.composed.folders import FOLDER_SKILLS
from clawrl_gym.envs.showcase.terminal.composed.heldout import AUDIT, MIGRATE
from clawrl_gym.envs.showcase.terminal.composed.lines import LINE_SKILLS
from clawrl_gym.envs.showcase.terminal.composed.skill import Skill
from clawrl_gym.envs.showcase.terminal.composed.tables import TABLE_SKILLS

SKILLS: Mapping[str, Skill] = MappingProxyType(
    {skill.name: skill for skill in (*LINE_SKILLS, *TABLE_SKILLS, *FOLDER_SKILLS)}
)

HELDOUT_SKILLS: Mapping[str, Skill] = MappingProxyType(
    {skill.name: skill for skill in (AUDIT, MIGRATE)}
)
