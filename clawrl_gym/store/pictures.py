"""The pictures of a run: files named by the hash of their bytes, beside the database.

A picture is on the disk before the turn that shows it is recorded, and goes with the last session
that refers to it. Those of a run that is not recorded are in memory only, and gone with its end.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clawrl_gym.core.errors import DiskFull, StoreError, boundary
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.pictures import digest_of_part, pictures_of
from clawrl_gym.core.types import ContentPart, Message
from clawrl_gym.store.writer import Transaction

FOLDER = "images"
MEDIA_TYPES = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp"}
"""Media types by file suffix."""
_MEMORY = Path("/dev/shm")


def find_picture(folder: Path, digest: str) -> Path:
    """The file of a picture. Raises FileNotFoundError when it no longer exists."""
    for suffix in MEDIA_TYPES:
        path = folder / f"{digest}.{suffix}"
        if path.exists():
            return path
    raise FileNotFoundError(f"the picture {digest} is not (or no longer) in {folder}")


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PictureFiles:
    """The pictures of one run; used by one process, read by the learner too."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: the run is not recorded. The folder is made with the first picture."""
        self._folder = None if folder is None else folder / FOLDER
        self._scratch: Scratch | None = None
        self._pins: Counter[str] = Counter()

    @property
    def folder(self) -> Path:
        """Folder of the files; made when it is missing."""
        if self._folder is None:
            with boundary(StoreError, "keeping pictures of an unrecorded run in memory"):
                self._scratch = Scratch("images", _MEMORY)
                self._folder = self._scratch.path / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def add(self, image: bytes, suffix: str) -> str:
        """Write a picture unless it is there; returns its hash once it is on disk. Blocks."""
        digest = hashlib.sha256(image).hexdigest()
        with boundary(StoreError, "writing a picture"):
            path = self.folder / f"{digest}.{suffix}"
            try:
                if not path.exists():
                    _write_durably(path, image)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise DiskFull(f"cannot write a picture: {error}; make room") from error
                raise
        return digest

    @contextmanager
    def pinned(self, digests: Collection[str]) -> Iterator[None]:
        """Protect pictures inside that no recorded turn refers to yet."""
        self._pins.update(digests)
        try:
            yield
        finally:
            self._pins.subtract(digests)
            self._pins += Counter()  # drop the counts of zero

    def remove(self, digests: Iterable[str]) -> None:
        """Delete pictures that no session refers to, but for pinned ones. Blocks."""
        for digest in digests:
            if self._folder is not None and digest not in self._pins:
                for suffix in MEDIA_TYPES:
                    (self._folder / f"{digest}.{suffix}").unlink(missing_ok=True)

    def remove_all_but(self, digests: Collection[str]) -> None:
        """Delete all but these, what a kill left half written included."""
        if self._folder is not None and self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.stem not in digests:
                    path.unlink()

    def inline(self, messages: list[Message]) -> list[Message]:
        """The messages with the pictures themselves in place of their hashes, as the policy reads.

        Raises StoreError for a deleted picture.
        """
        return [self._inline_message(message) for message in messages]

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.remove()

    def _inline_message(self, message: Message) -> Message:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._inline_part(part) for part in content]}

    def _inline_part(self, part: ContentPart) -> ContentPart:
        digest = digest_of_part(part)
        if digest is None:
            return part
        with boundary(StoreError, "reading a picture"):
            path = find_picture(self.folder, digest)
            image_base64 = base64.b64encode(path.read_bytes()).decode()
        media_type = MEDIA_TYPES[path.suffix.removeprefix(".")]
        return {
            "type": "image_url",
            "image_url": {"url": f"data:{media_type};base64,{image_base64}"},
        }


def _write_durably(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, also after a power cut."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# Which session refers to which picture: parts of jobs for the writer.


def add_references(tx: Transaction, session_id: str, messages: Iterable[Message]) -> None:
    """Note the pictures of messages that are being recorded."""
    rows = [(session_id, digest) for digest in set(pictures_of(messages))]
    if rows:
        tx.db.executemany("INSERT OR IGNORE INTO pictures VALUES (?, ?)", rows)


def references_of(db: sqlite3.Connection, session_ids: Iterable[str]) -> set[str]:
    """The pictures of these sessions."""
    query = "SELECT digest FROM pictures WHERE session_id=?"
    return {digest for session_id in session_ids for (digest,) in db.execute(query, (session_id,))}


def all_references(db: sqlite3.Connection) -> set[str]:
    """The pictures of all sessions."""
    return {digest for (digest,) in db.execute("SELECT DISTINCT digest FROM pictures")}


def unreferenced(db: sqlite3.Connection, digests: Iterable[str]) -> list[str]:
    """The pictures among these that no session refers to."""
    query = "SELECT 1 FROM pictures WHERE digest=? LIMIT 1"
    return [digest for digest in digests if db.execute(query, (digest,)).fetchone() is None]
