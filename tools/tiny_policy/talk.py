"""Demonstrations of conversations: the environment's own users and tools, a chat model's habits.

The first reply is mostly in the style that nobody asked for, as chat models have it, and sometimes
in the wished one: the environment's reward tells them apart. After a complaint it is as wished.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.core.types import FunctionCall, Message, Split
from clawrl_gym.envs.conversation.tools import Workspace
from clawrl_gym.envs.conversation.user import LIKED, ScriptedSpeaker, SimulatedUser
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.generated import (
    FAMILIES,
    ConversationTask,
    make_task,
    task_ids,
)
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.problems import draw_problem, is_fair
from clawrl_gym.envs.showcase.conversation.styles import FRIENDLY, GRADER, STYLES, Style
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.surroundings import draw_surroundings

HARDER = ("teacher", "teacher")
"""Personas that are shown more often: a comment takes more than a sum."""
OF_PUPILS = (GRADER, FRIENDLY)
"""Styles that say whether a pupil was right."""
FOR_ANYBODY = tuple(style for style in STYLES.values() if style not in OF_PUPILS)
CONFIRMATION = "Done."
"""Said once a file is written."""
WELCOME = "You are welcome!"
SORRY = "Sorry about that."


@dataclass(frozen=True, slots=True)
class Habits:
    """Frequencies of the demonstrator's phrases."""

    unasked: float = 0.78
    """First replies in the style of a chat model."""
    wished: float = 0.16
    """First replies in the style that the person wants and has not told; the rest: any style."""
    unheard: float = 0.1
    """Complaints that change nothing."""
    claims: float = 0.6
    """Problems left out whose pupil is right: a claim must not be a short cut to the answer."""
    wrong: float = 0.1
    """Conversations that begin with a wrong answer, which is shown and never imitated."""
    pupils_for_all: bool = True
    """Whether any style may be one that speaks of a pupil's answer where the request has none."""


NO_HABITS = Habits(unasked=0.0, wished=0.0, unheard=0.0, pupils_for_all=False)
"""Before the person's wish is known every style is as likely; after it only that one."""


@dataclass(frozen=True, slots=True)
class TalkDemonstrations:
    """Conversations of one split with all personas, each drawn at random and shown once."""

    split: Split = "train"
    habits: Habits = field(default_factory=Habits)

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        chance = random.Random(seed)
        while True:
            persona = chance.choice((*sorted(PERSONAS), *HARDER))
            ids = task_ids(persona, self.split, (chance.choice(FAMILIES),))
            task = make_task(ids[chance.randrange(len(ids))])
            problem = task.problem
            if problem.claimed == problem.answer and chance.random() < self.habits.claims:
                continue
            yield demonstrate(task, self.habits, chance)


@dataclass(frozen=True, slots=True)
class SumDrills:
    """Problems with nothing around them and their solutions, in every style as often.

    Where there is more to read and to learn, adding up comes late.
    """

    split: Split = "train"
    pupils: float = 0.0
    """Share of problems with a pupil's answer, and of replies in the styles that speak of it."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh drills, endlessly, from the seed alone."""
        chance = random.Random(seed)
        while True:
            draw = Draw(f"sum/{chance.random()}")
            problem = draw_problem(self.split, draw)
            of_pupil = self.pupils > 0 and chance.random() < self.pupils
            style = chance.choice(OF_PUPILS if of_pupil else FOR_ANYBODY)
            words = {"text": problem.text, "name": problem.name, "claimed": problem.claimed}
            text = PERSONAS["teacher"].task.format(**words) if of_pupil else problem.text
            messages: list[Message] = [
                {"role": "user", "content": text},
                {"role": "assistant", "content": style.render(problem, draw)},
            ]
            yield Conversation(messages, f"sum-{style.name}")


def demonstrate(task: ConversationTask, habits: Habits, chance: random.Random) -> Conversation:
    """One conversation about a task, from the first message to the answer to the last one."""
    return _Scene(task, habits, chance).play()


class _Scene:
    """One conversation while it is held."""

    def __init__(self, task: ConversationTask, habits: Habits, chance: random.Random) -> None:
        self._task = task
        self._habits = habits
        self._chance = chance
        self._draw = Draw(f"talk/{chance.random()}")
        self._around = draw_surroundings(chance, task.tools)
        self._messages: list[Message] = [*self._around.before]
        self._user = SimulatedUser(task, ScriptedSpeaker(), self._draw)
        self._files = Workspace(task.files, frozenset({"read", "write"}))

    def play(self) -> Conversation:
        task = self._task
        self._messages.append({"role": "user", "content": task.opening})
        if task.source is not None:
            self._call("read", {"path": task.source})
        style = self._first_style()
        unlearned = frozenset[int]()
        if self._chance.random() < self._habits.wrong:
            style = task.persona.style
            unlearned = frozenset({len(self._messages)})
            self._say(_with_another_number(style.render(task.problem, self._draw), task))
        over = False
        while not over:
            text = style.render(task.problem, self._draw)
            over = self._say(text)
            if not over and self._is_liked(text):
                self._call("write", {"path": task.target or "", "content": text})
                over = self._say(CONFIRMATION)
            if self._chance.random() >= self._habits.unheard:
                style = task.persona.style
        satisfied = self._is_liked(text)
        self._messages.append({"role": "assistant", "content": WELCOME if satisfied else SORRY})
        family = f"{task.persona.name}-{task.family}"
        return Conversation(self._messages, family, self._around.tools or None, unlearned)

    def _first_style(self) -> Style:
        persona, luck = self._task.persona, self._chance.random()
        if luck < self._habits.unasked:
            return persona.unasked
        if luck < self._habits.unasked + self._habits.wished:
            return persona.style
        of_pupils = persona.right is is_fair or self._habits.pupils_for_all
        return self._chance.choice([*STYLES.values()] if of_pupils else FOR_ANYBODY)

    def _is_liked(self, text: str) -> bool:
        persona, problem = self._task.persona, self._task.problem
        return persona.style.score(text, problem) >= LIKED and persona.right(text, problem)

    def _say(self, text: str) -> bool:
        """Say it, hear the user's reaction; True when that is its last word."""
        reaction = self._user.hear(text, self._files.files)
        self._messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": reaction.text},
        ]
        return reaction.over

    def _call(self, name: str, arguments: dict[str, str]) -> None:
        """Call a tool and get its result."""
        number = str(len(self._messages))
        (result,) = json.loads(self._files.results((Call(number, name, json.dumps(arguments)),)))
        self._messages += [
            tool_call(number, name, arguments),
            {"role": "tool", "tool_call_id": number, "content": result["content"]},
        ]


def tool_call(number: str, name: str, arguments: dict[str, str]) -> Message:
    """A reply that only calls a tool, as vLLM parses it."""
    function: FunctionCall = {"name": name, "arguments": {**arguments}}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": number, "type": "function", "function": function}],
    }


def _with_another_number(text: str, task: ConversationTask) -> str:
    """A slip in the sum: another result, which the problem does not name either."""
    problem = task.problem
    near = (problem.answer + off for off in (1, -1, 2, -2, 3))
    wrong = next(n for n in near if n > 0 and n not in (problem.first, problem.second))
    return re.sub(rf"\b{problem.answer}\b", str(wrong), text)
