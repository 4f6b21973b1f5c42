"""Conversations with one user: a problem or a question, and a wish that is not said at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.conversation.scripted import ScriptedPartner
from clawrl_gym.envs.conversation.tools import arguments_of
from clawrl_gym.envs.conversation.user import LIKED, ScriptedSpeaker, SimulatedUser, Speaker
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.generated import ConversationTask, generated_tasks
from clawrl_gym.envs.showcase.conversation.hinting import hinted_opening, hinted_plain_opening
from clawrl_gym.envs.showcase.conversation.plain import PlainTask, plain_tasks
from clawrl_gym.envs.task_env import Info


class SimulatedPartner(ScriptedPartner[ConversationTask, SimulatedUser[ConversationTask]]):
    """A persona."""

    def __init__(self, config: ConversationEnvConfig, speaker: Speaker[ConversationTask]) -> None:
        """Raises ConfigError for an unknown persona or family."""
        super().__init__()
        self._source = generated_tasks(config.persona, config.families, config.wording)
        self._config = config
        self._speaker = speaker

    def _opening(self, task: ConversationTask) -> str:
        config = self._config
        return hinted_opening(task, config.hint, config.hint_form, config.wording)

    def _user_of(self, task: ConversationTask, number: int) -> SimulatedUser[ConversationTask]:
        return SimulatedUser(task, self._speaker, Draw(f"user/{task.id}/{number}"))

    def _turn_limit(self, task: ConversationTask) -> int:
        return self._config.max_turns

    def _solution(self, task: ConversationTask) -> Sequence[Reply]:
        """The wished style at once, files when asked."""
        answer = task.persona.style.render(task.problem, Draw(f"oracle/{task.id}"))
        replies = []
        if task.source is not None:
            replies.append(Reply("", (Call("read-1", "read", arguments_of(path=task.source)),)))
        replies.append(Reply(answer))
        if task.target is not None:
            written = arguments_of(path=task.target, content=answer)
            replies += [Reply("", (Call("write-1", "write", written),)), Reply("done")]
        return replies

    def _seen(self, task: ConversationTask, user: SimulatedUser[ConversationTask]) -> Info:
        return first_reply(user)


class PlainPartner(ScriptedPartner[PlainTask, SimulatedUser[PlainTask]]):
    """A user with a general question and a plain wish about form."""

    def __init__(self, config: ConversationEnvConfig) -> None:
        """Raises ConfigError for an unknown user."""
        super().__init__()
        self._source = plain_tasks(config.persona, config.families)
        self._config = config

    def _opening(self, task: PlainTask) -> str:
        return hinted_plain_opening(task, self._config.hint, self._config.hint_form)

    def _user_of(self, task: PlainTask, number: int) -> SimulatedUser[PlainTask]:
        return SimulatedUser(task, ScriptedSpeaker(), Draw(f"user/{task.id}/{number}"))

    def _turn_limit(self, task: PlainTask) -> int:
        return self._config.max_turns

    def _solution(self, task: PlainTask) -> Sequence[Reply]:
        return [Reply(task.persona.put(task.question.answer))]

    def _seen(self, task: PlainTask, user: SimulatedUser[PlainTask]) -> Info:
        return first_reply(user)


def first_reply(user: SimulatedUser[Any]) -> Info:
    """Metrics of the first reply."""
    first, correct = user.first_score, user.first_correct
    return {
        "first_reply_score": first,
        "correct": correct,
        "scores": {
            "liked": float(first >= LIKED),
            "personalization": first,
            "correct": float(correct),
        },
    }
