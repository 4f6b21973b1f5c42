"""Files into and out of a container through the engine's archives.

The engine resolves every path inside the container, so no symbolic link leads out; only regular
files are touched and sizes are bounded.
"""

from __future__ import annotations

import base64
import io
import json
import posixpath
import stat
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import requests

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call
from clawrl_gym.envs.sandbox.files import too_many

_GO_DIR, _GO_SYMLINK = 1 << 31, 1 << 27
_GO_SPECIAL = _GO_DIR | _GO_SYMLINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19
_GO_BITS = {1 << 23: stat.S_ISUID, 1 << 22: stat.S_ISGID, 1 << 20: stat.S_ISVTX}
_LINKS = 8
"""Most links in a row that are followed."""
_TAR_BLOCKS = 8_192
"""Most bytes that an archive of one file may add to the file."""


@dataclass(frozen=True, slots=True)
class PathStatus:
    """Status of a path, links resolved."""

    path: str
    size: int
    go_mode: int

    @property
    def regular(self) -> bool:
        return not self.go_mode & _GO_SPECIAL

    @property
    def folder(self) -> bool:
        return bool(self.go_mode & _GO_DIR)

    @property
    def mode(self) -> int:
        bits = sum(bit for flag, bit in _GO_BITS.items() if self.go_mode & flag)
        return bits | self.go_mode & 0o777


def path_status(container: str, path: str) -> PathStatus:
    """FileNotFoundError when nothing is there, SandboxError when links go round in circles."""
    requested_path = path
    for _ in range(_LINKS):
        answer = _call("HEAD", container, path)
        if answer.status_code == 404:
            raise FileNotFoundError(f"{requested_path!r} is not in the sandbox")
        head = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
        status = PathStatus(path, int(head["size"]), int(head["mode"]))
        if not status.go_mode & _GO_SYMLINK:
            return status
        path = head["linkTarget"]
    raise SandboxError(f"cannot open {requested_path!r} in the sandbox: too many symbolic links")


def read_file(container: str, path: str, max_bytes: int) -> bytes:
    status = path_status(container, path)
    _check_regular(status, path)
    if status.size > max_bytes:
        raise SandboxError(f"{path!r} in the sandbox has {status.size} bytes, at most {max_bytes}")
    too_large = SandboxError(f"{path!r} in the sandbox has more than {max_bytes} bytes")
    with get(container, status.path) as stream:
        packed = stream.read(max_bytes + _TAR_BLOCKS)  # it may grow while it is read
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            member = archive.next()
            if member is None or not member.isreg():
                raise SandboxError(f"{path!r} in the sandbox is not a regular file")
            content = archive.extractfile(member)
            data = content.read() if content is not None else b""
    except tarfile.TarError as error:
        raise too_large from error
    if len(data) > max_bytes or len(data) != member.size:
        raise too_large
    return data


_KINDS = {
    tarfile.REGTYPE: stat.S_IFREG, tarfile.AREGTYPE: stat.S_IFREG, tarfile.LNKTYPE: stat.S_IFREG,
    tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.FIFOTYPE: stat.S_IFIFO,
    tarfile.CHRTYPE: stat.S_IFCHR, tarfile.BLKTYPE: stat.S_IFBLK,
}  # fmt: skip


def list_tree(container: str, path: str, max_entries: int) -> dict[str, int]:
    """The tree like `files.list_tree`, from the engine's archive of the folder."""
    status = path_status(container, path)
    if not status.folder:
        raise SandboxError(f"cannot open {path!r} in the sandbox: it is no folder")
    modes: dict[str, int] = {}
    with get(container, status.path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as packed:
                for member in packed:
                    _, _, below = posixpath.normpath(member.name).partition("/")
                    if below:
                        modes[below] = _KINDS.get(member.type, 0) | member.mode
                    if len(modes) > max_entries:
                        raise too_many(path, max_entries)
        except tarfile.TarError as error:
            raise SandboxError(f"cannot list {path!r} in the sandbox: {error}") from error
    return modes


def write_file(container: str, path: str, data: bytes, mode: int, owner: tuple[int, int]) -> None:
    """Write a file and its missing parents, owned by (uid, gid)."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in path:
        raise SandboxError(f"cannot write {path!r} in the sandbox: expected a path without '..'")
    target = "/" + "/".join(parts)
    try:
        status = path_status(container, target)
        _check_regular(status, path)
        target = status.path
    except FileNotFoundError:
        pass
    parent, missing = _parent(container, posixpath.dirname(target), path)
    name = posixpath.join(*missing, posixpath.basename(target))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for count in range(1, len(missing) + 1):
            folder = tarfile.TarInfo(posixpath.join(*missing[:count]))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            folder.uid, folder.gid = owner
            folder.mtime = int(time.time())
            archive.addfile(folder)
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), mode
        member.uid, member.gid = owner
        member.mtime = int(time.time())
        archive.addfile(member, io.BytesIO(data))
    put(container, parent, packed.getvalue(), f"cannot write {path!r} in the sandbox")


def put(container: str, folder: str, packed: bytes | IO[bytes], operation: str) -> None:
    """Unpack an archive in a folder of the container."""
    with engine_call(operation):
        answer = _request("PUT", container, {"path": folder}, packed=packed)
        _check_answer(answer, operation)


@contextmanager
def get(container: str, path: str) -> Iterator[IO[bytes]]:
    """The engine's archive of a path, as it comes."""
    with _call("GET", container, path, stream=True) as answer:
        if answer.status_code == 404:
            raise FileNotFoundError(f"{path!r} is not in the sandbox")
        with engine_call(f"reading {path!r}"):
            yield answer.raw


def _parent(container: str, folder: str, written_path: str) -> tuple[str, list[str]]:
    """The nearest folder above that is there, and the names that are missing below it."""
    missing: list[str] = []
    while True:
        try:
            status = path_status(container, folder)
        except FileNotFoundError:
            folder, name = posixpath.split(folder)
            missing.insert(0, name)
            continue
        if not status.folder:
            raise SandboxError(
                f"cannot write {written_path!r} in the sandbox: {folder!r} is no folder"
            )
        return status.path, missing


def _check_regular(status: PathStatus, path: str) -> None:
    if not status.regular:
        raise SandboxError(f"{path!r} in the sandbox is not a regular file")


def _call(method: str, container: str, path: str, *, stream: bool = False) -> requests.Response:
    operation = f"cannot open {path!r} in the sandbox"
    with engine_call(operation):
        answer = _request(method, container, {"path": path}, stream=stream)
    if answer.status_code == 404 and not _says_no_container(answer):
        return answer
    _check_answer(answer, operation)
    return answer


def _request(
    method: str,
    container: str,
    query: Mapping[str, str],
    *,
    packed: bytes | IO[bytes] | None = None,
    stream: bool = False,
) -> requests.Response:
    """One call of the engine's archive routes, of which the client offers no look without read."""
    api = engine().api
    url = f"{api.base_url}/v{api.api_version}/containers/{container}/archive"
    plain = {"Accept-Encoding": "identity"}
    answer: requests.Response = api.request(
        method,
        url,
        timeout=api.timeout,
        headers=plain,
        params=query,
        data=packed,
        stream=stream,
    )
    return answer


def _says_no_container(answer: requests.Response) -> bool:
    return answer.request.method != "HEAD" and "No such container" in answer.text


def _check_answer(answer: requests.Response, operation: str) -> None:
    if answer.ok:
        return
    try:
        reason = answer.json()["message"]
    except (ValueError, KeyError):
        reason = answer.reason
    raise SandboxError(f"{operation}: {reason}")
