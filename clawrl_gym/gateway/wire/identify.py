"""The session of a request, and whether it is a turn of the conversation.

Session, in this order: the path, the header `X-Session-Id`, a header in which a client names it
(`session_headers` of `live.clients`), the body (`session_id`, or `session_id` in its `metadata`), a
line that the client writes into its first message (`live.runtime_session`), the history, a fresh
id. OpenAI's `user` names a person, not a conversation: it never is a session
id, but histories of different users are never matched.

By history: a request belongs to the session that made its last known reply after the same messages.
A request without any reply is new, whatever it says, unless the client says that it is a retry.
Where several sessions fit, because two people had the same conversation so far: the one that made
the same request before, else one whose reply waits for an answer, else the last used.

Kind: only main turns get next states, verdicts and gradients; side turns are what a client requests
for itself, and all of an evaluation (the header `X-Clawrl-Evaluation`), which is in a session of
its own unless it names one. What the client says comes first (the header `X-Turn-Type`, then
`turn_type` in the body: `main`, and everything else is side); then the rules of `live.kinds` and
`live.clients`, of which the first that holds names the turn; then a header that only a client's
subagents send, or in which it says what a request is for; then it is main.

What a client adds to a conversation for one request only, and does not keep, is left out where
conversations are matched and from next states. What is recorded of a request, and what the policy
sees, stays as it was sent.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast
from uuid import uuid4

from clawrl_gym.config import KindRule, LiveConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.ownership import OWNER, stored_id, user_of
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ContentPart, Json, Message, TurnKind
from clawrl_gym.dialogue.graph import Branch, SessionIndex, TurnNode, request_digest
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import session_id_of

MatchedBy = Literal["path", "header", "body", "runtime", "history", "new"]
EVALUATION = "evaluation"
"""The rule of a turn that measures the policy."""
_TRUE = ("1", "true", "yes", "on")
_EVALUATES = (*_TRUE, "t", "y")
_NOT_COMPARED = ("messages", "stream", "stream_options", "session_done")
"""Fields that two requests for the same reply may differ in, or that are compared apart."""
WINDOW = 16_384
"""Characters of a message's beginning, and of its end, in which expressions are looked for."""
_LEFT_OUT = "\n\0\n"
"""Stands for the middle of a long text: no expression continues behind it."""
_GAP = ".*?"
"""In the pattern of a transient block: all text between its two ends."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a request."""

    user: str = OWNER
    """User whose key it brought."""
    path_id: str | None = None
    """The session that its path names."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def lowercase_headers(self) -> dict[str, str]:
        """Headers by their names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of a request, before its session is known."""

    branch: Branch = field(repr=False)
    kind: TurnKind
    rule: str
    exact_request: bytes = field(repr=False)
    """Digest of the whole request."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The kind and session of a request."""

    session_id: str
    matched_by: MatchedBy
    kind: TurnKind
    rule: str
    """The reason for the kind: `header`, `body`, a rule's name, or nothing."""
    ends_session: bool
    """The client says that its session is over after this turn."""
    is_retry: bool | None
    """The client says that this is a retry, or that it is none; None when it says nothing."""
    branch: Branch = field(repr=False)
    exact_request: bytes = field(repr=False)
    """Digest of the whole request."""

    @property
    def is_explicit(self) -> bool:
        """The client itself named the session."""
        return self.matched_by in ("path", "header", "body")


class RequestRules:
    """Rules for a single request. They remember nothing, so any process can apply them."""

    def __init__(self, config: LiveConfig) -> None:
        """Raises ConfigError for rules and patterns that cannot be used."""
        rules = config.rules
        self.transient = TransientBlocks(rules.transient)
        self._kinds = KindRules(rules.kinds)
        self._subagent_headers = {name.lower() for name in rules.subagent_headers}
        self._kind_headers = [name.lower() for name in rules.kind_headers]

    def read(
        self, messages: list[Message], body: Json, user: str, headers: Mapping[str, str]
    ) -> Reading:
        """`user`: whose key it brought; `headers`: in lower case."""
        lasting = self.transient.removed_from(messages)
        kind, rule = self._kinds.kind_of(lasting, body, headers.get("x-turn-type"))
        if not rule:
            kind, rule = self._kind_by_headers(headers)
        if headers.get("x-clawrl-evaluation", "").strip().lower() in _EVALUATES:
            kind, rule = "side", EVALUATION
        compared = {name: body[name] for name in body if name not in _NOT_COMPARED}
        return Reading(
            branch=Branch.of(lasting, _whose(user, body.get("user"))),
            kind=kind,
            rule=rule,
            exact_request=request_digest(kind, messages, compared),
        )

    def _kind_by_headers(self, headers: Mapping[str, str]) -> tuple[TurnKind, str]:
        """What a client's own headers say of a turn that no rule knows."""
        if not self._subagent_headers.isdisjoint(headers):
            return "side", "subagent"
        said = [headers[name] for name in self._kind_headers if headers.get(name, "").strip()]
        if any(_kind_by_name(name) == "side" for name in said):
            return "side", "header"
        return "main", ""


class Identifier:
    """Tells sessions apart; remembers hashes of conversations, never their words."""

    def __init__(self, config: LiveConfig) -> None:
        """Raises ConfigError for rules and patterns that cannot be used."""
        rules = config.rules
        self.rules = RequestRules(config)
        self.transient = self.rules.transient
        self._session_headers = tuple(name.lower() for name in rules.session_headers)
        key = "live.runtime_session"
        self._runtime = [_compiled(pattern, key) for pattern in rules.runtime_session]
        if any(pattern.groups == 0 for pattern in self._runtime):
            raise ConfigError(f"{key}: got a pattern without a group, expected the id in one")
        self._index = SessionIndex()

    def identify(
        self, messages: list[Message], body: Json, origin: Origin, reading: Reading | None = None
    ) -> Identity:
        """`reading`: of this request, where it was read before.

        Raises Refusal (400) when the client names a session that cannot be one.
        """
        headers = origin.lowercase_headers
        if reading is None:
            reading = self.rules.read(messages, body, origin.user, headers)
        branch, kind = reading.branch, reading.kind
        is_retry = _is_retry(headers)
        named = _explicit_id(
            origin.path_id, headers, body, self._session_headers
        ) or self._by_runtime_line(branch)
        if named is not None:
            session_id, matched_by = stored_id(origin.user, named[0]), named[1]
        elif reading.rule == EVALUATION:
            session_id, matched_by = stored_id(origin.user, uuid4().hex), "new"
        else:
            session_id, matched_by = self._by_history(branch, kind, is_retry, origin.user)
        return Identity(
            session_id=session_id,
            matched_by=matched_by,
            kind=kind,
            rule=reading.rule,
            ends_session=_is_true(headers.get("x-session-done"))
            or _is_true(body.get("session_done")),
            is_retry=is_retry,
            branch=branch,
            exact_request=reading.exact_request,
        )

    def add_turn(self, session_id: str, turn: TurnNode, is_waiting: bool = True) -> None:
        """A main turn was recorded; a later request without any id may continue it."""
        self._index.add_turn(session_id, turn, is_waiting)

    def set_answered(self, session_id: str, turn: TurnNode) -> None:
        """A turn has got its next state."""
        self._index.set_answered(session_id, turn)

    def forget(self, session_id: str) -> None:
        self._index.forget(session_id)

    def _by_runtime_line(self, branch: Branch) -> tuple[str, MatchedBy] | None:
        """The id in a line of the first message; later ones may quote anybody's."""
        if not branch.messages or branch.messages[0].get("role") != "user":
            return None
        text = searched(text_of(branch.messages[0]))
        for pattern in self._runtime:
            line = pattern.search(text)
            session_id = _valid_id(line[1]) if line is not None else None
            if session_id is not None:
                return session_id, "runtime"
        return None

    def _by_history(
        self, branch: Branch, kind: TurnKind, is_retry: bool | None, user: str
    ) -> tuple[str, MatchedBy]:
        session_id = self._index.find(branch, claims=kind == "main", is_retry=bool(is_retry))
        if session_id is not None and user_of(session_id) == user:
            return session_id, "history"
        fresh_id = stored_id(user, uuid4().hex)
        if kind == "main":
            self._index.add_request(fresh_id, branch)
        return fresh_id, "new"


def searched(text: str) -> str:
    """The text that expressions are matched in: of a long one its beginning and its end.

    Clients write their own words at either end of a message; the text between is what people paste,
    and costs as much as it is long.
    """
    if len(text) <= 2 * WINDOW:
        return text
    return f"{text[:WINDOW]}{_LEFT_OUT}{text[-WINDOW:]}"


def _whose(user: str, said: object) -> str:
    """Owner of a conversation: the user by their key, and the client's own user besides."""
    person = said if isinstance(said, str) else ""
    return person if user == OWNER else f"{user}\0{person}"


def _explicit_id(
    path_id: str | None, headers: Mapping[str, str], body: Json, of_clients: Sequence[str]
) -> tuple[str, MatchedBy] | None:
    """The id that the client names. One in `metadata`, or in a header that is not ours
    (`of_clients`), may be meant for somebody else: what cannot be an id is none."""
    in_header = headers.get("x-session-id", "").strip()
    in_body = body.get("session_id")
    if path_id is not None:
        return session_id_of(path_id), "path"
    if in_header:
        return session_id_of(in_header), "header"
    named = (_valid_id(headers.get(name, "").strip()) for name in of_clients)
    session_id = next(filter(None, named), None)
    if session_id is not None:
        return session_id, "header"
    if isinstance(in_body, str | int) and in_body != "":
        return session_id_of(str(in_body)), "body"
    metadata = body.get("metadata")
    session_id = _valid_id(metadata.get("session_id")) if isinstance(metadata, dict) else None
    return None if session_id is None else (session_id, "body")


def _valid_id(text: object) -> str | None:
    try:
        return session_id_of(text) if isinstance(text, str) else None
    except Refusal:
        return None


def _is_retry(headers: Mapping[str, str]) -> bool | None:
    count = headers.get("x-stainless-retry-count", "").strip()
    return int(count) > 0 if re.fullmatch(r"[0-9]{1,9}", count) else None


def _is_true(flag: object) -> bool:
    return str(flag).strip().lower() in _TRUE


# Main or side.


class KindRules:
    """The rules of `live.kinds`, compiled."""

    def __init__(self, rules: Sequence[KindRule] = ()) -> None:
        """Raises ConfigError for a rule that would hold for all or has a bad expression."""
        self._rules = [_CompiledRule.of(rule) for rule in rules]

    def kind_of(
        self, messages: list[Message], body: Json, header: str | None
    ) -> tuple[TurnKind, str]:
        """A turn's kind and what decided it: `header`, `body`, a rule's name, or nothing.

        `messages` are without transient blocks; `header` is the value of `X-Turn-Type`.
        """
        if header is not None and header.strip():
            return _kind_by_name(header), "header"
        in_body = body.get("turn_type")
        if isinstance(in_body, str) and in_body.strip():
            return _kind_by_name(in_body), "body"
        features = _Features.of(messages, body)
        rule = next((rule for rule in self._rules if rule.holds(features)), None)
        return ("main", "") if rule is None else ("side", rule.name)


@dataclass(frozen=True, slots=True)
class _Features:
    """The features of a request that rules look at."""

    texts: dict[str, str]
    """Texts by the name of the rule's pattern: `system`, `first_user`, `last_user`."""
    max_tokens: int | None
    has_tools: bool

    @classmethod
    def of(cls, messages: list[Message], body: Json) -> _Features:
        by_role: dict[str, list[str]] = {"system": [], "user": []}
        for message in messages:
            by_role.setdefault(message.get("role", ""), []).append(text_of(message))
        users = by_role["user"] or [""]
        system = "\n".join(by_role["system"])
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
        return cls(
            texts={
                "system": searched(system),
                "first_user": searched(users[0]),
                "last_user": searched(users[-1]),
            },
            max_tokens=next((limit for limit in limits if isinstance(limit, int)), None),
            has_tools=bool(body.get("tools")),
        )


@dataclass(frozen=True, slots=True)
class _CompiledRule:
    name: str
    patterns: list[tuple[str, re.Pattern[str]]]
    """Patterns by the name of the text in `_Features`."""
    max_tokens: int | None
    without_tools: bool | None

    @classmethod
    def of(cls, rule: KindRule) -> _CompiledRule:
        key = f"live.kinds: {rule.name}"
        expressions = {
            "system": rule.system, "first_user": rule.first_user, "last_user": rule.last_user,
        }  # fmt: skip
        patterns = [
            (name, _compiled(expression, f"{key}.{name}"))
            for name, expression in expressions.items()
            if expression is not None
        ]
        if not patterns and rule.max_tokens_at_most is None and rule.without_tools is None:
            raise ConfigError(f"{key}: got no condition, expected one: it would hold for all turns")
        return cls(rule.name, patterns, rule.max_tokens_at_most, rule.without_tools)

    def holds(self, features: _Features) -> bool:
        if self.without_tools is not None and self.without_tools == features.has_tools:
            return False
        limit = features.max_tokens
        if self.max_tokens is not None and (limit is None or limit > self.max_tokens):
            return False
        return all(pattern.search(features.texts[name]) for name, pattern in self.patterns)


def _kind_by_name(name: str) -> TurnKind:
    return "main" if name.strip().lower() == "main" else "side"


# Transient blocks.


class TransientBlocks:
    """The blocks of `live.transient`.

    A pattern is a block's beginning, `.*?` and its end, or one expression without `.*?`. The ends
    are searched one after the other, so that a hostile text costs no more than its length. A block
    begins within `WINDOW` of its message's beginning or end, however long it is.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        """Raises ConfigError for a pattern that is not a regular expression."""
        self._blocks = [_block(pattern) for pattern in patterns]

    def removed_from(self, messages: list[Message]) -> list[Message]:
        """The messages without transient blocks; one that held nothing else is gone.

        Blocks are searched in user messages only: a tool result or a reply that quotes one is what
        it is. A block whose end is missing stays.
        """
        lasting = map(self._removed_from_message, messages)
        return [message for message in lasting if message is not None]

    def _removed_from_message(self, message: Message) -> Message | None:
        content = message.get("content")
        if message.get("role") != "user" or not content:
            return message
        if isinstance(content, str):
            text = self._removed_from_text(content)
            if text is content:
                return message
            return {**message, "content": text} if text else None
        parts = self._removed_from_parts(content)
        if parts is content:
            return message
        return {**message, "content": parts} if parts else None

    def _removed_from_text(self, text: str) -> str:
        """`text` itself when it holds no block."""
        rest = text
        for begin, end in self._blocks:
            rest = _without(rest, begin, end)
        return text if rest is text else rest.strip()

    def _removed_from_parts(self, parts: list[ContentPart]) -> list[ContentPart]:
        """The parts themselves when they hold no block; a text that was nothing else is gone."""
        lasting: list[ContentPart] = []
        for part in parts:
            text = str(part.get("text") or "")
            rest = self._removed_from_text(text)
            if rest is text:
                lasting.append(part)
            elif rest:
                lasting.append(cast(ContentPart, {**part, "text": rest}))
        is_same = len(lasting) == len(parts) and all(map(operator.is_, lasting, parts))
        return parts if is_same else lasting


def _compiled(pattern: str, key: str) -> re.Pattern[str]:
    """Raises ConfigError naming the configuration's key."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{key}: got {pattern!r}, expected a regular expression ({error})"
        ) from None


def _block(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """A block's beginning, and its end where the pattern has two."""
    begin, gap, end = pattern.partition(_GAP)
    if "" in (begin, end if gap else begin):
        raise ConfigError(
            f"live.transient: got {pattern!r}, expected a beginning and an end around '{_GAP}'"
        )
    key = "live.transient"
    return _compiled(begin, key), _compiled(end, key) if gap else None


def _without(text: str, begin: re.Pattern[str], end: re.Pattern[str] | None) -> str:
    """`text` itself when it holds no block."""
    rest: list[str] = []
    position = 0
    while (first := _beginning(text, begin, position)) is not None:
        last = first if end is None else end.search(text, first.end())
        if last is None or last.end() == first.start():
            break
        rest.append(text[position : first.start()])
        position = last.end()
    return "".join([*rest, text[position:]]) if position else text


def _beginning(text: str, begin: re.Pattern[str], position: int) -> re.Match[str] | None:
    """The first beginning of a block from a position on, in the windows at the text's ends."""
    tail = len(text) - WINDOW
    if tail <= WINDOW or position >= tail:
        return begin.search(text, position)
    head = begin.search(text, position, WINDOW) if position < WINDOW else None
    return head or begin.search(text, tail)
