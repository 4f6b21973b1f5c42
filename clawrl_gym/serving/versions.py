"""Versions of a run's weights, and of its users': which are kept, and one that serves again, while
the run is in progress or when it has ended.

Weights that come back are a version of their own, the next one, so that versions only ever count
up: the store, staleness and `resume=` know no other case.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from clawrl_gym.core.errors import ConfigError, PolicyError, StoreError
from clawrl_gym.core.files.files import private_files
from clawrl_gym.core.files.whole_folder import link_folder
from clawrl_gym.core.metrics import RETURNED_TO
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.gateway.versions import VersionJson
from clawrl_gym.inference.weights.checkpoints import checkpoint_dir, list_checkpoints
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.user_training import UserTraining
from clawrl_gym.serving.users import checkpoints_of
from clawrl_gym.store import Store, StoreReader, UpdateRow
from clawrl_gym.trainers.loop import TrainLoop
from clawrl_gym.trainers.versions.retention import pin, read_pins, unpin
from clawrl_gym.ui.run_data import is_serving

_ANSWER_S = 90.0
"""Longer than the gateway waits for an update that is under way."""


class LiveVersions:
    """Versions of a run that learns now."""

    def __init__(
        self, loop: TrainLoop, user_training: UserTraining, store: Store, folder: Path
    ) -> None:
        """`loop` is that of the run's own weights, `user_training` those of users', `folder` the
        run's."""
        self._loop = loop
        self._folder = folder
        self._user_training = user_training
        self._store = store

    async def versions(self, user: str) -> list[VersionJson]:
        own = user == OWNER
        kept = self._loop.kept_versions() if own else self._user_training.kept_versions(user)
        pins = await asyncio.to_thread(read_pins, checkpoints_of(self._folder, user))
        return _described(kept, await self._store.updates_of(user), pins)

    async def rollback(self, version: int, user: str) -> int:
        if user == OWNER:
            return await self._loop.rollback(version)
        return await self._user_training.rollback(version, user)

    async def pin(self, version: int, name: str, user: str) -> None:
        await asyncio.to_thread(pin, checkpoints_of(self._folder, user), name, version)

    async def unpin(self, name: str, user: str) -> None:
        await asyncio.to_thread(unpin, checkpoints_of(self._folder, user), name)


def kept_versions(folder: RunFolder, user: str = OWNER) -> list[VersionJson]:
    """Kept versions of any run, or of one of its users. Raises ConfigError or StoreError."""
    folder.read_values()
    checkpoints = checkpoints_of(folder.path, user)
    kept = list_checkpoints(checkpoints)
    reader = StoreReader(folder.path)
    try:
        return _described(
            [0, *kept] if kept or user == OWNER else [],
            reader.updates_of(user),
            read_pins(checkpoints),
        )
    finally:
        reader.close()


def pin_version(folder: RunFolder, name: str, version: int, user: str = OWNER) -> None:
    """Keep a version of any run, under a name. Raises ConfigError or StoreError."""
    folder.read_values()
    with private_files():
        pin(checkpoints_of(folder.path, user), name, version)


def unpin_version(folder: RunFolder, name: str, user: str = OWNER) -> None:
    """Let a name go. Raises ConfigError or StoreError."""
    folder.read_values()
    with private_files():
        unpin(checkpoints_of(folder.path, user), name)


def named_version(folder: RunFolder, name: str, user: str = OWNER) -> int:
    """The version that is pinned under a name. Raises ConfigError or StoreError."""
    folder.read_values()
    pins = read_pins(checkpoints_of(folder.path, user))
    if name not in pins:
        raise ConfigError(
            f"got {name!r}, expected a version or a name that is pinned: "
            f"{', '.join(pins) or 'none is'}"
        )
    return pins[name]


def rollback_to(folder: RunFolder, version: int, user: str = OWNER) -> int | None:
    """Have a run, or one of its users, be served by and learn on from a kept version: at once where
    the run is being served, else when it resumes. Returns the version that it is from now on; None:
    once an update has ended.

    Raises ConfigError, StoreError or PolicyError.
    """
    values = folder.read_values()
    checkpoints = checkpoints_of(folder.path, user)
    try:
        with private_files():
            return asyncio.run(_rollback_at_rest(folder, checkpoints, version, user))
    except StoreError as error:
        gateway = values.get("gateway")
        if not is_serving(values) or not isinstance(gateway, dict):
            raise
        return _ask_gateway(folder, gateway, version, user, error)


async def _rollback_at_rest(folder: RunFolder, checkpoints: Path, version: int, user: str) -> int:
    store = Store.open(folder.path)
    try:
        last = await store.rollback_to_checkpoint()
        if user != OWNER:
            last = (await store.newest_of_users()).get(user)
        kept = [v for v in list_checkpoints(checkpoints) if last and v <= last.version]
        if last is None or version not in kept:
            raise ConfigError(
                f"got version {version}, expected one with a checkpoint in {checkpoints}: "
                f"{', '.join(map(str, kept)) or 'there is none'}"
            )
        target = checkpoint_dir(checkpoints, last.version + 1)
        await asyncio.to_thread(link_folder, checkpoint_dir(checkpoints, version), target)
        metrics = {RETURNED_TO: float(version)}
        row = UpdateRow(last.version + 1, tokens=0, duration_s=0.0, metrics=metrics)
        if user == OWNER:
            await store.add_update(row, [], str(target))
        else:
            await store.add_user_update(user, row, str(target))
    finally:
        await store.close()
    return row.version


def _ask_gateway(
    folder: RunFolder, gateway: dict[str, object], version: int, user: str, in_use: StoreError
) -> int | None:
    """`in_use`: why the folder could not be opened."""
    port = gateway.get("port")
    route = f"/v1/versions/{version}" + (f"?user={user}" if user != OWNER else "")
    if not port:
        raise PolicyError(
            f"{in_use}; it is served on a port that its configuration does not say: ask there, "
            f"POST {route}"
        ) from in_use
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{route}",
        method="POST",
        headers={"Authorization": f"Bearer {_key(folder.path, gateway)}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as response:
            served_as = json.load(response)["version"]
    except urllib.error.HTTPError as error:
        raise ConfigError(_message_of(error)) from error
    except (OSError, ValueError, KeyError) as error:
        raise PolicyError(f"{in_use}; its gateway does not answer: {error}") from error
    return None if served_as is None else int(served_as)


def _key(folder: Path, gateway: dict[str, object]) -> str:
    if gateway.get("key"):
        return str(gateway["key"])
    try:
        return (folder / "gateway.key").read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the gateway's key: {error}") from error


def _message_of(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the gateway answered {error.code}"


def _described(
    kept: list[int], updates: list[UpdateRow], pins: Mapping[str, int]
) -> list[VersionJson]:
    rows = {row.version: row for row in updates}
    described: list[VersionJson] = []
    for version in kept:
        row = rows.get(version)
        first = None if row is None else row.metrics.get(RETURNED_TO)
        described.append(
            {
                "version": version,
                "created_s": None if row is None else row.created_s,
                "returned_to": None if first is None else int(first),
                "pins": [name for name, pinned in pins.items() if pinned == version],
            }
        )
    return described
