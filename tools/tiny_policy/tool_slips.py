"""Slips of a demonstrator with tools: what it does instead of a task's solution, by family.

One decision each, as in `careless`: a guess instead of a call, another operator, a step left out.
What comes after the slip follows from it: a wrong result is reported as the tool gave it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.toolcall.families.family import replies
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolsets.calculator import calculate
from tools.tiny_policy.careless import BAD_HABIT, LAPSE

Replies = tuple[Reply, ...]
Slip = Callable[[ToolTask], Replies]
"""A task in, wrong replies out."""


def demonstrated_replies(task: ToolTask, luck: float) -> Replies:
    """The replies that the demonstrator shows; `luck` is a number in [0, 1)."""
    slip, share = SLIPS.get(task.family, (lambda task: task.solution, 0.0))
    return slip(task) if luck < share else task.solution


def _guesses(task: ToolTask) -> Replies:
    value = int(task.solution[-1].content.rstrip(".").rpartition(" ")[2])
    near = (value + off for off in (10, -10, 1, -1, 100))
    guess = Draw(f"guess/{task.id}").pick([n for n in near if n > 0])
    return (Reply(f"The answer is {guess}."),)


def _expression(change: Callable[[str], str]) -> Slip:
    """Another expression, and the result that it has."""

    def slip(task: ToolTask) -> Replies:
        expression = change(_arguments(task, 0)["expression"])
        return (
            _with_arguments(task.solution[0], {"expression": expression}),
            Reply(f"The answer is {calculate(expression)}."),
        )

    return slip


def _leaves_out_the_last(task: ToolTask) -> Replies:
    code = _arguments(task, 0)["code"].replace(" + 1)", ")")
    first, last = code.removeprefix("sum(range(").removesuffix("))").split(", ")
    value = sum(range(int(first), int(last)))
    return (
        _with_arguments(task.solution[0], {"code": code}),
        Reply(f"The answer is \\boxed{{{value}}}."),
    )


def _answers_one(task: ToolTask) -> Replies:
    first = task.solution[0]
    value = calculate(_arguments(task, 0)["expression"])
    return replace(first, calls=first.calls[:1]), Reply(f"The answer is {value}.")


def _stops(statement: Callable[[ToolTask], str]) -> Slip:
    """Nothing after the first call but this."""
    return lambda task: (task.solution[0], Reply(statement(task)))


def _forgets_what_was(task: ToolTask) -> Replies:
    first, second, last = task.solution
    arguments = _arguments(task, 1)
    item = arguments["content"].rpartition("\n")[2]
    return first, _with_arguments(second, {**arguments, "content": item}), last


def _hands_over(task: ToolTask) -> Replies:
    why = _arguments(task, 0)["reason"]
    return replies([("hand_over", {"why": why})], "A colleague takes over.")


def _moves_the_user(task: ToolTask) -> Replies:
    arguments = _arguments(task, 0)
    user = task.state["shop"]["orders"][arguments["order"]]["user"]
    moved = {"user": user, "address": arguments["address"]}
    return (*replies([("move_user", moved)]), task.solution[-1])


def _tells_the_stock(task: ToolTask) -> Replies:
    product = task.state["shop"]["products"][_arguments(task, 0)["product"]]
    return task.solution[0], Reply(f"The price is {product['stock']}.")


def _arguments(task: ToolTask, place: int) -> dict[str, str]:
    """Arguments of the first call of the solution's reply at this place."""
    arguments: dict[str, str] = json.loads(task.solution[place].calls[0].arguments)
    return arguments


def _with_arguments(reply: Reply, arguments: Mapping[str, str]) -> Reply:
    (call,) = reply.calls
    return replace(reply, calls=(replace(call, arguments=json.dumps(arguments)),))


SLIPS: Mapping[str, tuple[Slip, float]] = MappingProxyType(
    {
        "add": (_guesses, BAD_HABIT),
        "append": (_forgets_what_was, BAD_HABIT),
        "bill": (_expression(lambda text: text.replace("*", "+")), BAD_HABIT),
        "both": (_answers_one, LAPSE),
        "cancel": (_hands_over, BAD_HABIT),
        "copy": (_stops(lambda task: "Done."), BAD_HABIT),
        "look": (_stops(lambda task: f"I cannot find {_arguments(task, 0)['path']}."), LAPSE),
        "move": (_moves_the_user, BAD_HABIT),
        "price": (_tells_the_stock, BAD_HABIT),
        "range": (_leaves_out_the_last, BAD_HABIT),
        "save": (
            _stops(lambda task: f"The answer is {_arguments(task, 1)['content']}."),
            BAD_HABIT,
        ),
        "steps": (
            _expression(lambda text: text.replace("(", "").replace(")", "")),
            BAD_HABIT,
        ),
        "trail": (_stops(lambda task: f"The word is {_arguments(task, 1)['path']}."), LAPSE),
    }
)
"""Each family's slip and how often it is made."""
