"""Conversations as a graph: messages with parents, the turns that made some of them, the sessions
that hold them. Hashes only: a conversation is known again without being kept.

A node is a conversation up to one message; its hash covers its parent's and what the message says.
A request is a branch, from the first message to its last. A turn stands at two nodes: that of its
request and, one message on, that of its reply. A later request that runs through the latter goes on
from the turn, however often the same words were said elsewhere.

Clients hand our replies back altered: other white space, no reasoning, arguments written as other
JSON, other call ids, calls as text, None for an empty text. Messages are therefore compared by what
they say. System messages take no part: their tails change from turn to turn.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from clawrl_gym.core.pictures import pictures_of, text_of
from clawrl_gym.core.types import INTERRUPTED, Json, Message, Turn, TurnKind
from clawrl_gym.dialogue.call_failures import may_be_dropped
from clawrl_gym.dialogue.written_calls import with_calls

MAX_TURNS = 256
"""Newest turns of a session that a request may follow. A node is half a kilobyte; a conversation
whose client has gone back further than this goes on as one that was edited."""
MAX_KEYS = 262_144
_INDEXED_TURNS = 32
"""Newest turns of a session that a request without its id may continue."""
_NODE_BYTES = 16
_MESSAGE_BYTES = 8
"""Bytes of a digest that is only compared within one session."""
_RECENT = 8
"""Messages, and replies, before a turn's own reply that its node remembers."""
_MOST_LINES = 64
"""Last lines of a merged message at which another one may begin."""
_LONGEST_MERGED = 20_000
"""Characters of a message that is looked through for one that was merged into it."""
_DROPPED = "dropped"
_SLICE = 2**16
"""Characters of a text that are split at once."""
_in_order = json.JSONEncoder(sort_keys=True).encode
_THINKING = re.compile(r"\A(?:\s*<think>)?(.*?)</think>", re.DOTALL)
"""A thought; some templates write the opening tag themselves, before the reply."""


# What a message says.


def is_conversation(message: Message) -> bool:
    """Whether it is not an instruction to the model."""
    return message.get("role") not in ("system", "developer")


def plain_text(message: Message) -> str:
    """A message's text as it is compared: reasoning left out, white space as one space."""
    text = text_of(message)
    if message.get("role") == "assistant":
        text = unthought(text)
    return _one_spaced(text)


def _one_spaced(text: str) -> str:
    """The text with each white space as one space, none at the ends. A long text is split slice by
    slice: no step keeps other threads waiting for long."""
    if len(text) <= _SLICE:
        return " ".join(text.split())
    pieces: list[str] = []
    is_apart = False
    for start in range(0, len(text), _SLICE):
        piece = text[start : start + _SLICE]
        words = " ".join(piece.split())
        is_apart = is_apart or piece[0].isspace()
        if words:
            pieces.append(f" {words}" if is_apart and pieces else words)
            is_apart = False
        is_apart = is_apart or piece[-1].isspace()
    return "".join(pieces)


def unthought(reply: str) -> str:
    """A reply's text without the thoughts before it."""
    return _THINKING.sub("", reply)


def reasoning_of(message: Message) -> str:
    """A reply's reasoning, from any of its fields."""
    thinking = _THINKING.match(text_of(message))
    text = (message.get("reasoning_content") or "") + (thinking[1] if thinking else "")
    return " ".join(text.split())


def same_reply(returned: Message, reply: Message) -> bool:
    """Whether a message is our reply as a client hands it back."""
    return returned == reply or message_digest(returned) == message_digest(reply)


def is_part_of(returned: Message, reply: Message) -> bool:
    """Whether a message is the beginning of a reply, which a client keeps of a broken one."""
    part = plain_text(returned)
    return bool(part) and not returned.get("tool_calls") and plain_text(reply).startswith(part)


def message_digest(message: Message) -> bytes:
    """Digest of a message's meaning."""
    message = with_calls(message)
    parts = [message.get("role") or "", plain_text(message)]
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        parts += [str(function.get("name")), _plain_arguments(function.get("arguments"))]
    parts += pictures_of([message])
    return _hash("\0".join([*map(str, map(len, parts)), *parts]), _MESSAGE_BYTES)


def request_digest(kind: TurnKind, messages: Iterable[Message], fields: Json) -> bytes:
    """Digest of everything that makes two requests the same: `[kind, messages, fields]` as JSON."""
    digest = blake2b(f"[{_in_order(kind)}, [".encode(), digest_size=_NODE_BYTES)
    for at, message in enumerate(messages):
        digest.update(f"{', ' * bool(at)}{_in_order(message)}".encode())
    digest.update(f"], {_in_order(fields)}]".encode())
    return digest.digest()


def _plain_arguments(arguments: object) -> str:
    """Arguments in one spelling; invalid JSON stays text. Numbers as JavaScript writes them."""
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        return json.dumps(json.loads(text or "{}", parse_int=float), sort_keys=True)
    except (ValueError, RecursionError):
        return str(arguments).strip()


# Nodes.


NodeAndAnswer = tuple[bytes, list[Message]]


@dataclass(frozen=True, slots=True)
class Branch:
    """A request's messages without system messages and transient blocks, and their nodes."""

    messages: list[Message]
    digests: list[bytes]
    """Digest of each message."""
    nodes: list[bytes]
    """`nodes[n]` is the conversation of the first n messages; the root says whose it is."""
    replies: list[int]
    """Positions of the assistant's messages."""

    @classmethod
    def of(cls, messages: Iterable[Message], user: str = "") -> Branch:
        """The branch of messages without transient blocks; `user`: whose they are, if known."""
        conversation = [message for message in messages if is_conversation(message)]
        digests = [message_digest(message) for message in conversation]
        nodes = [_hash(user, _NODE_BYTES)]
        for digest in digests:
            nodes.append(_child(nodes[-1], digest))
        replies = [at for at, m in enumerate(conversation) if m.get("role") == "assistant"]
        return cls(conversation, digests, nodes, replies)

    @property
    def leaf(self) -> bytes:
        """The node of the whole request."""
        return self.nodes[-1]

    def answer_to(self, reply: int, without: Collection[bytes] = ()) -> list[Message]:
        """Messages after the reply at a position, up to the assistant's next message.

        `without`: nodes of messages that are left out, unless the request ends with them.
        """
        end = next((later for later in self.replies if later > reply), len(self.messages))
        return [
            self.messages[at]
            for at in range(reply + 1, end)
            if self.nodes[at + 1] not in without or at + 1 == len(self.messages)
        ]

    def without_reply(self) -> Iterator[NodeAndAnswer]:
        """Requests whose reply may have been left out here, with what was said after it: those of
        which only a person's words are left, each a message or the end of one that was merged."""
        later = [at for at, m in enumerate(self.messages) if m.get("role") != "user"]
        for at in range(len(self.messages) - 1, max(later, default=-1), -1):
            message, rest = self.messages[at], self.messages[at + 1 :]
            if at:
                yield self.nodes[at], [message, *rest]
            text = text_of(message)
            for end in _ends_of_lines(text):
                digest = message_digest({"role": "user", "content": text[:end]})
                answer: Message = {"role": "user", "content": text[end:].strip()}
                yield _child(self.nodes[at], digest), [answer, *rest]

    def pair_at(self, position: int) -> bytes | None:
        """The message at a position with the one before it; None for the first message."""
        if position == 0:
            return None
        return self._pair(self.digests[position - 1], self.digests[position])

    def pair_with(self, reply_digest: bytes) -> bytes | None:
        """The last message with a reply to it; None when there is no message."""
        return self._pair(self.digests[-1], reply_digest) if self.digests else None

    def parent_at(self, reply: int) -> bytes:
        """The key of the turn whose reply would stand at a position."""
        return self.nodes[reply + 1][:_MESSAGE_BYTES]

    def replies_before(self, position: int) -> list[bytes]:
        """The digests of the assistant's messages before a position."""
        return [self.digests[reply] for reply in self.replies if reply < position]

    def _pair(self, first: bytes, second: bytes) -> bytes:
        return _hash(self.nodes[0] + first + second, _NODE_BYTES)


@dataclass(frozen=True, slots=True)
class Rendering:
    """A request as the chat template rendered it, as a hash that can tell what begins with it."""

    length: int
    digest: bytes

    @classmethod
    def of(cls, ids_T: list[int]) -> Rendering:
        return cls(len(ids_T), _hash(array("i", ids_T).tobytes(), _NODE_BYTES))

    def begins(self, ids_T: list[int]) -> bool:
        return len(ids_T) >= self.length and Rendering.of(ids_T[: self.length]) == self


@dataclass(frozen=True, slots=True)
class TurnNode:
    """A turn's place in the graph; the store keeps it as text beside the turn."""

    turn_id: int
    kind: TurnKind
    finish_reason: str
    created_s: float
    exact_request: bytes
    """Digest of the whole request, exactly as it was sent."""
    request: bytes
    """Node of the request's last message."""
    reply: bytes
    """Node of the reply."""
    reply_digest: bytes
    recent: bytes
    """Digests of the last messages of the request, oldest first."""
    recent_replies: bytes
    """Digests of the assistant's last messages in the request, oldest first."""
    parents: tuple[bytes, ...]
    """Keys of the turns whose replies stand last in the request, oldest first."""
    pair: bytes | None
    """The request's last message and the reply."""
    rendering: Rendering
    may_be_dropped: bool = False
    """Whether some clients leave its reply out: it is empty, or no client can carry it out."""

    @classmethod
    def of(
        cls, turn: Turn, branch: Branch, exact_request: bytes, rendered_ids_T: list[int]
    ) -> TurnNode:
        """The node of a turn that answers the request of the branch."""
        reply_digest = message_digest(turn.reply)
        recent_replies = branch.replies_before(len(branch.messages))[-_RECENT:]
        return cls(
            turn_id=turn.id or 0,
            kind=turn.kind,
            finish_reason=turn.finish_reason,
            created_s=turn.created_s,
            exact_request=exact_request,
            request=branch.leaf,
            reply=_child(branch.leaf, reply_digest),
            reply_digest=reply_digest,
            recent=b"".join(branch.digests[-_RECENT:]),
            recent_replies=b"".join(recent_replies),
            parents=tuple(map(branch.parent_at, branch.replies[-_RECENT:])),
            pair=branch.pair_with(reply_digest),
            rendering=Rendering.of(rendered_ids_T),
            may_be_dropped=may_be_dropped(turn.reply, turn.tools),
        )

    def to_text(self) -> str:
        """The node as text, for the store."""
        hashes = (
            self.exact_request, self.request, self.reply, self.reply_digest, self.recent,
            self.recent_replies, b"".join(self.parents), self.pair or b"", self.rendering.digest,
        )  # fmt: skip
        words = [*(digest.hex() for digest in hashes), str(self.rendering.length)]
        return " ".join([*words, _DROPPED] if self.may_be_dropped else words)

    @classmethod
    def from_text(
        cls, text: str, turn_id: int, kind: TurnKind, finish_reason: str, created_s: float
    ) -> TurnNode:
        """The inverse of `to_text`."""
        words = text.removesuffix(f" {_DROPPED}")
        *hex_digests, length = words.split(" ")
        (
            exact_request, request, reply, reply_digest, recent, recent_replies, parents, pair,
            rendering,
        ) = map(bytes.fromhex, hex_digests)  # fmt: skip
        return cls(
            turn_id=turn_id,
            kind=kind,
            finish_reason=finish_reason,
            created_s=created_s,
            exact_request=exact_request,
            request=request,
            reply=reply,
            reply_digest=reply_digest,
            recent=recent,
            recent_replies=recent_replies,
            parents=tuple(
                parents[start : start + _MESSAGE_BYTES]
                for start in range(0, len(parents), _MESSAGE_BYTES)
            ),
            pair=pair or None,
            rendering=Rendering(int(length), rendering),
            may_be_dropped=words != text,
        )

    @property
    def key(self) -> bytes:
        """The key by which turns that continue from this one list it among their parents."""
        return self.reply[:_MESSAGE_BYTES]

    @property
    def is_interrupted(self) -> bool:
        """Whether its client left before the reply was whole."""
        return self.finish_reason == INTERRUPTED

    def similarity(self, branch: Branch, position: int) -> tuple[int, int]:
        """Number of replies, and of messages, before a position of the branch that also stand
        before this turn's own reply."""
        replies = _common_end(self.recent_replies, branch.replies_before(position))
        return replies, _common_end(self.recent, branch.digests[:position])


def _ends_of_lines(text: str) -> list[int]:
    """Positions at which the last lines of a text begin."""
    if len(text) > _LONGEST_MERGED:
        return []
    ends = [at for at, character in enumerate(text) if character == "\n"][-_MOST_LINES:]
    return [at for at in reversed(ends) if text[:at].strip() and text[at:].strip()]


def _common_end(joined_digests: bytes, digests: list[bytes]) -> int:
    size = _MESSAGE_BYTES
    pairs = zip(range(len(joined_digests), 0, -size), reversed(digests), strict=False)
    return next(
        (n for n, (end, digest) in enumerate(pairs) if joined_digests[end - size : end] != digest),
        min(len(joined_digests) // size, len(digests)),
    )


def _child(node: bytes, digest: bytes) -> bytes:
    return _hash(node + digest, _NODE_BYTES)


def _hash(text: str | bytes, size: int) -> bytes:
    encoded = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    return blake2b(encoded, digest_size=size).digest()


# The turns of one session.

NextState = tuple[TurnNode, list[Message]]
"""A turn and the messages that came after its reply."""


@dataclass(slots=True)
class TurnGraph:
    """A session's newest turns: which one a request continues, and which next states it brings.

    A turn's next state is what stands in a later main request between our reply and the assistant's
    next message: a user's answer, or all tool results of parallel calls, in order. So:

    - **One turn on**: the request runs through the node of the turn's reply, and on.
    - **Fork**: it follows an earlier turn. If that turn has its next state, it keeps it.
    - **A turn in between that was not ours** (another model, a side turn that stayed in the
      history): the next state ends where that reply begins; none when nothing was said before it.
    - **What a client asked in a side turn** and kept in the history (a heartbeat, a subagent's
      result) is nobody's answer: it is left out of next states.
    - **Edited, merged or compacted history**: no node fits. Then the last reply decides, if it is
      one of ours: the turn with the most similar replies before it, then the most similar messages.
      Where several come as near, or nothing before it is ours, it must be the session's newest
      turn, which waits, and the others must be among its ancestors; else there is none.
    - **An edited reply** is not ours: what follows it was said to other words.
    - **An interrupted reply** may come back in part, or not at all; see `interrupted_before`.
    - **A reply that was left out**: its client could not carry it out; see `dropped_next_state`.
    """

    turns: list[TurnNode] = field(default_factory=list)
    """Turns, newest last."""
    waiting: set[int] = field(default_factory=set)
    """Ids of turns without a next state."""
    delivered: set[int] = field(default_factory=set)
    """Ids of waiting turns whose replies have reached the client."""

    def add(self, turn: TurnNode) -> None:
        """Add a recorded turn; the oldest leaves when there are too many."""
        self.turns.append(turn)
        self.waiting.add(turn.turn_id)
        for oldest in self.turns[:-MAX_TURNS]:
            self.close(oldest.turn_id)
        del self.turns[:-MAX_TURNS]

    def close(self, turn_id: int) -> None:
        """Mark a turn as waiting no more."""
        self.waiting.discard(turn_id)
        self.delivered.discard(turn_id)

    def clear(self) -> None:
        """Forget all turns: nothing follows them any more."""
        self.turns.clear()
        self.waiting.clear()
        self.delivered.clear()

    def newest(self, kind: TurnKind) -> TurnNode | None:
        """The newest turn of a kind."""
        return next((turn for turn in reversed(self.turns) if turn.kind == kind), None)

    def parent_of(self, branch: Branch) -> TurnNode | None:
        """The turn that a request continues word for word; the newest of equal ones."""
        if not branch.replies:
            return None
        node = branch.nodes[branch.replies[-1] + 1]
        return next((turn for turn in reversed(self.turns) if turn.reply == node), None)

    def next_states(
        self,
        branch: Branch,
        under_way: Collection[bytes] = (),
        waiting: Collection[int] | None = None,
    ) -> list[NextState]:
        """The next states that a main request brings to main turns that have none yet, last first.

        `under_way`: nodes of requests whose replies are still being made or were interrupted, so
        that these are not taken for others. `waiting`: the turns that may get one; None: all that
        wait.
        """
        waiting = self.waiting if waiting is None else waiting
        asked_by_client = {turn.request for turn in self.turns if turn.kind == "side"}
        return [
            (turn, answer)
            for turn, reply in self._replies_in(branch, under_way, waiting)
            if turn.kind == "main"
            and turn.turn_id in waiting
            and (answer := branch.answer_to(reply, asked_by_client))
        ]

    def straight_next_state(self, branch: Branch) -> list[NextState]:
        """The next state of an episode's newest turn, where its cut history says the same words
        twice.

        Only for sessions that are known to go straight on: it looks at the last reply alone.
        """
        newest = self.newest("main")
        if newest is None or newest.turn_id not in self.waiting or not branch.replies:
            return []
        last = branch.replies[-1]
        answer = branch.answer_to(last)
        return [(newest, answer)] if answer and branch.digests[last] == newest.reply_digest else []

    def dropped_next_state(self, branch: Branch) -> list[NextState]:
        """The next state of a turn whose reply the client has left out of its history before it
        went on: the newest that waits and that clients do leave out.

        The same request once more asks for another reply, and says nothing about this one.
        """
        dropped = {
            turn.request: turn
            for turn in self.turns
            if turn.may_be_dropped
            and turn.kind == "main"
            and turn.turn_id in self.waiting
            and not turn.is_interrupted
        }
        if not dropped:
            return []
        found = ((dropped[n], answer) for n, answer in branch.without_reply() if n in dropped)
        return list(islice(found, 1))

    def ancestors(self, turn: TurnNode) -> set[int]:
        """Ids of the turns that a turn's request builds on."""
        by_key = {node.key: node for node in self.turns}
        ancestor_ids: set[int] = set()
        unvisited = [turn]
        while unvisited:
            for key in unvisited.pop().parents:
                parent = by_key.get(key)
                if parent is not None and parent.turn_id not in ancestor_ids:
                    ancestor_ids.add(parent.turn_id)
                    unvisited.append(parent)
        return ancestor_ids

    def _replies_in(
        self, branch: Branch, under_way: Collection[bytes], waiting: Collection[int]
    ) -> list[tuple[TurnNode, int]]:
        """The turns whose replies stand in a request, with their positions, last first."""
        by_reply: dict[bytes, list[TurnNode]] = {}
        for turn in self.turns:
            by_reply.setdefault(turn.reply, []).append(turn)
        replies = [
            (_one_of_equal(by_reply[node], waiting), reply)
            for reply in reversed(branch.replies)
            if (node := branch.nodes[reply + 1]) in by_reply
        ]
        last = replies[0][1] if replies else -1
        unmatched = [r for r in branch.replies if r > last and branch.nodes[r] not in under_way]
        similar = self._most_similar(branch, unmatched, waiting)
        return replies if similar is None else [similar, *replies]

    def _most_similar(
        self, branch: Branch, replies: list[int], waiting: Collection[int]
    ) -> tuple[TurnNode, int] | None:
        """The turn that produced the last of our replies, where no node fits."""
        for reply in reversed(replies):
            candidates = [turn for turn in self.turns if turn.reply_digest == branch.digests[reply]]
            if not candidates:
                continue
            parent = branch.parent_at(reply)
            if any(turn.kind == "main" and parent in turn.parents for turn in self.turns):
                return None  # a fork: what followed this reply first was seen at that time
            similarity = {turn.turn_id: turn.similarity(branch, reply) for turn in candidates}
            best = max(similarity.values())
            nearest = [turn for turn in candidates if similarity[turn.turn_id] == best]
            if best == (0, 0) or len({turn.reply for turn in nearest}) > 1:
                nearest = self._only_newest(nearest, waiting)
            return (_one_of_equal(nearest, waiting), reply) if nearest else None
        return None

    def _only_newest(self, similar: list[TurnNode], waiting: Collection[int]) -> list[TurnNode]:
        """The one of indistinguishable turns that is continued; none in doubt.

        It is the session's newest main turn and waits, and all others are its ancestors: a
        compacted history ends in the last reply, however often the same words came before.
        """
        newest = self.newest("main")
        if newest is None or newest not in similar or newest.turn_id not in waiting:
            return []
        ancestors = self.ancestors(newest)
        is_alone = all(turn is newest or turn.turn_id in ancestors for turn in similar)
        return [newest] if is_alone else []


def interrupted_before(branch: Branch, turns: Sequence[TurnNode]) -> list[TurnNode]:
    """Interrupted turns whose request stands before the last reply: it may be a part of theirs."""
    if not branch.replies:
        return []
    node = branch.nodes[branch.replies[-1]]
    return [turn for turn in reversed(turns) if turn.is_interrupted and turn.request == node]


def _one_of_equal(turns: list[TurnNode], waiting: Collection[int]) -> TurnNode:
    """From turns with the same request and the same reply, one that has its next state already.

    Else the newest: the same request was made again and got the same reply. A request continues one
    of them.
    """
    return next((turn for turn in turns if turn.turn_id not in waiting), turns[-1])


# All sessions.

_TURN, _REQUEST, _PAIR, _LEFT_OUT = b"t", b"r", b"p", b"d"


@dataclass(slots=True)
class _IndexedSession:
    keys: deque[bytes] = field(default_factory=deque)
    last_use: int = 0
    """Use counter; greater is later."""


class SessionIndex:
    """Sessions by the nodes of their turns, to find the one that a request continues.

    Bounded, and forgetful by the session: the longest unused one leaves whole. Four kinds of keys
    lead to sessions: the node of a turn's reply, the node of its request, the pair of a reply with
    the message before it, which outlives a compacted history, and the node of a request whose reply
    its client may leave out.
    """

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._by_key: dict[bytes, dict[str, bool]] = {}
        """Sessions by key. True: the turn waits for its next state, or the request for a reply."""
        self._sessions: OrderedDict[str, _IndexedSession] = OrderedDict()
        self._uses = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def add_request(self, session_id: str, branch: Branch) -> None:
        """Add the request that began a session; repeated before it is answered, it leads there."""
        self._put(session_id, _REQUEST + branch.leaf, True)

    def add_turn(self, session_id: str, turn: TurnNode, is_waiting: bool) -> None:
        """Add a recorded turn."""
        self._put(session_id, _REQUEST + turn.request, turn.is_interrupted)
        if turn.pair is not None:
            self._put(session_id, _PAIR + turn.pair, False)
        self._put(session_id, _TURN + turn.reply, is_waiting)
        if turn.may_be_dropped and not turn.is_interrupted:
            self._put(session_id, _LEFT_OUT + turn.request, is_waiting)

    def set_answered(self, session_id: str, turn: TurnNode) -> None:
        """Mark a turn as having its next state."""
        for key in (_TURN + turn.reply, _LEFT_OUT + turn.request):
            sessions = self._by_key.get(key, {})
            if session_id in sessions:
                sessions[session_id] = False

    def forget(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        for key in session.keys if session is not None else ():
            self._drop(session_id, key)

    def find(self, branch: Branch, *, claims: bool, is_retry: bool) -> str | None:
        """The session that a request belongs to; None for a new one.

        With `claims` it answers the turn that it continues, so that the next request with the
        same history may be another person's.
        """
        session_id = self._find(branch, claims, is_retry)
        if session_id is not None:
            self._use(session_id)
        return session_id

    def _find(self, branch: Branch, claims: bool, is_retry: bool) -> str | None:
        same_request = self._by_key.get(_REQUEST + branch.leaf, {})
        if not branch.replies:
            retried = self._best(same_request, {}) if is_retry else None
            return retried or self._with_dropped(branch)
        for reply in reversed(branch.replies):
            sessions = self._by_key.get(_TURN + branch.nodes[reply + 1], {})
            best = self._best(sessions, same_request)
            if best is not None:
                if claims and branch.answer_to(reply):
                    sessions[best] = False
                return best
            requests = self._by_key.get(_REQUEST + branch.nodes[reply], {})
            unfinished = {session_id: True for session_id, waits in requests.items() if waits}
            if unfinished:
                return self._best(unfinished, same_request)
        pair = branch.pair_at(branch.replies[-1])
        with_pair = {} if pair is None else self._by_key.get(_PAIR + pair, {})
        return next(iter(with_pair)) if len(with_pair) == 1 else None

    def _with_dropped(self, branch: Branch) -> str | None:
        """The session whose first reply was left out, and still waits for an answer."""
        for node, _ in branch.without_reply():
            sessions = self._by_key.get(_LEFT_OUT + node, {})
            best = self._best({name: True for name, waits in sessions.items() if waits}, {})
            if best is not None:
                return best
        return None

    def _best(self, sessions: dict[str, bool], same_request: dict[str, bool]) -> str | None:
        """The one that made the same request before, else one that waits, else the last used."""
        return max(
            sessions,
            key=lambda name: (name in same_request, sessions[name], self._sessions[name].last_use),
            default=None,
        )

    def _put(self, session_id: str, key: bytes, waits: bool) -> None:
        session = self._use(session_id)
        sessions = self._by_key.setdefault(key, {})
        if session_id not in sessions:
            session.keys.append(key)
        sessions[session_id] = waits
        if len(session.keys) > 3 * _INDEXED_TURNS:
            self._drop(session_id, session.keys.popleft())
        while len(self._by_key) > self._max_keys and len(self._sessions) > 1:
            self.forget(next(iter(self._sessions)))

    def _use(self, session_id: str) -> _IndexedSession:
        session = self._sessions.setdefault(session_id, _IndexedSession())
        self._sessions.move_to_end(session_id)
        self._uses += 1
        session.last_use = self._uses
        return session

    def _drop(self, session_id: str, key: bytes) -> None:
        sessions = self._by_key.get(key, {})
        sessions.pop(session_id, None)
        if not sessions:
            self._by_key.pop(key, None)
