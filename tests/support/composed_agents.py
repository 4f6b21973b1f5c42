"""Agents that know every single skill of composed tasks and do not plan, on the folder's model.

They write every command right, quote names, and go by the request alone: nothing is looked at, what
is to be found out is guessed, and what a command says is not read. What a family is made of that is
no single skill (an audit, a migration) they do not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawrl_gym.envs.showcase.terminal.composed.families import Composed
from clawrl_gym.envs.showcase.terminal.composed.library import SKILLS
from clawrl_gym.envs.showcase.terminal.composed.plan import Action, played
from clawrl_gym.envs.showcase.terminal.composed.world import World

Agent = Callable[[Composed], list[Action]]


def in_order_of_the_text(composed: Composed) -> list[Action]:
    """All skills that the text names, one after the other."""
    parts = [composed.plan.parts[i] for i in composed.order]
    return [part.action(**part.guessed) for part in parts if part.skill.name in SKILLS]


def first_that_is_recognised(composed: Composed) -> list[Action]:
    """Only the first of them."""
    return in_order_of_the_text(composed)[:1]


AGENTS: tuple[Agent, ...] = (in_order_of_the_text, first_that_is_recognised)


class Left:
    """A world as a grade sees it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, path: str) -> bytes | None:
        file = self._world.files.get(path)
        return None if file is None else file.content

    def mode(self, path: str) -> int | None:
        file = self._world.files.get(path)
        if file is None:
            return 0o755 if path in self._world.folders else None
        return 0o644 if file.mode is None else file.mode

    def tree(self) -> dict[str, int]:
        folders = dict.fromkeys(self._world.folders, 0o40755)
        return folders | dict.fromkeys(self._world.files, 33188)


def solves(task: Any, composed: Composed, actions: list[Action]) -> bool:
    """Whether these earn the task's reward."""
    left = Left(played(composed.plan.start, actions))
    return all(check.passed(left) for check in task.checks)
