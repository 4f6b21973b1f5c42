"""Agents that know every single skill of composed tool-call tasks and do not plan.

They call the right tool for everything that the request names, with the ids of the names in it (the
first one that a search shows), and go by its words alone: what a person or thing is to another one
is not looked up, what a tool refuses is not read, and no rule is minded. What a held-out family is
made of that is no single skill they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clawrl_gym.agents.tool_calls import encode
from clawrl_gym.envs.showcase.toolcall.composed.actions import ACTIONS
from clawrl_gym.envs.showcase.toolcall.composed.families import Composed
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part, Turn
from clawrl_gym.envs.showcase.toolcall.families.family import replies
from clawrl_gym.envs.toolcall.env import ToolCallEnv

Agent = Callable[[Composed], list[Turn]]


def in_order_of_the_text(composed: Composed) -> list[Turn]:
    """All things that the text names, one after the other."""
    parts = [composed.plan.parts[i] for i in composed.order]
    calls = [call for part in parts for call in _calls(part)]
    answers = [turn for part in parts if part.answer is not None for turn in _answer(part)]
    return [*calls, " ".join(["Done.", *answers])]


def first_that_is_recognised(composed: Composed) -> list[Turn]:
    """Only the first of them."""
    first, *_, last = [*in_order_of_the_text(composed), "Done."]
    return [first, last]


AGENTS: tuple[Agent, ...] = (in_order_of_the_text, first_that_is_recognised)


def _calls(part: Part) -> Sequence[Turn]:
    """The one call of an action; what a question is answered with."""
    if part.answer is not None:
        return part.calls
    return part.guessed or part.calls[-1:] if part.skill in ACTIONS else ()


def _answer(part: Part) -> list[str]:
    guessed = [turn for turn in part.guessed if isinstance(turn, str)]
    return guessed or [f"The answer is {part.answer}."]


def solves(env: ToolCallEnv, task_id: str, turns: Sequence[Turn]) -> bool:
    """Whether these earn the task's reward."""
    env.reset(options={"task": task_id})
    actions = [turn if isinstance(turn, str) else [turn] for turn in turns]
    for reply in replies(*actions):
        _, reward, terminated, truncated, _ = env.step(encode(reply))
        if terminated or truncated:
            return bool(reward == 1.0)
    return env.finish() == 1.0
