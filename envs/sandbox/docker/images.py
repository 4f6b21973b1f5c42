"""Docker images: ours, made on first use from the files in docker/; a task's, built and kept.

Ours need no image registry: where none answers, root makes their base from Debian's package
archive. A task's image is named by the content of its build context, so it is built once.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clawrl_gym.core.errors import SandboxError, TaskError, boundary
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.envs.sandbox.docker import build_context
from clawrl_gym.envs.sandbox.docker.engine import engine

Say = Callable[[str], None]
"""Takes one line of progress."""

BASE_IMAGE = "clawrl/base:1"
TERMINAL_IMAGE = "clawrl/terminal:1"
SWE_IMAGE = "clawrl/swe:1"
_OWN = {TERMINAL_IMAGE: "terminal.Dockerfile", SWE_IMAGE: "swe.Dockerfile"}
_REGISTRY_IMAGE = "debian:bookworm-slim"
_BASE_TIMEOUT_S = 1200.0
_LAST_LINES = 12
_LOCKS = Path("/tmp")
"""Where all processes of a user look, wherever each has its own temporary files."""


def ensure_image(name: str, say: Say = lambda line: None) -> None:
    """Have an image: ours are made, others pulled. Raises SandboxError naming it and the cure."""
    if _has(name):
        return
    with _exclusive(name):
        if _has(name):
            return
        if name == BASE_IMAGE:
            _make_base(say)
        elif name in _OWN:
            ensure_image(BASE_IMAGE, say)
            say(f"building the image {name}")
            _build(_folder(), _OWN[name], name, {}, _BASE_TIMEOUT_S, SandboxError)
        else:
            _pull(name, say)


def missing_image(name: str) -> str | None:
    """Message that an image is still to be built or pulled; None where it is there.

    Raises SandboxError where no engine answers.
    """
    return None if _has(name) else f"the image {name} is not there: it is made first, in minutes"


def build_image(
    context: Path,
    dockerfile: str = "Dockerfile",
    *,
    build_args: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
    say: Say = lambda line: None,
) -> str:
    """Build a task's image, or find it built; returns its name.

    `dockerfile` is relative to `context`; `.dockerignore` holds. Raises TaskError with the end of
    what the build said; the limit is on the build's silence and on the time until its next line.
    """
    args = dict(build_args or {})
    tag = f"clawrl/task:{build_context.digest(context, dockerfile, args)}"
    if _has(tag):
        return tag
    with _exclusive(tag):
        if not _has(tag):
            say(f"building the image of {context.name or context}")
            for base in build_context.bases(context / dockerfile):
                if base in _OWN or base == BASE_IMAGE:
                    ensure_image(base, say)
            _build(context, dockerfile, tag, args, timeout_s, TaskError)
    return tag


def _folder() -> Path:
    """The folder docker/ of this package."""
    return Path(__file__).resolve().parents[3] / "docker"


def _has(name: str) -> bool:
    from docker.errors import ImageNotFound

    with boundary(SandboxError, f"looking for the image {name!r}"):
        try:
            engine().images.get(name)
        except ImageNotFound:
            return False
    return True


def _pull(name: str, say: Say) -> None:
    from docker.errors import APIError

    say(f"pulling the image {name}")
    with boundary(SandboxError, f"pulling the image {name!r}"):
        try:
            engine().images.pull(name)
        except APIError as error:
            raise SandboxError(
                f"there is no image {name!r} here and it cannot be pulled: "
                f"{error.explanation or error}; build it, load it (docker load), or name another"
            ) from error


def _make_base(say: Say) -> None:
    say(f"making the image {BASE_IMAGE} (about a minute, once)")
    try:
        if not _has(_REGISTRY_IMAGE):
            _pull(_REGISTRY_IMAGE, say)
    except SandboxError:
        say("no image registry answers: making it from Debian's packages")
        _import_base()
        return
    _build(_folder(), "base.Dockerfile", BASE_IMAGE, {}, _BASE_TIMEOUT_S, SandboxError)


def _import_base() -> None:
    with Scratch("base") as work:
        archive = work / "base.tar"
        with archive.open("wb") as out:
            process = subprocess.run(
                [_folder() / "base.sh"],
                stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                timeout=_BASE_TIMEOUT_S, check=False,
            )  # fmt: skip
        if process.returncode:
            stderr = process.stderr.decode(errors="replace").strip()[-500:]
            raise SandboxError(
                f"could not make the image {BASE_IMAGE}: no registry answers for "
                f"{_REGISTRY_IMAGE}, and without one: {stderr}; have root build it once, or "
                "take sandbox=bubblewrap, which needs no image"
            )
        repository, _, tag = BASE_IMAGE.partition(":")
        with boundary(SandboxError, f"importing the image {BASE_IMAGE}"):
            engine().api.import_image(
                src=str(archive), repository=repository, tag=tag,
                changes=["ENV LANG=C.UTF-8", 'CMD ["/bin/bash"]'],
            )  # fmt: skip


def _build(
    context: Path,
    dockerfile: str,
    tag: str,
    args: Mapping[str, str],
    timeout_s: float,
    error: type[SandboxError] | type[TaskError],
) -> None:
    archive = build_context.archive(context, dockerfile)
    deadline = time.monotonic() + timeout_s
    log: list[str] = []
    with boundary(error, f"building the image of {str(context)!r}"):
        lines = engine().api.build(
            fileobj=io.BytesIO(archive), custom_context=True, dockerfile=dockerfile, tag=tag,
            buildargs=dict(args), rm=True, forcerm=True, decode=True, timeout=int(timeout_s) + 1,
        )  # fmt: skip
        for line in lines:
            text = _text_of(line)
            log += text.splitlines()
            if "error" in line or time.monotonic() > deadline:
                reason = text.strip() if "error" in line else f"no end within {timeout_s:g} s"
                tail = "\n".join(part for part in log[-_LAST_LINES:] if part.strip())
                raise error(f"building {dockerfile!r} of {str(context)!r}: {reason}\n{tail}")
    if not _has(tag):
        raise error(f"building {dockerfile!r} of {str(context)!r} made no image: {log[-3:]}")


def _text_of(line: Mapping[str, object]) -> str:
    return str(line.get("stream") or line.get("error") or line.get("status") or "")


@contextmanager
def _exclusive(name: str) -> Iterator[None]:
    """One process at a time makes an image."""
    key = hashlib.sha256(name.encode()).hexdigest()[:16]
    path = _LOCKS / f"clawrl-image-{os.getuid()}-{key}.lock"
    fd = _hold(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # ours while it is held
        os.close(fd)


def _hold(path: Path) -> int:
    """The lock file, held; one that its last holder has just removed is created again."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)
