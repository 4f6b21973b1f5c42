"""The user's own modules on their way to other machines.

A plug-in that is installed as a package is to be installed on every node. Of one that lies in a
folder, that folder's Python files travel, and packages beside it whole.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from clawrl_gym.config import CommandConfig, EnvConfig, RunConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import (
    AGENTS,
    ALGORITHMS,
    ENGINES,
    ENVIRONMENTS,
    LEARNERS,
    LOSSES,
    SANDBOXES,
)

_MAX_MB = 64
_LEFT_OUT = frozenset({"__pycache__", "clawrl_gym", "node_modules", "runs", "site-packages"})
"""This package itself too, which a checkout has beside the user's modules: every node has its own,
and a copy would hide it."""


def foreign_modules(config: CommandConfig, envs: Iterable[EnvConfig]) -> set[str]:
    """The top-level modules of plug-ins that are not this package's, as a run names them."""
    paths = [
        ALGORITHMS.path(config.trainer.algorithm),
        LOSSES.path(config.trainer.loss.type),
        LEARNERS.path(config.learner.backend),
        ENGINES.path(config.policy.engine),
    ]
    domains = config.domains.values() if isinstance(config, RunConfig) else ()
    types = {domain.agent.type for domain in domains} - set(AGENTS.words)
    paths += map(AGENTS.path, sorted(types))
    for env in envs:
        sandbox = getattr(env, "sandbox", None)
        if sandbox is not None and sandbox.type not in SANDBOXES.words:
            paths.append(SANDBOXES.path(sandbox.type))
        paths += [ENVIRONMENTS.path(env.type), getattr(env, "target", None) or ""]
        paths.append(getattr(env, "id", None) or "")
        paths += env.import_paths
    modules = {path.partition(":")[0].partition(".")[0] for path in paths if ":" in path}
    return modules - {"clawrl_gym", ""}


def stage(modules: Iterable[str], folder: Path) -> bool:
    """Copy what these modules need into a folder of nothing else; whether anything has to travel.

    Raises ConfigError where that is more than travels.
    """
    places = {place for name in modules if (place := _place_of(name)) is not None}
    room_bytes = _MAX_MB << 20
    for place in sorted(places):
        for file in _sources(place):
            room_bytes -= file.stat().st_size
            if room_bytes < 0:
                raise ConfigError(
                    f"got more than {_MAX_MB} MiB of Python modules in {place}, expected less, for "
                    "they travel to every node: put yours into a folder of their own, or install "
                    "them on every node"
                )
            target = folder / file.relative_to(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    return bool(places)


def _place_of(module: str) -> Path | None:
    """The folder of the import path that a module lies in; None for what is installed."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    origin = Path(spec.origin).resolve()
    place = origin.parent.parent if spec.submodule_search_locations else origin.parent
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "stdlib")}
    is_installed = any(place == folder or folder in place.parents for folder in installed)
    return None if is_installed or "site-packages" in place.parts else place


def _sources(place: Path, *, whole: bool = False) -> Iterator[Path]:
    """Python files below a folder, and all files of packages."""
    for path in sorted(place.iterdir()):
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            if (path / "pyvenv.cfg").exists() or path.resolve() == Path(sys.prefix).resolve():
                continue
            yield from _sources(path, whole=whole or (path / "__init__.py").exists())
        elif path.is_file() and (whole or path.suffix == ".py"):
            yield path
