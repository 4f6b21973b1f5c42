"""A simulated user's side of one conversation: what it hears, thinks of it, and says.

Code decides what is said (a complaint, a correction, thanks) and keeps the scores; a speaker only
finds the words. So a model in the user's place can neither grade nor end a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from clawrl_gym.envs.draw import Draw

Act = Literal["dislike", "wrong", "thanks", "save", "missing", "leave"]

LIKED = 0.7
"""A style score from which on a person accepts."""
PATIENCE = 2
"""Complaints that a user makes; where the next would be due, it leaves."""


class Wished(Protocol):
    """A task of a user with a wish."""

    @property
    def persona(self) -> object:
        """The persona whose sentences stand in fields with the names of acts."""
        ...

    @property
    def target(self) -> str | None:
        """The file that the accepted text goes to."""
        ...

    def has_answer(self, text: str) -> bool: ...
    def score(self, text: str) -> float: ...
    def is_right(self, text: str) -> bool: ...


TaskT = TypeVar("TaskT", bound=Wished, contravariant=True)


class Speaker(Protocol[TaskT]):
    """Finds the words for what a user means to say."""

    def say(self, act: Act, task: TaskT, reply: str, draw: Draw) -> str:
        """Raises EnvError when no words can be had."""
        ...


class ScriptedSpeaker:
    """The persona's own sentences, drawn."""

    def say(self, act: Act, task: Wished, reply: str, draw: Draw) -> str:
        forms: tuple[str, ...] = getattr(task.persona, act)
        return draw.pick(forms).format(target=task.target)


@dataclass(frozen=True, slots=True)
class Reaction:
    """The user's answer to a reply, and whether the conversation is over."""

    text: str
    over: bool = False
    satisfied: bool = False


class SimulatedUser(Generic[TaskT]):
    """One user in one conversation."""

    def __init__(self, task: TaskT, speaker: Speaker[TaskT], draw: Draw) -> None:
        self.first_score = 0.0
        """Fit of the first reply to the wish."""
        self.first_correct = False
        """Whether the first reply was right."""
        self._task = task
        self._speaker = speaker
        self._draw = draw
        self._heard_any = False
        self._saving = False
        self._complaints = 0

    def hear(self, text: str, files: Mapping[str, str]) -> Reaction:
        """React to a reply. `files` is the workspace as it is now."""
        if not self._heard_any:
            self._heard_any = True
            self.first_score = self._task.score(text)
            self.first_correct = self._task.is_right(text)
        act = self._act_on_file(files) if self._saving else self._act_on_answer(text)
        if act in ("dislike", "wrong", "missing"):
            self._complaints += 1
            act = act if self._complaints <= PATIENCE else "leave"
        self._saving = self._saving or act == "save"
        words = self._speaker.say(act, self._task, text, self._draw)
        return Reaction(words, over=act in ("thanks", "leave"), satisfied=act == "thanks")

    def _act_on_answer(self, text: str) -> Act:
        if not self._task.has_answer(text):
            return "wrong"
        if self._task.score(text) < LIKED:
            return "dislike"
        if not self._task.is_right(text):
            return "wrong"
        return "thanks" if self._task.target is None else "save"

    def _act_on_file(self, files: Mapping[str, str]) -> Act:
        """Satisfied by what the file holds, whatever the reply claims."""
        written = files.get(self._task.target or "", "")
        is_accepted = self._task.is_right(written) and self._task.score(written) >= LIKED
        return "thanks" if is_accepted else "missing"
