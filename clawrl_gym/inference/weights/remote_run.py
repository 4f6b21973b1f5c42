"""A run whose checkpoints were copied elsewhere (`learner.remote_checkpoints`), as a folder here.

    ~/.cache/clawrl_gym/remote/DIGEST/NAME/    config.yaml, run.json, metrics.jsonl
        checkpoints/000050/                    without the learner's own state

The digest is the address's. What was fetched is fetched again only when something else is there by
now; nothing deletes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawrl_gym.core.errors import ConfigError, TransferError
from clawrl_gym.core.files.files import cache_root
from clawrl_gym.core.files.log_files import is_full_file
from clawrl_gym.core.files.remote_folder import RemoteFolder, is_address
from clawrl_gym.core.metrics import METRICS_FILE
from clawrl_gym.core.provenance import RUN_FILE
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, LEARNER, checkpoint_dir, pinned

_RECORDS = ("config.yaml", RUN_FILE, METRICS_FILE)


def pinned_model(model: str) -> str:
    """A fixed name for `policy.model`, so that it means the same tomorrow: a run's folder as its
    newest checkpoint, an address as what was fetched from there; others as given. Raises
    ConfigError."""
    return str(fetched_model(model)) if is_address(model) else pinned(model)


def fetched_model(address: str) -> Path:
    """The checkpoint that an address names, fetched if need be; of a run its newest.

    Raises ConfigError.
    """
    head, _, name = address.rstrip("/").rpartition("/")
    is_checkpoint = name.isdecimal() and head.endswith(f"/{CHECKPOINTS}")
    run = RemoteRun(head.removesuffix(f"/{CHECKPOINTS}") if is_checkpoint else address)
    checkpoints = run.checkpoints()
    number = int(name) if is_checkpoint else max(checkpoints)
    if number not in checkpoints:
        raise ConfigError(
            f"{run.address} has no checkpoint {number}, expected one of "
            f"{', '.join(map(str, checkpoints))}"
        )
    run.fetch_records()
    return run.fetch(number)


class RemoteRun:
    """See the module's docstring."""

    def __init__(self, address: str) -> None:
        """Open an address. Raises ConfigError."""
        self._place = RemoteFolder(address)
        self.address = self._place.address
        digest = hashlib.sha256(self.address.encode()).hexdigest()[:16]
        self.folder = cache_root() / "remote" / digest / self.address.rpartition("/")[2]
        """Its folder here, as far as it was fetched."""

    def checkpoints(self) -> dict[int, Path]:
        """Checkpoints that are whole there, the oldest first, and the folder of each once it is
        fetched.

        Raises ConfigError when there is none.
        """
        there = self._place.below(CHECKPOINTS)
        with _refusals():
            names = [name for name in there.names() if name.isdecimal()]
            whole = sorted(int(name) for name in names if there.manifest(name) is not None)
        if not whole:
            raise ConfigError(
                f"{self.address} holds no whole checkpoint, expected ADDRESS/NAME of a run with "
                "learner.remote_checkpoints=ADDRESS, or one of its checkpoints"
            )
        return {number: checkpoint_dir(self.folder / CHECKPOINTS, number) for number in whole}

    def fetch_records(self) -> None:
        """Have its configuration and what was measured. Raises ConfigError."""
        with _refusals(), self._alone():
            full = [name for name in self._place.names() if is_full_file(name, METRICS_FILE)]
            for name in (*_RECORDS, *full):
                content = self._place.get_bytes(name)
                if content is not None:
                    (self.folder / name).write_bytes(content)

    def fetch(self, number: int) -> Path:
        """Have the checkpoint after this update. Raises ConfigError."""
        folder = checkpoint_dir(self.folder / CHECKPOINTS, number)
        there = self._place.below(CHECKPOINTS)
        fetched = folder.with_name(f".{folder.name}.digest")
        with _refusals(), self._alone():
            manifest = there.manifest(folder.name)
            digest = "" if manifest is None else manifest.digest
            if folder.is_dir() and fetched.is_file() and fetched.read_text() == digest:
                return folder
            shutil.rmtree(folder, ignore_errors=True)
            there.get(folder.name, folder, lambda name: not name.startswith(f"{LEARNER}/"))
            fetched.write_text(digest)
        return folder

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Others who fetch it wait."""
        (self.folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.folder.with_name(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise fetch errors as ConfigError."""
    try:
        yield
    except (TransferError, OSError) as error:
        raise ConfigError(" ".join(str(error).split())[:500]) from error
