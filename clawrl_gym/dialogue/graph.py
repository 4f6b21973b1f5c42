"""The hashes by which a conversation is known again, without keeping it.

Clients hand our replies back altered: other white space, no reasoning, arguments written as other
JSON, other call ids, None for an empty text. Messages are therefore compared by what they say.
System messages take no part: their tails change from turn to turn.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from clawrl_gym.core.pictures import pictures_of, text_of
from clawrl_gym.core.types import Message, Turn, TurnKind

_CHAIN_BYTES = 16
_MESSAGE_BYTES = 8
"""Only ever compared within one session."""
KEPT_BEFORE = 8
"""Messages, and replies, before a turn's own reply that a mark remembers."""
_THOUGHT = re.compile(r"\A\s*<think>(.*?)</think>", re.DOTALL)


def is_conversation(message: Message) -> bool:
    """Not an instruction to the model."""
    return message.get("role") not in ("system", "developer")


def said(message: Message) -> str:
    """A message's text as it is compared: reasoning left out, white space as one space."""
    text = text_of(message)
    if message.get("role") == "assistant":
        text = _THOUGHT.sub("", text)
    return " ".join(text.split())


def thought(message: Message) -> str:
    """A reply's reasoning, wherever it stands."""
    found = _THOUGHT.match(text_of(message))
    text = (message.get("reasoning_content") or "") + (found[1] if found else "")
    return " ".join(text.split())


def calls_of(message: Message) -> list[tuple[str, str]]:
    """A message's tool calls as they are compared: names, and arguments in one spelling."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or []]
    return [(str(call.get("name")), _arguments(call.get("arguments"))) for call in functions]


def same_reply(sent_back: Message, reply: Message) -> bool:
    """Whether a message is our reply as a client hands it back."""
    return digest_of(sent_back) == digest_of(reply)


def digest_of(message: Message) -> bytes:
    """Of what a message says."""
    told = [message.get("role") or "", said(message)]
    if message.get("tool_calls"):
        told += [part for call in calls_of(message) for part in call]
    told += pictures_of([message])
    return _hash("\0".join([*map(str, map(len, told)), *told]), _MESSAGE_BYTES)


def digest_of_request(body: object) -> bytes:
    """Of all that makes two requests the same."""
    return _hash(json.dumps(body, sort_keys=True), _CHAIN_BYTES)


@dataclass(frozen=True, slots=True)
class Branch:
    """A request's messages without system messages and transient blocks, and their hashes."""

    messages: list[Message]
    digests: list[bytes]
    """Of each message."""
    chains: list[bytes]
    """`chains[n]` covers the first n messages, and whose they are."""
    replies: list[int]
    """Positions of the assistant's messages."""

    @classmethod
    def of(cls, stable: Iterable[Message], user: str = "") -> Branch:
        """`user` is the person whose conversation it is, where the client says so."""
        messages = [message for message in stable if is_conversation(message)]
        digests = [digest_of(message) for message in messages]
        chains = [_hash(user, _CHAIN_BYTES)]
        for digest in digests:
            chains.append(_follow(chains[-1], digest))
        replies = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
        return cls(messages, digests, chains, replies)

    @property
    def whole(self) -> bytes:
        """Covers the whole request."""
        return self.chains[-1]

    def after(self, at: int) -> list[Message]:
        """What came back after the message at `at`: all up to the assistant's next message."""
        end = next((reply for reply in self.replies if reply > at), len(self.messages))
        return self.messages[at + 1 : end]

    def pair(self, at: int) -> bytes | None:
        """The message at `at` with the one before it; None for the first message."""
        return self._pair(self.digests[at - 1], self.digests[at]) if at > 0 else None

    def pair_with(self, reply: bytes) -> bytes | None:
        """The last message with a reply to it; None when there is no message."""
        return self._pair(self.digests[-1], reply) if self.digests else None

    def _pair(self, first: bytes, second: bytes) -> bytes:
        return _hash(self.chains[0] + first + second, _CHAIN_BYTES)

    def passing(self, at: int) -> bytes:
        """The chain of what is gone on from after the reply at `at`, shortened."""
        return self.chains[at + 1][:_MESSAGE_BYTES]

    def replies_before(self, at: int) -> list[bytes]:
        return [self.digests[reply] for reply in self.replies if reply < at]


@dataclass(frozen=True, slots=True)
class Rendering:
    """A request as the chat template rendered it, as a hash that can tell what begins with it."""

    length: int
    digest: bytes

    @classmethod
    def of(cls, ids_T: list[int]) -> Rendering:
        return cls(len(ids_T), _hash(array("i", ids_T).tobytes(), _CHAIN_BYTES))

    def begins(self, ids_T: list[int]) -> bool:
        return len(ids_T) >= self.length and Rendering.of(ids_T[: self.length]) == self


@dataclass(frozen=True, slots=True)
class TurnNode:
    """What is kept of a turn to know it again; the store keeps it beside the turn, as text."""

    turn_id: int
    kind: TurnKind
    finish_reason: str
    created_s: float
    same: bytes
    """Of the whole request, exactly."""
    request: bytes
    """Chain of the request's messages."""
    chain: bytes
    """Chain of the request's messages and the reply."""
    reply: bytes
    before: bytes
    """Hashes of the last messages of the request, oldest first."""
    replies_before: bytes
    """Hashes of the assistant's last messages in the request, oldest first."""
    passed: tuple[bytes, ...]
    """Chains of the last replies in the request, shortened: these have been gone on from."""
    pair: bytes | None
    """The request's last message and the reply."""
    rendered: Rendering

    @classmethod
    def of(cls, turn: Turn, trail: Branch, same: bytes, rendered_ids_T: list[int]) -> TurnNode:
        reply = digest_of(turn.reply)
        return cls(
            turn_id=turn.id or 0,
            kind=turn.kind,
            finish_reason=turn.finish_reason,
            created_s=turn.created_s,
            same=same,
            request=trail.whole,
            chain=_follow(trail.whole, reply),
            reply=reply,
            before=b"".join(trail.digests[-KEPT_BEFORE:]),
            replies_before=b"".join(trail.replies_before(len(trail.messages))[-KEPT_BEFORE:]),
            passed=tuple(map(trail.passing, trail.replies[-KEPT_BEFORE:])),
            pair=trail.pair_with(reply),
            rendered=Rendering.of(rendered_ids_T),
        )

    def text(self) -> str:
        """For the store."""
        hashes = (
            self.same, self.request, self.chain, self.reply, self.before, self.replies_before,
            b"".join(self.passed), self.pair or b"", self.rendered.digest,
        )  # fmt: skip
        return " ".join([*(each.hex() for each in hashes), str(self.rendered.length)])

    @classmethod
    def read(
        cls, text: str, turn_id: int, kind: TurnKind, finish_reason: str, created_s: float
    ) -> TurnNode:
        """The inverse of `text`."""
        *told, length = text.split(" ")
        hashes = [bytes.fromhex(each) for each in told]
        same, request, chain, reply, before, replies_before, passed, pair, rendered = hashes
        return cls(
            turn_id=turn_id,
            kind=kind,
            finish_reason=finish_reason,
            created_s=created_s,
            same=same,
            request=request,
            chain=chain,
            reply=reply,
            before=before,
            replies_before=replies_before,
            passed=tuple(
                passed[at : at + _MESSAGE_BYTES] for at in range(0, len(passed), _MESSAGE_BYTES)
            ),
            pair=pair or None,
            rendered=Rendering(int(length), rendered),
        )

    def likeness(self, trail: Branch, at: int) -> tuple[int, int]:
        """How many replies, and how many messages, before `at` are those before this turn's own."""
        replies = _common_end(self.replies_before, trail.replies_before(at))
        return replies, _common_end(self.before, trail.digests[:at])

    @property
    def passing(self) -> bytes:
        """What a request that goes on from the turn passes."""
        return self.chain[:_MESSAGE_BYTES]


def _common_end(own: bytes, theirs: list[bytes]) -> int:
    size = _MESSAGE_BYTES
    pairs = zip(range(len(own), 0, -size), reversed(theirs), strict=False)
    return next(
        (count for count, (end, digest) in enumerate(pairs) if own[end - size : end] != digest),
        min(len(own) // size, len(theirs)),
    )


def _arguments(told: object) -> str:
    """Arguments in one spelling; what is no JSON stays text. Numbers as JavaScript has them."""
    try:
        text = told if isinstance(told, str) else json.dumps(told or {})
        return json.dumps(json.loads(text or "{}", parse_int=float), sort_keys=True)
    except (ValueError, RecursionError):
        return str(told).strip()


def _follow(chain: bytes, digest: bytes) -> bytes:
    return _hash(chain + digest, _CHAIN_BYTES)


def _hash(told: str | bytes, size: int) -> bytes:
    raw = told if isinstance(told, bytes) else told.encode(errors="surrogatepass")
    return blake2b(raw, digest_size=size).digest()
