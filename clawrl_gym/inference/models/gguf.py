"""A model in a GGUF file, as the Hugging Face folder that engine and learner load.

    ~/.cache/clawrl_gym/converted/DIGEST/        made when somebody first asks for it
    ~/.cache/clawrl_gym/converted/DIGEST.lock    held by whoever uses the model, or makes it

The weights are the file's own values: in float32 where it is quantized, else in its 16 bits. A
process of its own converts (`gguf_conversion.py`), so that nobody who only asks loads torch.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import cache_root
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.inference.weights.cache import CachedModel, ModelCache

SUFFIX = ".gguf"
CONVERTED = "converted"
_FORM = 1
"""Raised when conversion makes something else of the same file."""
_TIMEOUT_S = 3600.0
REFUSED = 3
"""Exit code of the converting process for a file that it cannot convert; why is on stdout."""


def gguf_of(path: Path) -> Path | None:
    """The GGUF file that a path means: itself, or the only one in a folder without another model.

    Raises ConfigError for a folder with several, and for a part of a model.
    """
    if path.is_file():
        return _whole(path) if path.suffix == SUFFIX else None
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files or (path / "config.json").exists():
        return None
    if len(files) > 1:
        raise ConfigError(
            f"policy.model={str(path)!r} holds {len(files)} GGUF files "
            f"({', '.join(file.name for file in files[:4])}), expected one: give the file itself"
        )
    return _whole(files[0])


def converted(file: Path) -> Path:
    """The folder made of a GGUF file; it stays while this process does. Raises ConfigError."""

    def fill(folder: Path) -> None:
        convert(file, folder)

    return make_converted(digest_of(file), fill, file.stat().st_size, str(file))


def make_converted(digest: str, fill: Callable[[Path], None], size_bytes: int, source: str) -> Path:
    """The folder made of the GGUF file with this SHA-256, by `fill` unless it is here by now.

    `source`: what is told of where it comes from. Raises ConfigError.
    """
    try:
        return _held(_key(digest), fill, size_bytes).folder
    except OSError as error:
        raise ConfigError(
            f"the model made of {source} takes {size_bytes >> 20} MiB in {_cache_folder()}: "
            f"{error.strerror or error}; make room there"
        ) from error


def find_converted(digest: str) -> Path | None:
    """The folder made of the GGUF file with this SHA-256, if it is here."""
    folder = _cache_folder() / _key(digest)
    if not folder.is_dir():
        return None
    try:
        return _held(_key(digest), _gone, 0).folder
    except OSError:
        return None


def digest_of(file: Path) -> str:
    """The file's SHA-256, read once as long as nobody writes it."""
    stat = file.stat()
    return _digest(str(file.resolve()), stat.st_size, stat.st_mtime_ns)


def convert(file: Path, folder: Path) -> None:
    """Fill an empty folder from a GGUF file, by a process of its own. Raises ConfigError."""
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            "a GGUF file is read with the package gguf, which is not installed; run: "
            f"{how_to_install('gguf')}"
        )
    say(
        f"{file.name}: converting {file.stat().st_size >> 20} MiB of GGUF to a Hugging Face folder "
        f"in {_cache_folder()}; this happens once"
    )
    started_s = time.monotonic()
    argv = [
        sys.executable,
        "-m",
        "clawrl_gym.inference.models.gguf_conversion",
        str(file),
        str(folder),
    ]
    done = run(argv, {"HF_HUB_OFFLINE": "1"}, f"converting {file}")
    if done.returncode == REFUSED:
        raise ConfigError(done.stdout.strip())
    if done.returncode:
        raise ConfigError(
            f"the GGUF file {file} could not be converted ({ended(done)}), expected a model of a "
            "kind that transformers reads"
        )
    if done.stdout.strip():
        say(f"{file.name}: {done.stdout.strip()}")
    say(f"{file.name}: converted in {time.monotonic() - started_s:.0f} s")


def run(argv: list[str], variables: dict[str, str], what: str) -> subprocess.CompletedProcess[str]:
    """A process that shows its progress where somebody looks. Raises ConfigError on a time-out."""
    shown = None if sys.stderr.isatty() else subprocess.PIPE
    try:
        return subprocess.run(
            argv,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=shown,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{what} took more than {_TIMEOUT_S:.0f} s and was ended") from error


def ended(done: subprocess.CompletedProcess[str]) -> str:
    """The end of a failed process, in a line."""
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}; the machine may be out of memory"
    lines = [line.strip() for line in (done.stderr or "").splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit code {done.returncode}"


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _whole(file: Path) -> Path:
    stem = file.stem.rpartition("-of-")
    if stem[2].isdecimal() and stem[0].rpartition("-")[2].isdecimal() and int(stem[2]) > 1:
        raise ConfigError(
            f"the GGUF file {file} is one part of {int(stem[2])}, expected a whole model: join the "
            "parts with llama.cpp's llama-gguf-split --merge"
        )
    return file


def _key(digest: str) -> str:
    """Names the folder: the same file converted by another transformers may be another one."""
    text = f"{digest} {_FORM} {metadata.version('transformers')}"
    return hashlib.sha256(text.encode()).hexdigest()


@functools.lru_cache(maxsize=16)
def _digest(path: str, size_bytes: int, mtime_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_HELD: dict[Path, CachedModel] = {}


def _held(key: str, fill: Callable[[Path], None], size_bytes: int) -> CachedModel:
    """Held by this process from now on."""
    folder = _cache_folder() / key
    if folder not in _HELD:
        _HELD[folder] = ModelCache(_cache_folder()).make(key, fill, size_bytes)
    return _HELD[folder]


def _gone(folder: Path) -> None:
    raise FileNotFoundError(str(folder))


def _cache_folder() -> Path:
    return cache_root() / CONVERTED
