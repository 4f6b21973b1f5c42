"""A hint behind the first message, as a teacher of on-policy distillation reads it.

A policy that is measured so shows what it would teach itself: how often it replies as the user
wishes when it has read the user's own words, other words for the same wish, or something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.generated import ConversationTask, make_task, speaker_of
from clawrl_gym.envs.showcase.conversation.personas import HELDOUT_PERSONAS, PERSONAS
from clawrl_gym.envs.showcase.conversation.plain import USERS, PlainTask
from clawrl_gym.envs.showcase.conversation.plain import make_task as plain_task

HintKind = Literal["none", "own", "other", "another", "random"]
"""Nothing; the user's own words; the same wish in the other wording; another user's wish; random
words of other requests."""


def hinted_opening(task: ConversationTask, kind: HintKind, form: str, wording: Split) -> str:
    """The first message with a hint of this kind; `form` has {words} where they go."""
    if kind == "none":
        return task.opening
    return task.opening + form.replace("{words}", _words(task, kind, wording))


def _words(task: ConversationTask, kind: HintKind, wording: Split) -> str:
    draw = Draw(f"hint/{task.id}")
    own = draw.pick(task.persona.dislike)
    if kind == "own":
        return own
    said = {"train": PERSONAS, "heldout": HELDOUT_PERSONAS}
    if kind == "other":
        others = said["train" if wording == "heldout" else "heldout"]
        return draw.pick(others[task.persona.name].dislike)
    if kind == "another":
        names = [name for name in PERSONAS if name != task.persona.name]
        return draw.pick(said[wording][draw.pick(names)].dislike)
    speaker = speaker_of(task.persona.name, wording)
    return _random_words(own, draw, lambda n: make_task(f"{speaker}-ask-train-{n:06d}").opening)


def hinted_plain_opening(task: PlainTask, kind: HintKind, form: str) -> str:
    """The same for a question of a plain user."""
    if kind == "none":
        return task.opening
    return task.opening + form.replace("{words}", _plain_words(task, kind))


def _plain_words(task: PlainTask, kind: HintKind) -> str:
    draw = Draw(f"hint/{task.id}")
    own = draw.pick(task.persona.dislike)
    if kind == "own":
        return own
    if kind == "other":
        return draw.pick(task.persona.otherwise)
    if kind == "another":
        names = [name for name in USERS if name != task.persona.name]
        return draw.pick(USERS[draw.pick(names)].dislike)
    return _random_words(
        own, draw, lambda n: plain_task(f"plain-{task.persona.name}-train-{n:06d}").opening
    )


def _random_words(own: str, draw: Draw, opening: Callable[[int], str]) -> str:
    """Random words from other tasks' requests, as many as the task's own complaint has."""
    words = [word for _ in range(20) for word in opening(draw.below(1000)).split()]
    return " ".join(draw.pick(words) for _ in own.split())
