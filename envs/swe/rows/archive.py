"""A repository packed into one file beside its instances: the work tree of one commit, as tar.gz.

The same files make the same bytes. Members are regular files and links of the repository; what an
archive of somebody else's holds is read in memory only, and unpacked in sandboxes only.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.swe.interpreter import interpreter_at
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.protected_files import files_named_by
from clawrl_gym.envs.swe.rows.runners import runner_of

MAX_BYTES = 64 << 20
"""Most bytes of a repository's files together."""
_LINK, _EXECUTABLE = 0o120000, 0o100755


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file of a commit."""

    data: bytes
    """Content of a file; target of a link."""
    git_mode: int = 0o100644


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed repository."""

    packed: bytes
    sha256: str
    texts: Mapping[str, str]
    """Python files by path, to find tests in."""
    names: frozenset[str]


def pack(files: Mapping[str, PackedFile]) -> bytes:
    """The files as tar.gz."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path, file in sorted(files.items()):
            member = tarfile.TarInfo(path)
            if file.git_mode == _LINK:
                member.type, member.linkname = tarfile.SYMTYPE, file.data.decode(errors="replace")
                archive.addfile(member)
            else:
                member.size = len(file.data)
                member.mode = 0o755 if file.git_mode == _EXECUTABLE else 0o644
                archive.addfile(member, io.BytesIO(file.data))
    return gzip.compress(plain.getvalue(), 6, mtime=0)


def open_archive(path: str) -> Archive:
    """The archive at a path, read once as long as it stays as it is. Raises TaskError."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise TaskError(f"the repository's archive {path!r}: {error.strerror}") from error
    return _read(path, status.st_mtime_ns, status.st_size)


def with_archive(instance: Instance, path: str, python: str) -> Instance:
    """The instance over a packed repository, whose tests `python` runs. Raises TaskError."""
    archive = open_archive(path)
    source = f"{instance.workdir}/src"
    has_source = any(name.startswith("src/") for name in archive.names)
    tests = files_named_by(instance.fail_to_pass)
    return replace(
        instance,
        archive=path,
        python=python,
        modules=runner_of("pytest").modules if interpreter_at(python).is_system else (),
        import_roots=(source, instance.workdir) if has_source else (instance.workdir,),
        test_files={test: archive.texts[test] for test in tests if test in archive.texts},
    )


@functools.lru_cache(maxsize=4)
def _read(path: str, _mtime_ns: int, size: int) -> Archive:
    if size > MAX_BYTES:
        raise TaskError(f"the repository's archive {path!r} has over {MAX_BYTES} bytes")
    try:
        packed = Path(path).read_bytes()
        names, texts = _members(packed)
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise TaskError(f"the repository's archive {path!r} cannot be read: {error}") from error
    return Archive(packed, hashlib.sha256(packed).hexdigest(), texts, names)


def _members(packed: bytes) -> tuple[frozenset[str], dict[str, str]]:
    texts = dict[str, str]()
    names, size = set[str](), 0
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for member in archive:
            names.add(member.name)
            size += member.size
            if size > MAX_BYTES:
                raise ValueError(f"its files have over {MAX_BYTES} bytes")
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None and member.name.endswith(".py"):
                texts[member.name] = file.read().decode(errors="surrogateescape")
    return frozenset(names), texts
