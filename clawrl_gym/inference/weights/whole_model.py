"""The whole model of a checkpoint that holds an adapter alone.

    runs/NAME/checkpoints/000050/adapter/     what was trained, a folder of PEFT
    runs/NAME/checkpoints/000050/base.json    what it stands on: a folder, and what its weights are
    ~/.cache/clawrl_gym/merged/DIGEST/        the sum, made when somebody first asks for it

The base is looked for in the run's own folder (`model/`), where the learner had it, and by the name
that the run's config.yaml has for it; only one with the very same weights is taken.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import cache_root, replace_text
from clawrl_gym.core.files.transfer import manifest_of
from clawrl_gym.inference.weights.adapter_files import ADAPTER, AdapterFiles, Deltas, write_sum
from clawrl_gym.inference.weights.cache import CachedModel, ModelCache
from clawrl_gym.inference.weights.checkpoints import KEPT_MODEL, WEIGHTS, run_of
from clawrl_gym.inference.weights.files import files_beside_weights, weight_files

_BASE = "base.json"
_LIMIT_BYTES = 32 << 30
_MARGIN_BYTES = 64 << 20

Find = Callable[[str], Path]
"""Finds the folder of a model by the name that `policy.model` has for it. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Base:
    """The frozen model that an adapter was trained beside."""

    folder: str
    """The learner's folder of it."""
    digest: str
    """Digest of its files of weights."""
    dtype: str
    """Element type of the weights in the learner."""
    names: dict[str, str] = field(default_factory=dict)
    """Weights that the files call otherwise than the adapter does."""

    def write(self, checkpoint: Path) -> None:
        replace_text(checkpoint / _BASE, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, checkpoint: Path) -> Base | None:
        """Read a checkpoint's base; None where it does not say. Raises ValueError."""
        path = checkpoint / _BASE
        if not path.is_file():
            return None
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error


def holds_adapter(folder: Path) -> bool:
    """Whether it is a checkpoint of an adapter, without the weights below it."""
    return (folder / _BASE).is_file() and not (folder / WEIGHTS).exists()


def digest_of(model: Path) -> str:
    """Digest of a model's weights: equal for equal files anywhere. Reads all of them, once."""
    files = weight_files(model)
    stats = tuple((name, str(path), *_stamp(path)) for name, path in sorted(files.items()))
    return _digest(stats)


def whole_model(checkpoint: Path, find: Find) -> Path:
    """A folder with the whole model, as engines and transformers load it; it stays while this
    process does. Raises ConfigError when the base is not at hand, or another one."""
    base = _base_of(checkpoint)
    key = hashlib.sha256(repr(base).encode())
    try:
        for path in sorted((checkpoint / ADAPTER).iterdir()):
            key.update(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the checkpoint {checkpoint} has no adapter that can be read ({error.strerror}), "
            "expected a whole one"
        ) from error
    return _made(key.hexdigest(), checkpoint, find).folder


def write_whole(checkpoint: Path, find: Find, out: Path, dtype: str | None) -> None:
    """Put the weights of the whole model into the folder `out`, in the element type `dtype`.

    Raises ConfigError.
    """
    base = _base_of(checkpoint)
    model = base_model(checkpoint, find)
    try:
        deltas = Deltas(AdapterFiles(checkpoint / ADAPTER), base.names)
        write_sum(model, deltas, out, learned_in=base.dtype, dtype=dtype)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the adapter of {checkpoint} cannot be added to {model}: {error}"
        ) from error


def base_model(checkpoint: Path, find: Find) -> Path:
    """The folder of the model that the checkpoint's adapter stands on. Raises ConfigError."""
    base = _base_of(checkpoint)
    others = []
    for folder in _places(checkpoint, base, find):
        try:
            if digest_of(folder) == base.digest:
                return folder
        except (OSError, ValueError):  # not whole
            continue
        others.append(str(folder))
    wanted = f"the model that it was trained beside ({base.folder}, weights {base.digest[:12]})"
    if others:
        raise ConfigError(
            f"the checkpoint {checkpoint} holds an adapter of another model than "
            f"{' and '.join(others)}: expected {wanted}; its weights were changed or replaced"
        )
    raise ConfigError(
        f"the checkpoint {checkpoint} holds an adapter, and {wanted} is not here: put it back, or "
        "take a folder that python -m clawrl_gym.export made where it was"
    )


def is_made(model: Path) -> bool:
    """Whether a model's folder was made here, and may be deleted when nobody uses it."""
    return model.parent == _cache_folder().resolve()


def _base_of(checkpoint: Path) -> Base:
    try:
        base = Base.read(checkpoint)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if base is None:
        raise ConfigError(f"got the checkpoint {checkpoint} without {_BASE}, expected a whole one")
    return base


def _places(checkpoint: Path, base: Base, find: Find) -> Iterator[Path]:
    """Folders in which the base may be, each once."""
    run = run_of(str(checkpoint))
    seen: set[Path] = set()
    for place in (None if run is None else run / KEPT_MODEL, Path(base.folder)):
        if place is not None and place.is_dir() and place.resolve() not in seen:
            seen.add(place.resolve())
            yield place.resolve()
    name = None if run is None else _model_in(run / "config.yaml")
    if name is None:
        return
    try:
        folder = find(name)
    except ConfigError:
        return
    if folder.resolve() not in seen:
        yield folder


def _model_in(config: Path) -> str | None:
    """`policy.model` of a run."""
    try:
        values = yaml.safe_load(config.read_text("utf-8"))
        return str(values["policy"]["model"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


@functools.lru_cache(maxsize=16)
def _digest(files: tuple[tuple[str, str, int, int], ...]) -> str:
    return manifest_of({name: Path(path) for name, path, _, _ in files}).digest


@functools.cache
def _made(digest: str, checkpoint: Path, find: Find) -> CachedModel:
    """Held by this process from now on."""
    model = base_model(checkpoint, find)
    size_bytes = sum(path.stat().st_size for path in weight_files(model).values())

    def make(folder: Path) -> None:
        for path in files_beside_weights(model):
            shutil.copyfile(path, folder / path.name)
        write_whole(checkpoint, find, folder, _dtype_in(model))

    try:
        return ModelCache(_cache_folder(), _LIMIT_BYTES).make(
            digest, make, size_bytes + _MARGIN_BYTES
        )
    except OSError as error:
        raise ConfigError(
            f"the model of the checkpoint {checkpoint} takes {size_bytes >> 20} MiB in "
            f"{_cache_folder()}: {error.strerror or error}; make room there"
        ) from error


def _dtype_in(model: Path) -> str | None:
    """The element type that the model's configuration names."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    name = config.get("dtype") or config.get("torch_dtype")
    return str(name) if name else None


def _cache_folder() -> Path:
    return cache_root() / "merged"
