"""Configuration of live sessions: how they are identified, stored, trained on and deleted."""

from __future__ import annotations

import re
from datetime import time

from pydantic import Field, field_validator

from clawrl_gym.config.part import Part

_WORDS = ("always", "idle")
_CLOCK = r"((?:[01]\d|2[0-3]):[0-5]\d)"
_HOURS = re.compile(f"{_CLOCK}-{_CLOCK}")


class KindRule(Part):
    """One rule that recognizes a side turn: every given condition must match."""

    name: str
    """Name shown with the turn."""
    last_user: str | None = None
    """Regular expression found in the last user message."""
    first_user: str | None = None
    """Regular expression found in the first user message."""
    system: str | None = None
    """Regular expression found in the system message."""
    max_tokens_at_most: int | None = None
    """Largest `max_tokens` of the request."""
    without_tools: bool | None = None
    """True: the request offers no tools."""


class ClientRules(Part):
    """Texts and side requests of one client."""

    kinds: tuple[KindRule, ...] = ()
    """Side turns; the first rule that matches names the turn, else it is `main`."""
    transient: tuple[str, ...] = ()
    """Blocks that the client adds to user messages for one request only and does not keep: regular
    expressions, a block's two ends with `.*?` between them."""
    runtime_session: tuple[str, ...] = ()
    """Regular expressions whose first group is a session id that it writes into a message."""
    subagent_headers: tuple[str, ...] = ()
    """Headers that only requests of its subagents have; such a request is a side turn."""
    session_headers: tuple[str, ...] = ()
    """Headers whose value is the session's id; the first that a request has names its session."""
    kind_headers: tuple[str, ...] = ()
    """Headers whose value says what a request is for; any other than `main` is a side turn."""


class LiveConfig(Part):
    """Live sessions."""

    record: bool = True
    """False: no part of a conversation reaches the disk; training continues from memory."""
    retention_days: float | None = Field(None, gt=0)
    """Days after which an ended session is deleted with all its data; None keeps them."""
    max_stored_mb_per_user: float | None = Field(1024.0, gt=0)
    """MB on the disk for the sessions of one user with a key of their own; beyond it their requests
    are answered 507 until they delete some. None: any amount; the owner has no limit."""
    max_stored_mb: float | None = Field(None, gt=0)
    """MB for all sessions; beyond it live requests are answered 507. None: any amount."""
    idle_end_s: float = Field(1800.0, gt=0)
    """Seconds without a request after which a session has ended; a later request opens it again."""
    batch_turns: int = Field(8, ge=1)
    """Judged turns of one update."""
    flush_s: float = Field(900.0, gt=0)
    """Longest wait of a judged turn for others before an update is made, in seconds."""
    train_when: str = "always"
    """`always`; `idle`: after `train_idle_s` seconds without a request; or hours such as
    22:00-06:30, by this machine's clock. What is judged at other times waits; an update under way
    continues."""
    train_idle_s: float = Field(120.0, gt=0)
    max_staleness: int = Field(64, ge=0)
    """Most versions that a turn's oldest token may be behind; older turns are not trained on."""
    user_share: float | None = Field(0.25, gt=0, le=1)
    """Where all share one set of weights: the largest part of an update that comes from one user
    with a key of their own, by samples and by their weight in the loss, whoever judged them; an
    equal part where fewer people have a key. The rest waits for samples of others, 64 a user at
    most. The owner is not bounded. None: nobody is."""
    trusted_users: tuple[str, ...] = ()
    """Users to whom `user_share` does not apply."""
    weak_reward: float = Field(0.1, ge=0, le=1)
    """Reward of a session whose turns were all understood and judged neutral: continuing without a
    complaint is weak evidence for the reply. 0 leaves such sessions out."""
    train_truncated: bool = False
    """Train on replies that the token limit cut off."""
    warm_sessions: int = Field(512, ge=1)
    """Idle sessions whose turns stay in memory; others are read again when they return."""
    clients: dict[str, ClientRules] = Field(default_factory=dict)
    """Rules by client, all of which apply: requests do not say which client they come from. Shipped
    are those of `conf/live/`; `live.clients.NAME.kinds=[...]` adds a client of your own."""
    kinds: tuple[KindRule, ...] = ()
    """Rules of side turns that are tried before those of `live.clients`."""
    transient: tuple[str, ...] = ()
    """Transient blocks besides those of `live.clients`."""
    runtime_session: tuple[str, ...] = ()
    """Expressions of session ids that are tried before those of `live.clients`."""

    @property
    def rules(self) -> ClientRules:
        """The rules of all clients together."""
        clients = self.clients.values()
        return ClientRules(
            kinds=(*self.kinds, *(rule for client in clients for rule in client.kinds)),
            transient=(
                *self.transient,
                *(block for client in clients for block in client.transient),
            ),
            runtime_session=(
                *self.runtime_session,
                *(pattern for client in clients for pattern in client.runtime_session),
            ),
            subagent_headers=tuple(name for client in clients for name in client.subagent_headers),
            session_headers=tuple(name for client in clients for name in client.session_headers),
            kind_headers=tuple(name for client in clients for name in client.kind_headers),
        )

    @property
    def hours(self) -> tuple[time, time] | None:
        """Hours of learning, where `train_when` gives them; the end may be on the next day."""
        if self.train_when in _WORDS:
            return None
        start, end = map(time.fromisoformat, self.train_when.split("-"))
        return start, end

    @field_validator("train_when")
    @classmethod
    def _is_a_word_or_hours(cls, value: str) -> str:
        if value in _WORDS:
            return value
        match = _HOURS.fullmatch(value)
        if match is None or match[1] == match[2]:
            raise ValueError(
                f"got {value!r}, expected always, idle, or hours from one to another such as "
                "22:00-06:30"
            )
        return value
