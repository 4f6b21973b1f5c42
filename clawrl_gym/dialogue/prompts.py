"""Prompt ids of a turn, which extend those of the turn before it whenever that can be proved.

A reply rendered again may come out as other ids than those that were sampled, and the templates of
thinking models leave earlier thoughts out: then no prompt would extend another, and what a thought
led to would be trained without it. So the ids that were used stay, thoughts included, whatever the
client or the template drops, and only what follows the reply is taken from the new rendering.
Nothing is tokenised here: every id comes from the policy's `render`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.core.types import ChatBody, Message, Turn
from clawrl_gym.dialogue.delta import shared_prefix, shared_suffix
from clawrl_gym.dialogue.graph import (
    Rendering,
    is_conversation,
    reasoning_of,
    same_reply,
    unthought,
)

Render = Callable[[ChatBody], Awaitable[list[int]]]

Fit = Literal[
    "first", "exact", "spliced", "retoken", "template", "room", "system", "transient", "reasoning",
    "edited",
]  # fmt: skip
"""How a prompt joins the turn before it. Only `exact` and `spliced` extend it:

first       there is none
exact       it extends it as rendered
spliced     it was made to
retoken     the reply ended in another token than the template writes
template    the template renders the past otherwise (other tools; thoughts, where they do not stay)
room        with its thoughts in it, a whole reply would not fit the context any more
system      the client changed its system message
transient   the client did not keep all that it had sent before the reply
reasoning   the client sent the reply back without its reasoning, which is not to stay
edited      it is another conversation, or a compacted one
"""


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """Form of the policy's earlier replies in its prompts."""

    keeps_thoughts: bool = True
    """True: as they were sampled, whatever client or template drop; else as the template writes."""
    context: int | None = None
    """Tokens of a prompt with its reply; None: no prompt is ever too long."""

    def is_too_long(self, prompt_T: list[int], max_tokens: int) -> bool:
        return self.context is not None and len(prompt_T) + max_tokens > self.context


@dataclass(frozen=True, slots=True)
class Prompt:
    """The policy's input for a turn."""

    ids_T: list[int]
    rendered_ids_T: list[int]
    """The request as freshly rendered; the same list unless spliced."""
    fit: Fit


@dataclass(frozen=True, slots=True)
class PreviousTurn:
    """A turn that a later request may extend."""

    turn: Turn
    rendering: Rendering
    """Fresh rendering of its request."""

    @property
    def ids_T(self) -> list[int]:
        """Ids of its prompt and its reply."""
        return self.turn.prompt_ids_T + self.turn.sampled_ids_T


def same_message(a: Message, b: Message) -> bool:
    """Whether two messages are equal but for empty fields: None, empty text, empty lists."""
    return {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def says_the_same(a: Message, b: Message) -> bool:
    """Whether they are equal, or one reply in two spellings, perhaps without its thoughts."""
    if a.get("role") == b.get("role") == "assistant":
        return same_reply(a, b)
    return same_message(a, b)


def extends(messages: list[Message], turn: Turn, keeps_thoughts: bool = True) -> bool:
    """Whether a request is the turn's own messages verbatim, its reply, and something more.

    The reply may have come back in another spelling: the ids that were sampled take its place.
    Where thoughts stay, the client may have dropped them; else they would return by that.
    """
    old, reply_at = turn.messages, len(turn.messages)
    if len(messages) <= reply_at + 1 or not same_reply(messages[reply_at], turn.reply):
        return False
    if keeps_thoughts:
        return all(map(says_the_same, old, messages))
    same_thoughts = reasoning_of(messages[reply_at]) == reasoning_of(turn.reply)
    return same_thoughts and all(map(same_message, old, messages))


async def make_prompt(
    render: Render,
    body: ChatBody,
    previous: PreviousTurn | None,
    rule: HistoryRule = HistoryRule(),
    max_tokens: int = 0,
) -> Prompt:
    """Render a request and join it to the turn before it; `max_tokens` is the longest reply."""
    rendered_T = await render(body)
    if previous is None:
        return Prompt(rendered_T, rendered_T, "first")
    if _begins(rendered_T, previous.ids_T):
        return Prompt(rendered_T, rendered_T, "exact")
    if not extends(body["messages"], previous.turn, rule.keeps_thoughts):
        obstacle = _obstacle(body["messages"], previous.turn, rule.keeps_thoughts)
        return Prompt(rendered_T, rendered_T, obstacle)
    follows = Continuation(render, body, previous, rendered_T)
    after_T = await follows.after_reply(rule.keeps_thoughts)
    if after_T is None:
        return Prompt(rendered_T, rendered_T, "template")
    joined_T = _join(previous, after_T)
    if joined_T is None:
        return Prompt(rendered_T, rendered_T, "retoken")
    if rule.is_too_long(joined_T, max_tokens) and not rule.is_too_long(rendered_T, max_tokens):
        return Prompt(rendered_T, rendered_T, "room")
    return Prompt(joined_T, rendered_T, "spliced")


def without_thoughts(messages: list[Message]) -> list[Message]:
    """The conversation without any thoughts."""
    return [_without_thoughts(message) for message in messages]


def insert_addition(used_T: list[int], plain_T: list[int], extended_T: list[int]) -> list[int]:
    """Insert into the used ids whatever tells `extended_T` from `plain_T`.

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


# What follows a reply.

_PROBES = ("a", "b")
"""Two replies that no template tells apart but by writing them."""


_HEADER = 3
"""Ids before a reply by which its position is found."""
_OPENING = 6
"""Ids by which a template opens or skips a thought, at most."""
_RESUMES = 6
"""Equal ids by which a rendering is found to continue after a thought."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """A request that continues a turn: the part of its rendering after the turn's reply.

    Two other replies in its place show where a reply begins and ends, since all else is common to
    their renderings. What follows is trusted when the real rendering ends in the same ids (then it
    does not depend on the reply), and when the past before the reply is rendered as it was, or
    would be but for thoughts in it.
    """

    render: Render
    body: ChatBody
    previous: PreviousTurn
    rendered_T: list[int]
    """Rendering of the request."""

    async def after_reply(self, keeps_thoughts: bool) -> list[int] | None:
        """The end-of-reply token and all that follows; None when the past is rendered otherwise."""
        after_T = None
        if self.previous.rendering.begins(self.rendered_T):
            after_T = await self._after_same_past(keeps_thoughts)
        if after_T is None and keeps_thoughts:
            after_T = await self._after_thoughtless_past()
        return after_T

    async def _after_same_past(self, keeps_thoughts: bool) -> list[int] | None:
        """The ids after the reply; unless thoughts stay, it must be rendered as at the end."""
        past = self.body["messages"][: self._reply_at]
        whole = [] if keeps_thoughts else [self.body["messages"][: self._reply_at + 1]]
        first_T, second_T, *ends = await self._render(*self._probed(past), *whole)
        start, tail_T = _around(first_T, second_T)
        if start < self.previous.rendering.length or not self._ends_in(tail_T):
            return None
        before_T = self.rendered_T[: len(self.rendered_T) - len(tail_T)]
        same_end = all(_begins(last_T, [*before_T, tail_T[0]]) for last_T in ends)
        return tail_T if same_end else None

    async def _after_thoughtless_past(self) -> list[int] | None:
        """The ids after the reply, where the tools and all else before it are rendered as they
        were.

        Some templates write an empty thought where there is none, and leave that out later.
        """
        old = self.previous.turn.messages
        plain = without_thoughts(old)
        old_T, plain_T, first_T, second_T = await self._render(old, plain, *self._probed(plain))
        start, tail_T = _around(first_T, second_T)
        is_same = self.previous.rendering == Rendering.of(old_T)
        stays = is_same and _lacks_only_thoughts(first_T[:start], plain_T)
        return tail_T if stays and self._ends_in(tail_T) else None

    @property
    def _reply_at(self) -> int:
        return len(self.previous.turn.messages)

    def _probed(self, past: list[Message]) -> list[list[Message]]:
        """The request with other replies after that past."""
        later = self.body["messages"][self._reply_at + 1 :]
        return [[*past, {"role": "assistant", "content": text}, *later] for text in _PROBES]

    def _ends_in(self, tail_T: list[int]) -> bool:
        return bool(tail_T) and self.rendered_T[-len(tail_T) :] == tail_T

    async def _render(self, *chats: list[Message]) -> list[list[int]]:
        """Renderings of these messages, each distinct one once."""
        distinct = [chat for at, chat in enumerate(chats) if chat not in chats[:at]]
        rendered = await asyncio.gather(
            *(self.render({**self.body, "messages": chat}) for chat in distinct)
        )
        return [rendered[distinct.index(chat)] for chat in chats]


def _around(first_T: list[int], second_T: list[int]) -> tuple[int, list[int]]:
    """Position at which two renderings begin to differ, and their common rest after that."""
    start = shared_prefix(first_T, second_T)
    length = shared_suffix(first_T[start:], second_T[start:])
    return start, first_T[len(first_T) - length :]


def _lacks_only_thoughts(past_T: list[int], full_T: list[int]) -> bool:
    """Whether a past, up to the place of a reply, is a fuller prompt less what stands directly
    after the same ids as that reply would: a thought does. Both may end in an opening of their own.
    """
    header_T = past_T[-_HEADER:]
    at = 0
    for position, token in enumerate(past_T):
        if at < len(full_T) and full_T[at] == token:
            at += 1
            continue
        if max(len(full_T) - at, len(past_T) - position) <= _OPENING:
            return True
        if full_T[max(0, at - _HEADER) : at] != header_T:
            return False
        next_T = past_T[position : position + _RESUMES]
        ends = range(at + 1, len(full_T) - len(next_T) + 1)
        resumed = next((e for e in ends if full_T[e : e + len(next_T)] == next_T), None)
        if resumed is None:
            return False
        at = resumed + 1
    return True


def _join(previous: PreviousTurn, after_T: list[int]) -> list[int] | None:
    """The used ids and what follows the reply; None when it ended in another token."""
    turn = previous.turn
    if turn.sampled_ids_T[-1:] == after_T[:1]:
        return previous.ids_T + after_T[1:]
    return previous.ids_T + after_T if turn.finish_reason == "length" else None


def _without_thoughts(message: Message) -> Message:
    if message.get("role") != "assistant":
        return message
    plain = message.copy()
    plain.pop("reasoning_content", None)
    content = plain.get("content")
    if isinstance(content, str):
        plain["content"] = unthought(content)
    return plain


def _obstacle(messages: list[Message], turn: Turn, keeps_thoughts: bool) -> Fit:
    """Why a request does not extend a turn."""
    same = says_the_same if keeps_thoughts else same_message
    old = [message for message in turn.messages if is_conversation(message)]
    new = [message for message in messages if is_conversation(message)]
    reply_at = next((at for at, m in enumerate(new) if same_reply(m, turn.reply)), None)
    if reply_at is None or reply_at > len(old):
        return "edited"
    if not all(map(same, old[:reply_at], new)):
        return "edited"
    if reply_at < len(old):
        return "transient"
    if not all(map(same, turn.messages, messages)):
        return "system"
    if keeps_thoughts or reasoning_of(turn.reply) == reasoning_of(new[reply_at]):
        return "edited"
    return "reasoning"


def _begins(ids_T: list[int], prefix_T: list[int]) -> bool:
    """Whether the ids begin with the prefix."""
    return ids_T[: len(prefix_T)] == prefix_T
