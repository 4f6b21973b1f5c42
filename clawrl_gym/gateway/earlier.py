"""Earlier answers that a request names instead of repeating what they said.

A dialect may let a client send the id of an answer, and only what is new. Here the conversation is
made whole again from the store, so that from here on it is like any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from clawrl_gym.core.ownership import name_of, user_of
from clawrl_gym.core.types import Json, Message, Turn
from clawrl_gym.gateway.bodies.reading import ReadRequest
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store import Store


class EarlierAnswers:
    """The recorded answers of one gateway."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def conversation(
        self, read: ReadRequest, messages: list[Message], user: str
    ) -> tuple[list[Message], Json]:
        """The whole conversation of a request, and the fields that tell its session. Raises
        Refusal (400) for an answer that this user has not had."""
        if read.references:
            messages = await self._resolved(messages, read.references, user)
        if not read.continues:
            return messages, read.body
        turn = await self._turn(read.continues, user, "previous_response_id")
        named: Json = {"session_id": name_of(turn.session_id), **read.body}
        instructions, rest = _split(messages)
        return [*instructions, *_split(turn.messages)[1], turn.reply, *rest], named

    async def _resolved(
        self, messages: list[Message], references: Mapping[int, str], user: str
    ) -> list[Message]:
        """The messages with replies in place of what stood for them.

        The Vercel AI SDK refers to a reply's text and repeats its calls: they are in it already.
        """
        resolved: list[Message] = []
        for at, message in enumerate(messages):
            if at in references:
                resolved.append((await self._turn(references[at], user, "input")).reply)
            elif at - 1 not in references or not _has_only_calls_of(message, resolved[-1]):
                resolved.append(message)
        return resolved

    async def _turn(self, answer_id: str, user: str, param: str) -> Turn:
        turn = await self._store.answered_turn(answer_id)
        if turn is None or user_of(turn.session_id) != user:
            raise Refusal(
                400,
                f"{param}: got an id that ends with {answer_id[-32:]!r}, of which nothing is "
                "stored: send the conversation itself",
                "previous_response_not_found",
                param,
            )
        return turn


def _has_only_calls_of(message: Message, reply: Message) -> bool:
    """Whether a message is nothing but the calls of a reply, once more."""
    calls, repeated = (
        [call.get("id") for call in one.get("tool_calls") or []] for one in (reply, message)
    )
    return bool(calls) and calls == repeated and not message.get("content")


def _split(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Instructions, and what follows them. They hold for one answer only: the next request brings
    its own, or none."""
    end = 1 if messages and messages[0]["role"] == "system" else 0
    return messages[:end], messages[end:]
