"""Files of the agent that reach a grader on a machine of its own: plain data, within bounds.

Files and folders travel, with nine permission bits and their times; devices, pipes and sockets do
not, nor does anything at another place than those that were asked for. A symbolic link could point
at the grader's own files, say at the expected answer: links travel only where that was asked for,
and only those that lead to what both machines have.
"""

from __future__ import annotations

import io
import posixpath
import re
import secrets
import shlex
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.terminal.steering import is_below, plain_git_config
from clawrl_gym.envs.terminal.task import Artifact

MAX_FILES = 50_000
_PACK_S = 60.0
_MOST_LINKS = 40
"""Most links in a row that are followed."""
_MODULE = re.compile(r"\.(py|so|pyd)$")
_GIT_SIGNS = ("HEAD", "objects", "refs", "commondir")
_GIT_CONFIGS = ("config", "config.worktree")
_LATEST_S = 1 << 33
_ONLY_GRADERS = ("/tests", "/logs", "/solution", "/oracle", "/proc", "/sys", "/dev", "/run", "/tmp")
"""Where a grader's machine differs from the agent's: no link may lead there."""


Wanted = Callable[[str, bytes | None], bool]
"""Whether something is taken, by its absolute path and, for a file, its content."""


def everything(path: str, data: bytes | None) -> bool:
    """All of it."""
    return True


@dataclass(frozen=True, slots=True)
class Plain:
    """Filter of what is taken from an archive."""

    places: tuple[str, ...]
    """Absolute paths: what is at them and below."""
    wanted: Wanted = everything
    links: bool = False
    """Symbolic links are taken, as far as they lead to what both machines have."""


def collect_artifacts(
    sandbox: Sandbox,
    artifacts: Sequence[Artifact],
    max_bytes: int,
    is_data: Wanted = everything,
) -> list[bytes]:
    """The artifacts that exist, in order, together at most `max_bytes`.

    In folders only what `is_data` says is taken; a file that is declared itself always is.
    """
    archives: list[bytes] = []
    for artifact in artifacts:
        archive = pack_artifact(sandbox, artifact, max_bytes, is_data)
        if archive is not None and len(archive) <= max_bytes:
            max_bytes -= len(archive)
            archives.append(archive)
    return archives


def pack_artifact(
    sandbox: Sandbox, artifact: Artifact, max_bytes: int, is_data: Wanted = everything
) -> bytes | None:
    """An artifact as a clean archive with paths relative to /; None when it is not there.

    What the agent made too large or odd to pack counts as not there: it must not be able to turn
    a grade into an error. Raises SandboxError when the sandbox is dead.
    """
    excluded = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in artifact.exclude)
    path = artifact.source.strip("/")
    raw = pack(sandbox, f"{excluded} -- {shlex.quote(path)}", max_bytes)
    source = f"/{path}"
    plain = Plain((source,), lambda name, data: name == source or is_data(name, data))
    return None if raw is None else cleaned(raw, plain, max_bytes)


def pack(sandbox: Sandbox, arguments: str, max_bytes: int, before: str = "") -> bytes | None:
    """A tar archive of these arguments below /; None where it cannot be packed or is too large.

    `before` is run first, in the same subshell. Raises SandboxError when the sandbox is dead.
    """
    name = f"{secrets.token_hex(8)}.tar"
    packed = f"/tmp/{name}"
    made = f"tar -C / --exclude={name} -cf {packed} {arguments} 2> /dev/null"
    made = f"( {before}; {made} )" if before else made
    result = sandbox.exec(f"{made}; test -s {packed}", _PACK_S)
    if result.exit_code != 0:
        return None
    try:
        return sandbox.read(packed, max_bytes)
    except (OSError, SandboxError):
        sandbox.exec(":", _PACK_S)  # raises when that is why
        return None
    finally:
        sandbox.exec(f"rm -f {packed}", _PACK_S)


def unpack(sandbox: Sandbox, archive: bytes) -> str:
    """Put a clean archive into a sandbox; what could not be unpacked, in words, else nothing."""
    packed = f"/tmp/{secrets.token_hex(8)}.tar"
    sandbox.write(packed, archive)
    result = sandbox.exec(
        f"tar -C / --no-same-owner -xpf {packed}; r=$?; rm -f {packed}; (exit $r)", _PACK_S
    )
    if result.exit_code == 0:
        return ""
    return f"not all that was left could be handed over: {result.output[-300:].strip()!r}"


def module_names(raw: bytes) -> set[str]:
    """Names of Python modules and packages in an archive, in any folder."""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            names = {posixpath.basename(m.name) for m in archive if m.isdir() or m.isreg()}
    except (tarfile.TarError, OSError, ValueError, EOFError):
        return set()
    stems = {name.partition(".")[0] for name in names if "." not in name or _MODULE.search(name)}
    return {stem for stem in stems if stem.isidentifier()}


def cleaned(raw: bytes, plain: Plain, max_bytes: int) -> bytes | None:
    """An archive of what is taken; None when nothing is, or it is no archive or too much."""
    made = io.BytesIO()
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(raw)) as old,
            tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            count = total = 0
            for member, data in _members(old, plain, max_bytes):
                count, total = count + 1, total + len(data or b"")
                if count > MAX_FILES or total > max_bytes:
                    return None
                new.addfile(member, None if data is None else io.BytesIO(data))
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError):
        return None
    return made.getvalue() if count else None


def _members(
    old: tarfile.TarFile, plain: Plain, max_bytes: int
) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Members that are taken, links last: nothing is ever written through one."""
    links: dict[str, str] = {}
    taken = list[str]()
    repositories = _repositories(old)
    for member in old:
        path = posixpath.join("/", posixpath.normpath(member.name))
        if not any(is_below(path, place) for place in plain.places):
            continue
        if _is_hook(path, repositories):
            continue
        if member.issym():
            links[path] = member.linkname
            continue
        data = _content(old, member, max_bytes) if member.isreg() or member.islnk() else None
        if (data is None and not member.isdir()) or not plain.wanted(path, data):
            continue
        folder, name = posixpath.split(path)
        if data is not None and folder in repositories and name in _GIT_CONFIGS:
            data = plain_git_config(data)
        taken.append(path)
        yield _plain_member(path, member, data), data
    if plain.links:
        yield from _safe_links(links, plain, taken)


def _repositories(archive: tarfile.TarFile) -> set[str]:
    """Folders that git would take for a repository, or for a part of one."""
    names: dict[str, set[str]] = {}
    for member in archive:
        folder, name = posixpath.split(posixpath.join("/", posixpath.normpath(member.name)))
        if name in _GIT_SIGNS:
            names.setdefault(folder, set()).add(name)
    return {folder for folder, signs in names.items() if "HEAD" in signs or len(signs) > 1}


def _is_hook(path: str, repositories: Collection[str]) -> bool:
    """Whether it is a repository's folder of hooks, or in it."""
    folders = (posixpath.split(each) for each in (path, *_above(path)))
    return any(name == "hooks" and folder in repositories for folder, name in folders)


def _content(old: tarfile.TarFile, member: tarfile.TarInfo, max_bytes: int) -> bytes | None:
    """A file's; of another name of a file that came before, that file's."""
    if member.size > max_bytes:
        raise OverflowError(f"{member.name!r} is too large")
    try:
        content = old.extractfile(member)
    except KeyError:  # a name of something that is not in the archive
        return None
    return None if content is None else content.read(max_bytes + 1)


def _plain_member(path: str, member: tarfile.TarInfo, data: bytes | None) -> tarfile.TarInfo:
    plain = tarfile.TarInfo(path.lstrip("/"))
    plain.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    plain.size = len(data or b"")
    plain.mode = member.mode & 0o777
    plain.mtime = min(max(int(member.mtime), 0), _LATEST_S)
    return plain


def _safe_links(
    links: Mapping[str, str], plain: Plain, taken: Iterable[str]
) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    folders = {above for path in taken for above in _above(path)}
    for path, target in links.items():
        end = _end_of(path, links, plain.places)
        is_odd = path in plain.places or path in folders or any(a in links for a in _above(path))
        is_safe = end is not None and not any(is_below(end, place) for place in _ONLY_GRADERS)
        if is_odd or not is_safe or not plain.wanted(path, None):
            continue
        member = tarfile.TarInfo(path.lstrip("/"))
        member.type, member.linkname = tarfile.SYMTYPE, target
        yield member, None


def _above(path: str) -> Iterator[str]:
    """The folders that a path is in."""
    while (path := posixpath.dirname(path)) != "/":
        yield path


def _end_of(path: str, links: Mapping[str, str], places: Sequence[str]) -> str | None:
    """Where a path leads through these links; None when that cannot be told from them alone."""
    ahead, behind, hops = path.strip("/").split("/"), list[str](), 0
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        here = "/" + "/".join(behind)
        if part == "..":
            if not any(is_below(here, place) for place in places):
                return None  # a link of the machine's own may be on the way
            behind = behind[:-1]
            continue
        behind.append(part)
        target = links.get("/" + "/".join(behind))
        if target is not None:
            hops += 1
            if hops > _MOST_LINKS:
                return None
            behind = [] if target.startswith("/") else behind[:-1]
            ahead = [*target.split("/"), *ahead]
    return "/" + "/".join(behind)
