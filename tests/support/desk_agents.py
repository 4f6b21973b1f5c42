"""Agents that know every single skill of composed page tasks and do not plan.

They find every record by its name (the first of two that are called so), fill every form right, and
go by the words of the request alone: what somebody or something is to another one is not looked up,
what is so already is done once more, and what a page refuses is not read. What a held-out family is
made of that is no single skill they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.task import Step, resolve
from clawrl_gym.envs.gui.text_calls import format_action
from clawrl_gym.envs.showcase.gui.composed.families import Composed
from clawrl_gym.envs.showcase.gui.families.family import Turns
from tools.tiny_policy.static_screen import StaticScreen

Agent = Callable[[Composed], Turns]


def in_order_of_the_text(composed: Composed) -> Turns:
    """All things that the text names, one after the other."""
    return composed.plan.blind(composed.order)


def first_that_is_recognised(composed: Composed) -> Turns:
    """Only the first of them."""
    return composed.plan.blind(composed.order[:1])


AGENTS: tuple[Agent, ...] = (in_order_of_the_text, first_that_is_recognised)


def paper_desk() -> GuiEnv:
    """The environment of composed tasks with a browser on paper."""
    return GuiEnv(tasks="composed", open_screen=StaticScreen.open)


def solves(env: GuiEnv, task_id: str, turns: Sequence[Sequence[Step]]) -> bool:
    """Whether these earn the task's reward; what a page does not have is left out."""
    env.reset(options={"task": task_id})
    for turn in turns:
        reply = _written(env, turn)
        if reply:
            _, reward, terminated, truncated, _ = env.step(reply)
            if terminated or truncated:
                return reward == 1.0
    return env.finish() == 1.0


def _written(env: GuiEnv, turn: Sequence[Step]) -> str:
    actions = (resolve(step, env.view.lines) for step in turn)
    return "\n".join(format_action(action) for action in actions if action is not None)
