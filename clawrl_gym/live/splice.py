"""Prompt ids of a turn, such that they extend the turn before it whenever that can be proved.

A reply rendered again may come out as other ids than those that were sampled. Where the chat
template only appends, the ids that were used stay and only what follows the reply is taken from
the new rendering. Nothing is tokenised here: every id comes from the policy's `render`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from clawrl_gym.types import Message, Turn

Render = Callable[[dict[str, Any]], Awaitable[list[int]]]

Fit = Literal["first", "exact", "spliced", "retoken", "template", "edited"]
"""How a prompt joins the turn before it: there is none; it extends it as rendered; it was made to;
same reply in other ids; the template renders the past otherwise; it is another conversation."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the policy gets."""

    ids_T: list[int]
    rendered_ids_T: list[int]
    """The request as rendered afresh; the same list unless spliced."""
    fit: Fit


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn that a later request may extend."""

    turn: Turn
    rendered_ids_T: list[int]
    """Its request as rendered afresh."""


def same_message(a: Message, b: Message) -> bool:
    """Equal but for fields that say nothing: None, empty text, empty lists."""
    return {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def extends(messages: list[Message], turn: Turn) -> bool:
    """Whether a request is the turn's own messages, its reply verbatim, and something more."""
    before = [*turn.messages, turn.reply]
    return len(messages) > len(before) and all(
        same_message(old, new) for old, new in zip(before, messages, strict=False)
    )


async def make_prompt(render: Render, body: dict[str, Any], past: PastTurn | None) -> Prompt:
    """Render a request and join it to the turn before it."""
    rendered_T = await render(body)
    if past is None:
        return Prompt(rendered_T, rendered_T, "first")
    before_T = past.turn.prompt_ids_T + past.turn.sampled_ids_T
    if rendered_T[: len(before_T)] == before_T:
        return Prompt(rendered_T, rendered_T, "exact")
    if not extends(body["messages"], past.turn):
        return Prompt(rendered_T, rendered_T, "edited")
    if not _starts(rendered_T, past.rendered_ids_T):
        return Prompt(rendered_T, rendered_T, "template")
    spliced = await _splice(render, body, past, rendered_T)
    if isinstance(spliced, str):
        return Prompt(rendered_T, rendered_T, spliced)
    return Prompt(spliced, rendered_T, "spliced")


async def _splice(
    render: Render, body: dict[str, Any], past: PastTurn, rendered_T: list[int]
) -> list[int] | Literal["retoken", "template"]:
    """The used ids and what follows the reply, or why that cannot be told exactly.

    With an empty reply in its place, the rendering past the old prompt is the end-of-reply token
    and all that follows. It is trusted when the real rendering ends in the same ids and renders our
    reply as it would at the end of a conversation: then neither depends on the other.
    """
    messages, turn = body["messages"], past.turn
    at, start = len(turn.messages), len(past.rendered_ids_T)
    empty: Message = {"role": "assistant", "content": ""}
    blank_T = await render(body | {"messages": [*messages[:at], empty, *messages[at + 1 :]]})
    tail_T = blank_T[start:]
    if not _starts(blank_T, past.rendered_ids_T) or not tail_T:
        return "template"
    reply_end = len(rendered_T) - len(tail_T)
    if reply_end < start or rendered_T[reply_end:] != tail_T:
        return "template"
    last_T = await render(body | {"messages": messages[: at + 1]})
    if not _starts(last_T[start:], [*rendered_T[start:reply_end], tail_T[0]]):
        return "template"
    if turn.sampled_ids_T[-1:] == tail_T[:1]:
        return turn.prompt_ids_T + turn.sampled_ids_T + tail_T[1:]
    if turn.finish_reason == "length":
        return turn.prompt_ids_T + turn.sampled_ids_T + tail_T
    return "retoken"


def _starts(ids_T: list[int], prefix_T: list[int]) -> bool:
    return ids_T[: len(prefix_T)] == prefix_T
