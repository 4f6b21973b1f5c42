"""A simulated user's side of one conversation: what it hears, thinks of it, and says.

Code decides what is said (a complaint, a correction, thanks) and keeps the scores; a speaker only
finds the words. So a model in the user's place can neither grade nor end a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from clawrl_gym.envs.conversation.generated import ConversationTask
from clawrl_gym.envs.conversation.personas import LIKED
from clawrl_gym.envs.conversation.problems import answers_in
from clawrl_gym.envs.draw import Draw

Act = Literal["dislike", "wrong", "thanks", "save", "missing", "leave"]

PATIENCE = 2
"""Complaints that a user makes; where the next would be due, it leaves."""


class Speaker(Protocol):
    """Finds the words for what a user means to say."""

    def say(self, act: Act, task: ConversationTask, reply: str, draw: Draw) -> str:
        """Raises EnvError when no words can be had."""
        ...


class ScriptedSpeaker:
    """The persona's own sentences, drawn."""

    def say(self, act: Act, task: ConversationTask, reply: str, draw: Draw) -> str:
        forms: tuple[str, ...] = getattr(task.persona, act)
        return draw.pick(forms).format(target=task.target)


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the user says to a reply, and whether the conversation is over."""

    text: str
    over: bool = False
    satisfied: bool = False


class SimulatedUser:
    """One user in one conversation."""

    def __init__(self, task: ConversationTask, speaker: Speaker, draw: Draw) -> None:
        self.first_score = 0.0
        """How well the first reply fitted the wish."""
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
        problem, persona = self._task.problem, self._task.persona
        if not self._heard_any:
            self._heard_any = True
            self.first_score = persona.style.score(text, problem)
            self.first_correct = persona.right(text, problem)
        act = self._act_on_file(files) if self._saving else self._act_on_answer(text)
        if act in ("dislike", "wrong", "missing"):
            self._complaints += 1
            act = act if self._complaints <= PATIENCE else "leave"
        self._saving = self._saving or act == "save"
        words = self._speaker.say(act, self._task, text, self._draw)
        return Reaction(words, over=act in ("thanks", "leave"), satisfied=act == "thanks")

    def _act_on_answer(self, text: str) -> Act:
        problem, persona = self._task.problem, self._task.persona
        if not answers_in(text, problem):
            return "wrong"
        if persona.style.score(text, problem) < LIKED:
            return "dislike"
        if not persona.right(text, problem):
            return "wrong"
        return "thanks" if self._task.target is None else "save"

    def _act_on_file(self, files: Mapping[str, str]) -> Act:
        """Satisfied by what the file holds, whatever the reply claims."""
        problem, persona = self._task.problem, self._task.persona
        written = files.get(self._task.target or "", "")
        is_accepted = (
            persona.right(written, problem) and persona.style.score(written, problem) >= LIKED
        )
        return "thanks" if is_accepted else "missing"
