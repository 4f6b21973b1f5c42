"""The pictures of a run: files named by the hash of their bytes, beside the database.

A picture is on the disk before the turn that shows it is recorded, and goes with the last session
that shows it. Those of a run that is not recorded are in memory only, and gone with its end.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clawrl_gym.core.errors import StoreError, boundary
from clawrl_gym.core.pictures import digest_of_part

FOLDER = "images"
SUFFIXES = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp"}
_MEMORY = Path("/dev/shm")


def find_picture(folder: Path, digest: str) -> Path:
    """The file of a picture. Raises FileNotFoundError when it is not there any more."""
    for suffix in SUFFIXES:
        path = folder / f"{digest}.{suffix}"
        if path.exists():
            return path
    raise FileNotFoundError(f"the picture {digest} is not in {folder} (any more)")


class Album:
    """The pictures of one run; used by one process, read by the learner too."""

    def __init__(self, folder: Path | None) -> None:
        """None: the run is not recorded. The folder is made with the first picture."""
        self._folder = None if folder is None else folder / FOLDER
        self._in_memory = folder is None
        self._held: Counter[str] = Counter()

    @property
    def folder(self) -> Path:
        """Where the files lie; made when it is not there."""
        if self._folder is None:
            with boundary(StoreError, "keeping pictures of an unrecorded run in memory"):
                made = tempfile.mkdtemp(prefix="clawrl-images-", dir=_MEMORY)
            self._folder = Path(made)
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def keep(self, data: bytes, suffix: str) -> str:
        """Write a picture unless it is there; returns its hash once it is on disk. Blocks."""
        digest = hashlib.sha256(data).hexdigest()
        with boundary(StoreError, "writing a picture"):
            path = self.folder / f"{digest}.{suffix}"
            if not path.exists():
                self._write(path, data)
        return digest

    @contextmanager
    def held(self, digests: Collection[str]) -> Iterator[None]:
        """Pictures that no recorded turn shows yet stay inside."""
        self._held.update(digests)
        try:
            yield
        finally:
            self._held.subtract(digests)
            self._held += Counter()  # forget those that nobody holds

    def remove(self, digests: Iterable[str]) -> None:
        """Delete pictures that no session shows any more, but for those that are held. Blocks."""
        for digest in digests:
            if self._folder is not None and digest not in self._held:
                for suffix in SUFFIXES:
                    (self._folder / f"{digest}.{suffix}").unlink(missing_ok=True)

    def remove_others(self, shown: Collection[str]) -> None:
        """Delete all but these, what a kill left half written included."""
        if self._folder is not None and self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.stem not in shown:
                    path.unlink()

    def shown(self, messages: list[Any]) -> list[Any]:
        """The messages with the pictures themselves in place of their hashes, as the policy reads.

        Raises StoreError for a picture that was deleted.
        """
        return [self._shown(message) for message in messages]

    def close(self) -> None:
        if self._in_memory and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _shown(self, message: Any) -> Any:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._part(part) for part in content]}

    def _part(self, part: Any) -> Any:
        digest = digest_of_part(part)
        if digest is None:
            return part
        with boundary(StoreError, "reading a picture"):
            path = find_picture(self.folder, digest)
            data = base64.b64encode(path.read_bytes()).decode()
        kind = SUFFIXES[path.suffix.removeprefix(".")]
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}

    def _write(self, path: Path, data: bytes) -> None:
        """Whole or not at all, also after a power cut."""
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
        listing = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(listing)
        finally:
            os.close(listing)
