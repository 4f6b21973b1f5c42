"""Tells whoever runs `serve` that samples wait because of their users' share of a batch.

Nothing fails by it: conversations continue, and nothing is learned from what waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clawrl_gym.config import LiveConfig
from clawrl_gym.trainers.user_queues import UserQueues

_EVERY_S = 60.0
_AGAIN_S = 86_400.0
_NOTHING = "nothing fits"


class HeldSamples:
    """Says each cause once, and again after a day."""

    def __init__(self, config: LiveConfig, queues: UserQueues, tell: Callable[[str], None]) -> None:
        self._config = config
        self._queues = queues
        self._tell = tell
        self._since_s: dict[str, float] = {}
        """Start of holding each user's samples."""
        self._told_s: dict[str, float] = {}
        """Time at which each cause was reported: a user, or that nothing fits."""

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_EVERY_S)
            self.look(loop.time())

    def look(self, now_s: float) -> None:
        """Tell whose share keeps samples waiting, once they wait longer than a batch may."""
        queue = self._queues.own
        held = queue.held
        self._since_s = {user: self._since_s.get(user, now_s) for user in held}
        overdue = [
            user for user in held if now_s - self._since_s[user] >= self._config.flush_s
        ]  # fmt: skip
        if not overdue:
            return
        if held.total() == queue.waiting_samples:
            if self._is_due(_NOTHING, now_s):
                counts = ", ".join(f"{user} {count}" for user, count in sorted(held.items()))
                self._tell(
                    f"nothing is learned: {held.total()} samples wait, and all are of users who "
                    f"may have {self._config.user_share:g} of an update each ({counts}; "
                    f"live.user_share). Samples of the owner or of more users make room; "
                    f"{self._cure(overdue)}"
                )
            return
        for user in overdue:
            if self._is_due(user, now_s):
                self._tell(
                    f"{held[user]} samples of {user} wait: the share of {user} in an update is "
                    f"used up (live.user_share={self._config.user_share:g}). Samples of others "
                    f"make room, and the oldest give way; {self._cure([user])}"
                )

    def _is_due(self, cause: str, now_s: float) -> bool:
        told_s = self._told_s.get(cause)
        if told_s is not None and now_s - told_s < _AGAIN_S:
            return False
        self._told_s[cause] = now_s
        return True

    def _cure(self, users: list[str]) -> str:
        trusted = sorted({*self._config.trusted_users, *users})
        return f"live.trusted_users=[{','.join(trusted)}] lifts the bound"
