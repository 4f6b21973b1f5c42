"""Prompt ids of a turn, such that they extend the turn before it whenever that can be proved.

A reply rendered again may come out as other ids than those that were sampled. Where the chat
template only appends, the ids that were used stay and only what follows the reply is taken from
the new rendering. Nothing is tokenised here: every id comes from the policy's `render`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.core.types import ChatBody, Message, Turn
from clawrl_gym.dialogue.graph import Rendering, is_conversation, same_reply, thought

Render = Callable[[ChatBody], Awaitable[list[int]]]

Fit = Literal[
    "first", "exact", "spliced", "retoken", "template", "system", "transient", "reasoning", "edited"
]
"""How a prompt joins the turn before it. Only `exact` and `spliced` extend it:

first       there is none
exact       it extends it as rendered
spliced     it was made to
retoken     the reply ended in another token than the template writes
template    the template renders the past otherwise (other tools, hidden reasoning)
system      the client changed its system message
transient   the client did not keep all that it had sent before the reply
reasoning   the client sent the reply back without its reasoning
edited      it is another conversation, or a compacted one
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the policy gets."""

    ids_T: list[int]
    rendered_ids_T: list[int]
    """The request as rendered afresh; the same list unless spliced."""
    fit: Fit


@dataclass(frozen=True, slots=True)
class PreviousTurn:
    """A turn that a later request may extend."""

    turn: Turn
    rendered: Rendering
    """Its request as rendered afresh."""


def same_message(a: Message, b: Message) -> bool:
    """Equal but for fields that say nothing: None, empty text, empty lists."""
    return {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def extends(messages: list[Message], turn: Turn) -> bool:
    """Whether a request is the turn's own messages verbatim, its reply, and something more.

    The reply may have come back in another spelling: the ids that were sampled take its place. It
    may not have lost its reasoning, which would then return by that.
    """
    at = len(turn.messages)
    return (
        len(messages) > at + 1
        and all(map(same_message, turn.messages, messages))
        and same_reply(messages[at], turn.reply)
        and thought(messages[at]) == thought(turn.reply)
    )


async def make_prompt(render: Render, body: ChatBody, past: PreviousTurn | None) -> Prompt:
    """Render a request and join it to the turn before it."""
    rendered_T = await render(body)
    if past is None:
        return Prompt(rendered_T, rendered_T, "first")
    before_T = past.turn.prompt_ids_T + past.turn.sampled_ids_T
    if rendered_T[: len(before_T)] == before_T:
        return Prompt(rendered_T, rendered_T, "exact")
    if not extends(body["messages"], past.turn):
        return Prompt(rendered_T, rendered_T, _why_not(body["messages"], past.turn))
    if not past.rendered.begins(rendered_T):
        return Prompt(rendered_T, rendered_T, "template")
    spliced = await _splice(render, body, past, rendered_T)
    if isinstance(spliced, str):
        return Prompt(rendered_T, rendered_T, spliced)
    return Prompt(spliced, rendered_T, "spliced")


async def _splice(
    render: Render, body: ChatBody, past: PreviousTurn, rendered_T: list[int]
) -> list[int] | Literal["retoken", "template"]:
    """The used ids and what follows the reply, or why that cannot be told exactly.

    With an empty reply in its place, the rendering past the old prompt is the end-of-reply token
    and all that follows. It is trusted when the real rendering ends in the same ids and renders our
    reply as it would at the end of a conversation: then neither depends on the other.
    """
    messages, turn = body["messages"], past.turn
    at, start = len(turn.messages), past.rendered.length
    empty: Message = {"role": "assistant", "content": ""}
    blank_T = await render({**body, "messages": [*messages[:at], empty, *messages[at + 1 :]]})
    tail_T = blank_T[start:]
    if not past.rendered.begins(blank_T) or not tail_T:
        return "template"
    reply_end = len(rendered_T) - len(tail_T)
    if reply_end < start or rendered_T[reply_end:] != tail_T:
        return "template"
    last_T = await render({**body, "messages": messages[: at + 1]})
    if not _starts(last_T[start:], [*rendered_T[start:reply_end], tail_T[0]]):
        return "template"
    if turn.sampled_ids_T[-1:] == tail_T[:1]:
        return turn.prompt_ids_T + turn.sampled_ids_T + tail_T[1:]
    if turn.finish_reason == "length":
        return turn.prompt_ids_T + turn.sampled_ids_T + tail_T
    return "retoken"


def _why_not(messages: list[Message], turn: Turn) -> Fit:
    """Why a request does not extend a turn."""
    old = [message for message in turn.messages if is_conversation(message)]
    new = [message for message in messages if is_conversation(message)]
    at = next((at for at, message in enumerate(new) if same_reply(message, turn.reply)), None)
    if at is None or at > len(old) or not all(map(same_message, old[:at], new)):
        return "edited"
    if at < len(old):
        return "transient"
    if not all(map(same_message, turn.messages, messages)):
        return "system"
    return "edited" if thought(turn.reply) == thought(new[at]) else "reasoning"


def _starts(ids_T: list[int], prefix_T: list[int]) -> bool:
    return ids_T[: len(prefix_T)] == prefix_T
