"""Removing a user of a serving folder with all that is theirs, while it serves and when it rests.

The mark in `users.json` closes the door at once. Then whoever holds the folder deletes: `serve`, or
the command itself when nobody does. What a kill interrupts is finished by the next of them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from clawrl_gym.core.errors import ClawError, StoreError
from clawrl_gym.core.files.folder_lock import holder_of
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS
from clawrl_gym.serving.last_report import LastReport
from clawrl_gym.store import Store
from clawrl_gym.store.allowance_file import forget_taken
from clawrl_gym.store.schema import DATABASE_FILE
from clawrl_gym.store.users import Users

USERS_FOLDER = "users"
"""Folder below the serving folder, with each user's files beside the database."""
_LOOK_EVERY_S = 0.5
_REMOVAL_TIMEOUT_S = 120.0
_log = logging.getLogger(__name__)


def user_folder(folder: Path, name: str) -> Path:
    """Folder of a user's weights and checkpoints."""
    return folder / USERS_FOLDER / name


def checkpoints_of(folder: Path, user: str) -> Path:
    """Folder of the checkpoints of a user's weights in a run's folder; OWNER's are the run's own.

    Raises ConfigError for a user who is not there, StoreError when `users.json` cannot be read.
    """
    if user == OWNER:
        return folder / CHECKPOINTS
    return user_folder(folder, Users(folder).present(user).name) / CHECKPOINTS


class Departures:
    """Removes the users who are to leave a folder that this process serves."""

    def __init__(
        self, folder: Path, users: Users, remove: Callable[[str], Awaitable[object]]
    ) -> None:
        """`remove` ends what a user does and deletes what the database has of them."""
        self._folder = folder
        self._users = users
        self._remove = remove

    async def run(self) -> None:
        """One after another, for ever."""
        while True:
            for name in self._users.leaving():
                try:
                    await self._remove(name)
                    await asyncio.to_thread(_forget, self._folder, self._users, name)
                except ClawError as error:  # a full disk, a learner that is being started again
                    _log.error("%s is removed at the next try: %s", name, error)
            await asyncio.sleep(_LOOK_EVERY_S)


async def remove_user(folder: Path, name: str, timeout_s: float = _REMOVAL_TIMEOUT_S) -> None:
    """Remove a user and wait until nothing is left of them.

    Raises ConfigError for one who is not there, StoreError when it takes too long: what is left to
    do is done by `serve`, or when this is called again.
    """
    users = Users(folder)
    users.begin_removal(name)
    give_up_s = time.monotonic() + timeout_s
    while users.is_being_removed(name):
        if time.monotonic() > give_up_s:
            raise StoreError(
                f"{name} can no longer come in, and not everything of theirs was deleted within "
                f"{timeout_s:g} s: serve continues; the same command waits again"
            )
        if holder_of(folder) is None:
            await _remove_alone(folder, users, name)
        else:
            await asyncio.sleep(_LOOK_EVERY_S)


async def _remove_alone(folder: Path, users: Users, name: str) -> None:
    """Remove a user where nobody serves. Leaves it to whoever comes to hold the folder first."""
    if (folder / DATABASE_FILE).exists():
        try:
            store = Store.open(folder)
        except StoreError:
            if holder_of(folder) is None:
                raise
            return
        try:
            await store.delete_user(name)
        finally:
            await store.close()
    await asyncio.to_thread(forget_taken, folder, name)
    _forget(folder, users, name)


def _forget(folder: Path, users: Users, name: str) -> None:
    """Delete a user's files beside the database, and at last the name."""
    LastReport(folder, lambda _: None).session_deleted(name)
    shutil.rmtree(user_folder(folder, name), ignore_errors=True)
    users.end_removal(name)
