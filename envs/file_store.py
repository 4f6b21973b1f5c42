"""Files of a simulated user: contents by path, in a dictionary and never on the machine."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

MAX_FILES = 64
MAX_CONTENT_CHARS = 65_536
MAX_PATH_CHARS = 200


class FileStoreError(Exception):
    """A path or a content that cannot be, in words for the model."""


class FileStore:
    """The files of one episode."""

    def __init__(self, files: Mapping[str, str], name: str, example: str) -> None:
        """`name` and a path in it, as an `example`, are what errors call it."""
        self.files = dict(files)
        """Contents by path."""
        self._name = name
        self._example = example

    def read(self, path: str) -> str:
        """The content of a file. Raises FileStoreError."""
        path = self._clean(path)
        if path not in self.files:
            raise FileStoreError(f"File not found: {path}")
        return self.files[path]

    def write(self, path: str, content: str) -> str:
        """Replace a file, and say so. Raises FileStoreError."""
        path = self._clean(path)
        if len(content) > MAX_CONTENT_CHARS:
            raise FileStoreError(f"the content is too long: at most {MAX_CONTENT_CHARS} characters")
        if path not in self.files and len(self.files) >= MAX_FILES:
            raise FileStoreError(f"too many files: at most {MAX_FILES}")
        self.files[path] = content
        return f"wrote {path}"

    def _clean(self, path: str) -> str:
        """A path below the store, written in one way."""
        clean = posixpath.normpath(path.strip()) if path.strip() else ""
        if not clean or clean in (".", "..") or clean.startswith(("/", "../")) or "\0" in clean:
            raise FileStoreError(f"expected a path below the {self._name}, such as {self._example}")
        if len(clean) > MAX_PATH_CHARS:
            raise FileStoreError(f"the path is too long: at most {MAX_PATH_CHARS} characters")
        return clean
