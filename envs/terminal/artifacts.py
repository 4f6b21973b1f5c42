"""What a grader on a machine of its own gets of the agent's: declared files, and nothing else.

Only regular files and folders are handed over. A symbolic link could point at the grader's own
files, say at the expected answer, and is left out like devices and pipes.
"""

from __future__ import annotations

import io
import posixpath
import secrets
import shlex
import tarfile
from collections.abc import Sequence

from clawrl_gym.core.errors import EnvError, SandboxError
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.terminal.task import Artifact

MAX_FILES = 10_000
_PACK_S = 120.0


def collect_artifacts(
    sandbox: Sandbox, artifacts: Sequence[Artifact], max_bytes: int
) -> list[bytes]:
    """What there is of the artifacts, in order, together at most `max_bytes`."""
    archives: list[bytes] = []
    for artifact in artifacts:
        archive = pack_artifact(sandbox, artifact, max_bytes)
        if archive is not None and len(archive) <= max_bytes:
            max_bytes -= len(archive)
            archives.append(archive)
    return archives


def pack_artifact(sandbox: Sandbox, artifact: Artifact, max_bytes: int) -> bytes | None:
    """An artifact as a clean archive with paths relative to /; None when it is not there.

    What the agent made too large or odd to pack counts as not there: it must not be able to turn
    a grade into an error. Raises SandboxError when the sandbox is dead.
    """
    packed = f"/tmp/{secrets.token_hex(8)}.tar"
    excluded = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in artifact.exclude)
    path = artifact.source.strip("/")
    result = sandbox.exec(
        f"tar -C / {excluded} -cf {packed} -- {shlex.quote(path)} 2> /dev/null; test -s {packed}",
        _PACK_S,
    )
    if result.exit_code != 0:
        return None
    try:
        raw = sandbox.read(packed, max_bytes)
    except (OSError, SandboxError):
        sandbox.exec(":", _PACK_S)  # raises when that is why
        return None
    finally:
        sandbox.exec(f"rm -f {packed}", _PACK_S)
    return _cleaned(raw, path)


def unpack_artifact(sandbox: Sandbox, archive: bytes) -> None:
    """Put an archive of `pack_artifact` into a grader's sandbox. Raises EnvError on failure."""
    packed = f"/tmp/{secrets.token_hex(8)}.tar"
    sandbox.write(packed, archive)
    result = sandbox.exec(f"tar -C / --no-same-owner -xf {packed}; r=$?; rm -f {packed}; (exit $r)",
                        _PACK_S)  # fmt: skip
    if result.exit_code != 0:
        raise EnvError(f"could not hand artifacts to the grader: {result.output[-300:]!r}")


def _cleaned(raw: bytes, path: str) -> bytes | None:
    """The regular files and folders at and below `path`; None when nothing is left."""
    cleaned = io.BytesIO()
    count = 0
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(raw)) as old,
            tarfile.open(fileobj=cleaned, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member in old:
                name = posixpath.normpath(member.name)
                inside = name == path or name.startswith(f"{path}/")
                if not inside or not (member.isreg() or member.isdir()):
                    continue
                count += 1
                if count > MAX_FILES:
                    return None
                clean = tarfile.TarInfo(name)
                clean.type, clean.size = member.type, member.size
                clean.mode = 0o755 if member.isdir() else member.mode & 0o777
                new.addfile(clean, old.extractfile(member) if member.isreg() else None)
    except (tarfile.TarError, OSError, ValueError, EOFError):
        return None
    return cleaned.getvalue() if count else None
