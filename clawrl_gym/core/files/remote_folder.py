"""A folder elsewhere, by fsspec: s3://BUCKET/PATH, gs://, sftp://, or a path that is mounted.

A folder of files put there counts once its manifest is there, which is written last: a reader sees
all of it or nothing, also where nothing can be renamed. Credentials are found where the protocol's
own package looks for them. All calls block.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from clawrl_gym.core.errors import ConfigError, TransferError, boundary
from clawrl_gym.core.files.transfer import (
    FileEntry,
    Manifest,
    check_arrived,
    check_name,
    check_room,
)

MANIFEST = "manifest.json"
_PROBE = ".may_write"
_OF_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "tos"}
"""Protocols that need no folders; creating one would create the bucket of a misspelt name."""
_ANSWER_S = 30.0


def is_address(text: str) -> bool:
    """Whether the text names a remote folder, not a path or a hub id."""
    return "://" in text


class RemoteFolder:
    """See the module's docstring."""

    def __init__(self, address: str) -> None:
        """Open an address. Raises ConfigError for one that fsspec cannot reach from here, and for
        one with a password, which would be kept wherever the address is."""
        if urlsplit(address).password:
            raise ConfigError(
                "got an address with a password, expected one without: give it where the "
                "protocol's own package looks (AWS_SECRET_ACCESS_KEY and its relatives, or "
                "~/.config/fsspec/)"
            )
        import fsspec

        try:
            self._files, self._path = fsspec.url_to_fs(address)
        except ImportError as error:
            raise ConfigError(
                f"got {address!r}, for which a package is missing ({error}): install it as of the "
                f"same version as fsspec, {fsspec.__version__}, where it follows that one"
            ) from error
        except Exception as error:
            raise ConfigError(
                f"got {address!r}, expected an address such as s3://BUCKET/PATH, or a folder: "
                f"{_first_line(error)}"
            ) from error
        self.address = address.rstrip("/")

    def below(self, *names: str) -> RemoteFolder:
        """A folder in this one."""
        return RemoteFolder("/".join((self.address, *names)))

    def check_writable(self, limit_s: float = _ANSWER_S) -> None:
        """Write a file and remove it again. Raises ConfigError."""
        failures: list[Exception] = []
        asking = threading.Thread(target=self._try_to_write, args=(failures,), daemon=True)
        asking.start()
        asking.join(limit_s)  # nobody knows how often a protocol's package tries again
        why = f"it did not answer within {limit_s:g} s" if asking.is_alive() else ""
        if failures:
            why = f"{type(failures[0]).__name__}: {_first_line(failures[0])}"
        if why:
            raise ConfigError(
                f"got {self.address!r}, where nothing can be written ({why}): check the address, "
                "its rights and the credentials"
            )

    def _try_to_write(self, failures: list[Exception]) -> None:
        probe = f"{self._path}/{_PROBE}"
        try:
            self._make_folder(self._path)
            self._files.pipe_file(probe, b"removed again at once\n")
            with contextlib.suppress(PermissionError):  # one may write there, and not remove
                self._files.rm_file(probe)
        except Exception as error:  # noqa: BLE001 - the border: each protocol has errors of its own
            failures.append(error)

    def _make_folder(self, path: str) -> None:
        if urlsplit(self.address).scheme not in _OF_BUCKETS:
            self._files.makedirs(path, exist_ok=True)

    def names(self) -> list[str]:
        """Names of the folders there, whole or not. Raises TransferError."""
        with boundary(TransferError, f"listing {self.address}"):
            self._files.invalidate_cache()
            try:
                paths = self._files.ls(self._path, detail=False)
            except FileNotFoundError:
                return []
            return sorted(PurePosixPath(path).name for path in paths)

    def manifest(self, name: str) -> Manifest | None:
        """Manifest of folder `name`; None unless it is there and whole. Raises TransferError."""
        with boundary(TransferError, f"reading {self.address}/{name}"):
            try:
                text = self._files.cat_file(f"{self._path}/{name}/{MANIFEST}")
                entries = tuple(FileEntry(**entry) for entry in json.loads(text)["files"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                return None
        for entry in entries:
            check_name(entry.name)
        return Manifest(entries, {})

    def put(self, name: str, manifest: Manifest) -> None:
        """Upload these files as the folder `name`. Raises TransferError."""
        with boundary(TransferError, f"writing {self.address}/{name}"):
            if self._files.exists(f"{self._path}/{name}/{MANIFEST}"):
                self.remove(name)
            for file in manifest.files:
                target = f"{self._path}/{name}/{file.name}"
                self._make_folder(str(PurePosixPath(target).parent))
                self._files.put_file(manifest.sources[file.name], target)
                if (size := self._files.size(target)) != file.size_bytes:
                    raise TransferError(
                        f"{self.address}/{name}/{file.name} has {size} bytes, expected "
                        f"{file.size_bytes}"
                    )
            files = [asdict(file) for file in manifest.files]
            self._files.pipe_file(
                f"{self._path}/{name}/{MANIFEST}", json.dumps({"files": files}, indent=1).encode()
            )

    def put_bytes(self, name: str, content: bytes) -> None:
        """Upload one small file. Raises TransferError."""
        with boundary(TransferError, f"writing {self.address}/{name}"):
            self._make_folder(self._path)
            self._files.pipe_file(f"{self._path}/{name}", content)

    def get_bytes(self, name: str) -> bytes | None:
        """Read one small file; None when it is missing. Raises TransferError."""
        with boundary(TransferError, f"reading {self.address}/{name}"):
            try:
                content: bytes = self._files.cat_file(f"{self._path}/{name}")
            except FileNotFoundError:
                return None
            return content

    def remove(self, name: str) -> None:
        """Remove a folder; it is not whole from the first moment on. Raises TransferError."""
        with boundary(TransferError, f"removing {self.address}/{name}"):
            place = f"{self._path}/{name}"
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(f"{place}/{MANIFEST}")
            with contextlib.suppress(FileNotFoundError):
                self._files.rm(place, recursive=True)

    def get(self, name: str, folder: Path, wanted: Callable[[str], bool]) -> None:
        """Download the wanted files of a whole folder, and its manifest, into the new `folder`.
        Raises TransferError."""
        manifest = self.manifest(name)
        if manifest is None:
            raise TransferError(f"{self.address}/{name} is not there, or not whole")
        files = tuple(file for file in manifest.files if wanted(file.name))
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with boundary(TransferError, f"fetching {self.address}/{name}"):
                partial.mkdir(parents=True, mode=0o700)
                check_room(partial, sum(file.size_bytes for file in files))
                for file in files:
                    self._get_file(name, file, partial / file.name)
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _get_file(self, name: str, file: FileEntry, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._files.get_file(f"{self._path}/{name}/{file.name}", str(target))
        check_arrived(file, target)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
