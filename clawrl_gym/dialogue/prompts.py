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
from clawrl_gym.dialogue.delta import shared_prefix, shared_suffix
from clawrl_gym.dialogue.graph import Rendering, is_conversation, reasoning_of, same_reply

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
    rendering: Rendering
    """Of its request, afresh."""

    @property
    def ids_T(self) -> list[int]:
        """Its prompt and what was sampled."""
        return self.turn.prompt_ids_T + self.turn.sampled_ids_T


def same_message(a: Message, b: Message) -> bool:
    """Equal but for fields that say nothing: None, empty text, empty lists."""
    return {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def extends(messages: list[Message], turn: Turn) -> bool:
    """Whether a request is the turn's own messages verbatim, its reply, and something more.

    The reply may have come back in another spelling: the ids that were sampled take its place. It
    may not have lost its reasoning, which would then return by that.
    """
    reply_at = len(turn.messages)
    return (
        len(messages) > reply_at + 1
        and all(map(same_message, turn.messages, messages))
        and same_reply(messages[reply_at], turn.reply)
        and reasoning_of(messages[reply_at]) == reasoning_of(turn.reply)
    )


async def make_prompt(render: Render, body: ChatBody, previous: PreviousTurn | None) -> Prompt:
    """Render a request and join it to the turn before it."""
    rendered_T = await render(body)
    if previous is None:
        return Prompt(rendered_T, rendered_T, "first")
    if _begins(rendered_T, previous.ids_T):
        return Prompt(rendered_T, rendered_T, "exact")
    if not extends(body["messages"], previous.turn):
        return Prompt(rendered_T, rendered_T, _obstacle(body["messages"], previous.turn))
    if not previous.rendering.begins(rendered_T):
        return Prompt(rendered_T, rendered_T, "template")
    spliced_T = await _splice(render, body, previous, rendered_T)
    if isinstance(spliced_T, str):
        return Prompt(rendered_T, rendered_T, spliced_T)
    return Prompt(spliced_T, rendered_T, "spliced")


def insert_addition(used_T: list[int], plain_T: list[int], extended_T: list[int]) -> list[int]:
    """The ids that were used, with what tells `extended_T` from `plain_T` put in.

    Both are renderings of the same request, one with words added. Where the used ids and the plain
    rendering agree neither before nor after the place of the addition, it cannot be found in the
    used ones: then the fresh rendering itself.
    """
    start = shared_prefix(plain_T, extended_T)
    after = shared_suffix(plain_T[start:], extended_T[start:])
    added_T = extended_T[start : len(extended_T) - after]
    before_T, end_T = plain_T[: len(plain_T) - after], plain_T[start:]
    if _begins(used_T, before_T):
        return used_T[:start] + added_T + used_T[len(before_T) :]
    if len(used_T) >= len(end_T) and used_T[len(used_T) - len(end_T) :] == end_T:
        return used_T[: len(used_T) - len(end_T)] + extended_T[start:]
    return extended_T


async def _splice(
    render: Render, body: ChatBody, previous: PreviousTurn, rendered_T: list[int]
) -> list[int] | Literal["retoken", "template"]:
    """The used ids and what follows the reply, or why that has no exact place.

    With an empty reply in its place, the rendering past the old prompt is the end-of-reply token
    and all that follows. It is trusted when the real rendering ends in the same ids and renders our
    reply as it would at the end of a conversation: then neither depends on the other.
    """
    messages, turn = body["messages"], previous.turn
    reply_at, start = len(turn.messages), previous.rendering.length
    empty: Message = {"role": "assistant", "content": ""}
    with_empty = [*messages[:reply_at], empty, *messages[reply_at + 1 :]]
    blank_T = await render({**body, "messages": with_empty})
    tail_T = blank_T[start:]
    if not previous.rendering.begins(blank_T) or not tail_T:
        return "template"
    reply_end = len(rendered_T) - len(tail_T)
    if reply_end < start or rendered_T[reply_end:] != tail_T:
        return "template"
    last_T = await render({**body, "messages": messages[: reply_at + 1]})
    if not _begins(last_T[start:], [*rendered_T[start:reply_end], tail_T[0]]):
        return "template"
    if turn.sampled_ids_T[-1:] == tail_T[:1]:
        return previous.ids_T + tail_T[1:]
    if turn.finish_reason == "length":
        return previous.ids_T + tail_T
    return "retoken"


def _obstacle(messages: list[Message], turn: Turn) -> Fit:
    """Why a request does not extend a turn."""
    old = [message for message in turn.messages if is_conversation(message)]
    new = [message for message in messages if is_conversation(message)]
    reply_at = next((at for at, m in enumerate(new) if same_reply(m, turn.reply)), None)
    if reply_at is None or reply_at > len(old):
        return "edited"
    if not all(map(same_message, old[:reply_at], new)):
        return "edited"
    if reply_at < len(old):
        return "transient"
    if not all(map(same_message, turn.messages, messages)):
        return "system"
    return "edited" if reasoning_of(turn.reply) == reasoning_of(new[reply_at]) else "reasoning"


def _begins(ids_T: list[int], prefix_T: list[int]) -> bool:
    """Whether the ids begin with the prefix."""
    return ids_T[: len(prefix_T)] == prefix_T
