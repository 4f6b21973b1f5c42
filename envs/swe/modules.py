"""Python modules of this machine that sandboxes without an image are shown: test frameworks.

Only the named modules, read-only, out of whatever folder they are installed in; nothing else of
that folder is seen.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

MODULES_FOLDER = "/opt/clawrl/python"
"""Where a sandbox has them; images have what they need and no such folder."""


@functools.cache
def module_mounts(names: tuple[str, ...]) -> Mapping[str, str]:
    """Files and folders of the modules that are installed here, by their paths in a sandbox."""
    sources = (source for name in names if (source := _source_of(name)) is not None)
    return MappingProxyType({f"{MODULES_FOLDER}/{path.name}": str(path) for path in sources})


def _source_of(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    path = Path(spec.origin).resolve()
    return path.parent if spec.submodule_search_locations else path
