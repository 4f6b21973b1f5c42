"""A run's checkpoints elsewhere: a thread that copies each finished one to an address.

    ADDRESS/NAME/checkpoints/000050/     as in the run's folder, and manifest.json with digests
    ADDRESS/NAME/config.yaml             and run.json, metrics.jsonl: what export reads; no secrets

Nobody waits for it while a run learns: it looks what is there and not copied, the newest first, and
what goes from the run's folder meanwhile goes there once a newer one has come. What fails is told
once and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from clawrl_gym.config import CommandConfig
from clawrl_gym.core.errors import ClawError, ConfigError, TransferError
from clawrl_gym.core.files.log_files import files_of_log, is_full_file
from clawrl_gym.core.files.remote_folder import RemoteFolder
from clawrl_gym.core.files.transfer import Manifest, manifest_of
from clawrl_gym.core.files.whole_folder import link_folder
from clawrl_gym.core.metrics import METRICS_FILE
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.core.provenance import RUN_FILE
from clawrl_gym.core.redact import clean, hidden
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, list_checkpoints
from clawrl_gym.run_folder.folder import RunFolder, read_config_values

_KEY = "learner.remote_checkpoints"
_STAGED = ".remote"
"""Subfolder of the checkpoints: links to the one that is being copied, which may go meanwhile."""
_LOOK_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0
_LAST_TRIES = 3
"""Failures in a row that a run accepts at its end."""
_END_LOOK_S, _LEAVE_S = 0.05, 1.0
_UNTOLD_S = 3.0
"""Seconds that the end may wait without a message."""


def place_of(folder: RunFolder, address: str) -> RemoteFolder:
    """Place of the run's own things below an address. Raises ConfigError."""
    return RemoteFolder(address).below(folder.path.resolve().name)


def check_place(config: CommandConfig, folder: RunFolder) -> None:
    """Raise ConfigError for an address where this run's checkpoints cannot go."""
    address = config.learner.remote_checkpoints
    if address is None:
        return
    try:
        place = place_of(folder, address)
        place.check_writable()
        others = [] if folder.exists else place.below(CHECKPOINTS).names()
    except ClawError as error:
        raise ConfigError(f"{_KEY}: {error}") from error
    if others:
        raise ConfigError(
            f"{_KEY}: {place.address} holds checkpoints of another run: choose another address, "
            "or another name for the run's folder (run.dir=PATH)"
        )


@asynccontextmanager
async def copied_checkpoints(
    config: CommandConfig, folder: RunFolder, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Copy checkpoints made inside, where an address is given. The end waits for copies, except
    after an interrupt; the run's next start copies what is missing."""
    if config.learner.remote_checkpoints is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def say_there(line: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(say, line)

    place = place_of(folder, config.learner.remote_checkpoints)
    copies = RemoteCheckpoints(folder, place, say_there)
    copies.start()
    try:
        yield
        await copies.finish()
    finally:
        copies.stop()


class RemoteCheckpoints:
    """See the module's docstring."""

    def __init__(
        self,
        folder: RunFolder,
        place: RemoteFolder,
        say: Callable[[str], None],
        *,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        """`say` is called in the thread. After a failure `first_pause_s` go by, and ever more."""
        self._folder = folder
        self._place = place
        self._checkpoints = place.below(CHECKPOINTS)
        self._say = say
        self._first_pause_s = first_pause_s
        self._copied: dict[int, int] = {}
        """Updates whose checkpoints are there, and their folders' numbers on the disk."""
        self._is_last = threading.Event()
        """Set when nothing more is made."""
        self._unwanted = threading.Event()
        self._may_remove = True
        self._thread = threading.Thread(target=self._follow, name="remote", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def finish(self) -> None:
        """Answers once all are copied, or that has failed several times in a row."""
        self._is_last.set()
        tell_at_s = time.monotonic() + _UNTOLD_S
        while self._thread.is_alive():
            await asyncio.sleep(_END_LOOK_S)
            if time.monotonic() > tell_at_s:
                tell_at_s = math.inf
                self._say(f"checkpoints are still being copied to {self._place.address}")

    def stop(self) -> None:
        """Stop without waiting for a copy in progress; it is not whole there."""
        self._unwanted.set()
        self._is_last.set()
        if self._thread.ident is not None:
            self._thread.join(_LEAVE_S)
        shutil.rmtree(self._staged, ignore_errors=True)

    @property
    def _staged(self) -> Path:
        return self._folder.checkpoints / _STAGED

    def _follow(self) -> None:
        failures, tries_left = 0, _LAST_TRIES
        pauses_s = growing_pauses_s(self._first_pause_s, _LONGEST_PAUSE_S)
        while not self._unwanted.is_set():
            is_last = self._is_last.is_set()
            try:
                self._copy_all()
                if is_last:
                    self._copy_records()  # what was measured since the last one
            except Exception as error:  # noqa: BLE001 - the border: a copy never ends a run
                failures, tries_left = failures + 1, tries_left - is_last
                self._tell(error, is_first=failures == 1, is_over=not tries_left)
                if not tries_left:
                    return
                self._pause(next(pauses_s))
                continue
            if failures:
                self._say(f"checkpoints are copied to {self._place.address} again")
                failures, pauses_s = 0, growing_pauses_s(self._first_pause_s, _LONGEST_PAUSE_S)
            if is_last:
                return
            self._is_last.wait(_LOOK_S)

    def _pause(self, pause_s: float) -> None:
        """Pause; at the end no longer than the first time."""
        if self._is_last.wait(pause_s):
            self._unwanted.wait(min(pause_s, self._first_pause_s))

    def _tell(self, error: Exception, *, is_first: bool, is_over: bool) -> None:
        if self._unwanted.is_set():
            return
        words = clean(" ".join(str(error).split())[:300])
        if is_over:
            self._say(
                f"checkpoint {max(self._missing(), default=0)} is not at {self._place.address} "
                f"({words}): resume={self._folder.path} copies it, also when nothing is left to "
                "learn"
            )
        elif is_first:
            self._say(f"no checkpoint is copied for now, which is tried again: {words}")

    def _missing(self) -> list[int]:
        """The newest first."""
        local = list_checkpoints(self._folder.checkpoints)
        return [
            version
            for version in sorted(local, reverse=True)
            if self._copied.get(version) != _number_on_disk(local[version])
        ]

    def _copy_all(self) -> None:
        while not self._unwanted.is_set() and (missing := self._missing()):
            version = missing[0]
            folder = list_checkpoints(self._folder.checkpoints).get(version)
            if folder is None:
                continue
            number = _number_on_disk(folder)
            try:
                link_folder(folder, self._staged)
            except FileNotFoundError:  # it went just now
                continue
            self._copy(self._staged, folder.name)
            self._copied[version] = number
            self._remove_others(version)

    def _copy(self, source: Path, name: str) -> None:
        files = [path for path in source.rglob("*") if path.is_file()]
        manifest = manifest_of({str(path.relative_to(source)): path for path in files})
        if not _covers(self._checkpoints.manifest(name), manifest):
            self._checkpoints.put(name, manifest)
            self._copy_records()
        shutil.rmtree(source, ignore_errors=True)

    def _copy_records(self) -> None:
        values = hidden(read_config_values(self._folder.config_file))
        records = {self._folder.config_file.name: yaml.safe_dump(values, sort_keys=False).encode()}
        there = self._place.names()
        for path in (self._folder.path / RUN_FILE, *files_of_log(self._folder.path / METRICS_FILE)):
            is_copied = path.name in there and is_full_file(path.name, METRICS_FILE)
            if path.is_file() and not is_copied:  # nobody writes a full one any more
                records[path.name] = path.read_bytes()
        for name, content in records.items():
            if self._place.get_bytes(name) != content:
                self._place.put_bytes(name, content)

    def _remove_others(self, version: int) -> None:
        """Remove there what the run's folder does not keep, except the newest that has come."""
        kept = {*list_checkpoints(self._folder.checkpoints), version}
        others = [n for n in self._checkpoints.names() if n.isdecimal() and int(n) not in kept]
        try:
            for name in others if self._may_remove else []:
                self._checkpoints.remove(name)
        except TransferError as error:
            self._may_remove = False
            self._say(clean(f"old checkpoints stay where they were copied: {error}"))


def _number_on_disk(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        return -1


def _covers(there: Manifest | None, here: Manifest) -> bool:
    """Whether all files are there: of an older checkpoint the learner's state may have gone."""
    return there is not None and {*here.files} <= {*there.files}
