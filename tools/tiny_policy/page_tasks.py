"""Demonstrations of tasks on web pages: the environment itself, played on paper."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.gui.agent import GuiAgent
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.observation import Line
from clawrl_gym.envs.gui.task import GuiTask, Step, resolve
from clawrl_gym.envs.gui.text_calls import format_action
from clawrl_gym.envs.showcase.gui.families import FAMILIES
from clawrl_gym.envs.showcase.gui.families.family import Turns
from clawrl_gym.envs.showcase.gui.generated import make_task, task_ids
from tools.tiny_policy import page_slips
from tools.tiny_policy.conversations import Conversation, drawn
from tools.tiny_policy.page_quotes import place_of, source_of
from tools.tiny_policy.static_screen import StaticScreen


def easy_families() -> tuple[str, ...]:
    """Families whose pages the tiny policy can read whole."""
    return tuple(name for name, family in FAMILIES.items() if family.easy)


@dataclass(frozen=True, slots=True)
class PageDemonstrations:
    """Easy generated tasks on pages of one split, each drawn at random and shown once."""

    split: Split = "train"
    careless: bool = True
    """With slips (see `page_slips`); False shows the oracle's own solutions."""
    families: tuple[str, ...] | None = None
    """Only these families; None takes all easy ones."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        slips = random.Random(f"page slips/{seed}")
        env = GuiEnv(open_screen=StaticScreen.open)
        for task in self.tasks(seed):
            luck = slips.random() if self.careless else 1.0
            yield demonstrate(env, task, page_slips.demonstrated_turns(task, luck))

    def tasks(self, seed: int) -> Iterator[GuiTask]:
        """The tasks that `conversations` shows."""
        families = self.families or easy_families()
        ids = {family: task_ids(self.split, (family,)) for family in families}
        yield from map(make_task, drawn(ids, {}, seed))


def demonstrate(env: GuiEnv, task: GuiTask, turns: Turns) -> Conversation:
    """A conversation in which these replies are given."""
    observation, _ = env.reset(options={"task": task.id, "split": task.split})
    observations, replies = [observation], list[Message]()
    for turn in turns:
        text = written_turn(env.view.lines, task, turn)
        replies.append({"role": "assistant", "content": text})
        observation, _, terminated, truncated, _ = env.step(text)
        observations.append(observation)
        if terminated or truncated:
            break
    prompt = GuiAgent(protocol="text").messages(observations[: len(replies)], replies[:-1])
    return Conversation([*prompt, replies[-1]], f"page-{task.family}")


def written_turn(lines: tuple[Line, ...], task: GuiTask, turn: Sequence[Step]) -> str:
    """A reply of these steps on the page that is shown, each with what it quotes."""
    return "\n".join(written for step in turn for written in _written(lines, task, step))


def _written(lines: tuple[Line, ...], task: GuiTask, step: Step) -> tuple[str, ...]:
    action = resolve(step, lines)
    if action is None:
        raise TaskError(f"task {task.id!r}: got no {step.locator} on the page")
    quote = ""
    if action.id is not None:
        quote = place_of(lines, action.id, step.locator.near if step.locator else "")
    elif action.kind == "answer":
        quote = source_of(lines, action.text, task.instruction)
    return (quote, format_action(action)) if quote else (format_action(action),)
