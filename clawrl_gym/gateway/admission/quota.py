"""The disk space that conversations may take: those of one user, and all.

Nothing is deleted to make room: whoever reaches a limit is told, and decides what to delete.
"""

from __future__ import annotations

import time

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store import Store

_COUNTED_FOR_S = 10.0
"""Everybody's sessions are many: their sum may be so old."""


class Quota:
    """The limits of one gateway."""

    def __init__(self, store: Store, config: LiveConfig) -> None:
        self._store = store
        self._per_user_mb = config.max_stored_mb_per_user
        self._of_all_mb = config.max_stored_mb
        self._counted_s = -_COUNTED_FOR_S
        self._all_mb = 0.0

    async def check(self, user: str) -> None:
        """Raise Refusal (507) where a live request of this user may add nothing more."""
        if user != OWNER and self._per_user_mb is not None:
            stored_mb = await self._store.stored_bytes(user) / 2**20
            if stored_mb >= self._per_user_mb:
                raise _exceeded(
                    f"your conversations take {stored_mb:.1f} MB, expected less than "
                    f"{self._per_user_mb:g} MB (live.max_stored_mb_per_user): delete some "
                    "(GET /v1/sessions, DELETE /v1/sessions/ID)"
                )
        if self._of_all_mb is not None and await self._of_all() >= self._of_all_mb:
            raise _exceeded(
                f"all conversations take {self._all_mb:.1f} MB, expected less than "
                f"{self._of_all_mb:g} MB (live.max_stored_mb): the owner deletes some, keeps them "
                "for a shorter time (live.retention_days), or allows more"
            )

    async def _of_all(self) -> float:
        if time.monotonic() - self._counted_s >= _COUNTED_FOR_S:
            self._all_mb = await self._store.stored_bytes() / 2**20
            self._counted_s = time.monotonic()
        return self._all_mb


def _exceeded(what: str) -> Refusal:
    return Refusal(507, what, "quota_exceeded")
