"""Demonstrations of single skills on the page that is open, which is true at every step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gui.agent import GuiAgent
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.task import Step, resolve
from clawrl_gym.envs.gui.text import render
from clawrl_gym.envs.phrasing import with_budget
from clawrl_gym.envs.showcase.gui.composed.families import PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.gui.composed.generated import PREFIX, compose, plain_tasks, task_of
from clawrl_gym.envs.showcase.gui.composed.library import SKILLS
from clawrl_gym.envs.showcase.gui.composed.plan import Part, played
from clawrl_gym.envs.showcase.gui.composed.wording import clauses, surrounded
from clawrl_gym.envs.showcase.gui.families.family import done
from clawrl_gym.envs.task_ids import parse_id
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.page_tasks import written_turn
from tools.tiny_policy.skills import BUDGETS, SessionSkills
from tools.tiny_policy.static_screen import StaticScreen

_OPTIONS = GuiEnvConfig()


class PageSession:
    """Conversation and actions so far, on paper."""

    def __init__(self, task_id: str, request: str, budget: int, finished: Sequence[Part]) -> None:
        """`finished`: what was done before the page is seen."""
        composed = _composed(task_id)
        actions = [action for part in finished for action in part.actions]
        plan = replace(composed.plan, start=played(composed.plan.start, actions))
        self.desk, task = plan.start, task_of(task_id, replace(composed, plan=plan))
        self._task, self._screen = task, StaticScreen.open(task, _OPTIONS)
        self._pages = [f"{with_budget(request, budget)}\n\n{self._page()}"]
        self._replies: list[Message] = []

    def work(self, part: Part) -> None:
        """All of a skill, in one reply, and the page that comes back."""
        ((name, args),) = part.actions
        turn = SKILLS[name].steps(self.desk, args)[-1]
        self._reply(turn)
        for step in turn:
            if (action := resolve(step, self._screen.look().lines)) is not None:
                self._screen.act(action)
        self._pages.append(self._page())

    def say(self, text: str) -> None:
        """A person's word above the page that has come back."""
        self._pages[-1] = f"{text}\n\n{self._pages[-1]}"

    def begun(self, skill: str) -> Conversation:
        """The first page and what is done there, without all that is always said."""
        page: Message = {"role": "user", "content": self._pages[0]}
        return Conversation([page, self._replies[0]], skill)

    def shown(self, skill: str) -> Conversation:
        """All of it, with the last reply."""
        self._reply(done())
        prompt = GuiAgent(protocol="text").messages(self._pages, self._replies[:-1])
        return Conversation([*prompt, self._replies[-1]], skill)

    def _reply(self, turn: Sequence[Step]) -> None:
        text = written_turn(self._screen.look().lines, self._task, turn)
        self._replies.append({"role": "assistant", "content": text})

    def _page(self) -> str:
        return render(self._screen.look(), _OPTIONS.max_tokens)


@dataclass(frozen=True, slots=True)
class PageSkills(SessionSkills[Part, PageSession]):
    """Plain tasks on pages."""

    def ids(self, family: str, split: Split) -> Sequence[str]:
        return plain_tasks([family]).ids(split)

    def request(self, task_id: str) -> str:
        return _composed(task_id).instruction

    def clauses(self, draw: Draw, task_id: str) -> tuple[str, str]:
        first, second = clauses(draw, "train", _composed(task_id).plan.parts)
        return first, second

    def surrounded(self, draw: Draw, body: str) -> str:
        return surrounded(draw, "train", body)

    def parts(self, task_id: str) -> Sequence[Part]:
        return _composed(task_id).plan.parts

    def session(
        self, task_id: str, request: str, budget: int, finished: Sequence[Part]
    ) -> PageSession:
        return PageSession(task_id, request, budget, finished)

    def work(self, session: PageSession, part: Part, chance: random.Random) -> None:
        session.work(part)

    def show_bare(self, task_id: str, part: Part) -> Conversation:
        session = self.session(task_id, self.request(task_id), BUDGETS[0], ())
        session.work(part)
        return session.begun(part.skill)


@lru_cache(maxsize=16)
def _composed(task_id: str) -> Composed:
    parsed = parse_id(task_id, PLAIN_FAMILIES, PREFIX)
    return compose(parsed.family, parsed.split, parsed.number)
