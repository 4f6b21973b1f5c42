"""Composed conversations with their users, and the oracle."""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.conversation.scripted import ScriptedPartner
from clawrl_gym.envs.showcase.conversation.composed.generated import ComposedTask, composed_tasks
from clawrl_gym.envs.showcase.conversation.composed.speech import solution
from clawrl_gym.envs.showcase.conversation.composed.user import ComposedUser
from clawrl_gym.envs.task_env import Info


class ComposedPartner(ScriptedPartner[ComposedTask, ComposedUser]):
    """A partner who asks for several things in turn."""

    def __init__(self, families: Sequence[str] | None) -> None:
        """Raises ConfigError for an unknown family."""
        super().__init__()
        self._source = composed_tasks(families)

    def _user_of(self, task: ComposedTask, number: int) -> ComposedUser:
        return ComposedUser(task)

    def _turn_limit(self, task: ComposedTask) -> int:
        return task.turns

    def _solution(self, task: ComposedTask) -> Sequence[Reply]:
        return solution(task.plan, task.id)

    def _seen(self, task: ComposedTask, user: ComposedUser) -> Info:
        return {
            "difficulty": task.difficulty,
            "parts": user.parts,
            "scores": {"parts": user.parts},
        }
