"""Python modules of this machine that sandboxes without an image are shown: test frameworks.

Only the named modules with the metadata of their packages, in which pytest looks for versions;
read-only, out of whatever folder they are installed in. Nothing else of that folder is seen.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

MODULES_FOLDER = "/opt/clawrl/python"
"""Where a sandbox has them; images have what they need and no such folder."""


@functools.cache
def module_mounts(names: tuple[str, ...]) -> Mapping[str, str]:
    """Files and folders of the modules that are installed here, by their paths in a sandbox."""
    sources = [(name, source) for name in names if (source := _source_of(name)) is not None]
    paths = [path for name, source in sources for path in (source, *_metadata_of(name, source))]
    return MappingProxyType({f"{MODULES_FOLDER}/{path.name}": str(path) for path in paths})


def _metadata_of(name: str, source: Path) -> list[Path]:
    try:
        folder = source.parent / f"{name}-{version(name)}.dist-info"
    except PackageNotFoundError:
        return []
    return [folder] if folder.is_dir() else []


def _source_of(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    path = Path(spec.origin).resolve()
    return path.parent if spec.submodule_search_locations else path
