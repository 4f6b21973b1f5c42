"""Configuration of live conversations: how sessions are told apart, kept, trained and forgotten."""

from __future__ import annotations

import re
from datetime import time

from pydantic import Field, field_validator

from clawrl_gym.config.part import Part

_WORDS = ("always", "idle")
_CLOCK = r"((?:[01]\d|2[0-3]):[0-5]\d)"
_HOURS = re.compile(f"{_CLOCK}-{_CLOCK}")


class KindRule(Part):
    """One rule that tells a side turn: every condition that is given must hold."""

    name: str
    """Shown with the turn."""
    last_user: str | None = None
    """Regular expression found in the last user message."""
    first_user: str | None = None
    """Regular expression found in the first user message."""
    system: str | None = None
    """Regular expression found in the system message."""
    max_tokens_at_most: int | None = None
    """The request wants at most as many tokens."""
    without_tools: bool | None = None
    """The request offers no tools."""


class ClientRules(Part):
    """What one client writes and asks for itself."""

    kinds: tuple[KindRule, ...] = ()
    """Side turns; the first rule that holds names the turn, else it is `main`."""
    transient: tuple[str, ...] = ()
    """Blocks that the client adds to user messages for one request only and does not keep: regular
    expressions, a block's two ends with `.*?` between them."""
    runtime_session: tuple[str, ...] = ()
    """Regular expressions whose first group is a session id that it writes into a message."""
    subagent_headers: tuple[str, ...] = ()
    """Headers that only requests of its subagents have; such a request is a side turn."""


class LiveConfig(Part):
    """Live sessions."""

    record: bool = True
    """False: nothing of a conversation reaches the disk; training goes on from memory."""
    retention_days: float | None = Field(None, gt=0)
    """Sessions that ended longer ago are deleted with all their data; None keeps them."""
    max_stored_mb_per_user: float | None = Field(1024.0, gt=0)
    """What the sessions of one user with a key of their own may take on the disk; beyond it their
    requests are answered 507 until they delete some. None: any amount; the owner has no limit."""
    max_stored_mb: float | None = Field(None, gt=0)
    """What all sessions may take; beyond it live requests are answered 507. None: any amount."""
    idle_end_s: float = Field(1800.0, gt=0)
    """A session without a request for so long has ended; a later request opens it again."""
    batch_turns: int = Field(8, ge=1)
    """Judged turns that make an update."""
    flush_s: float = Field(900.0, gt=0)
    """A judged turn waits no longer than this for others before an update is made."""
    train_when: str = "always"
    """`always`; `idle`: after `train_idle_s` in which nobody asked for anything; or hours such as
    22:00-06:30, by this machine's clock. What is judged at other times waits; an update under way
    goes on."""
    train_idle_s: float = Field(120.0, gt=0)
    max_staleness: int = Field(64, ge=0)
    """A turn whose oldest token is more versions old than this is not trained on."""
    user_share: float | None = Field(0.25, gt=0, le=1)
    """Where all share one set of weights: the largest part of an update that comes from one user
    with a key of their own, by samples and by their weight in the loss, whoever judged them; an
    equal part where fewer people have a key. What is above it waits for samples of others, 64 a
    user at most. The owner is not bounded. None: nobody is."""
    trusted_users: tuple[str, ...] = ()
    """Users for whom `user_share` does not hold."""
    weak_reward: float = Field(0.1, ge=0, le=1)
    """What a session is trained with whose turns were all understood and judged neutral: going on
    without a complaint is weak evidence for the reply. 0 leaves such sessions out."""
    train_truncated: bool = False
    """Train on replies that the token limit cut off."""
    warm_sessions: int = Field(512, ge=1)
    """Idle sessions whose turns stay in memory; others are read again when they return."""
    clients: dict[str, ClientRules] = Field(default_factory=dict)
    """Rules by client, all of which hold: nobody says which client a request comes from. Shipped
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
        )

    @property
    def hours(self) -> tuple[time, time] | None:
        """Between which learning is on, where `train_when` says so; the end may be on the next
        day."""
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
