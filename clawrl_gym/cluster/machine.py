"""A machine's report about itself to the cluster, before anything of ours is known to be there.

Ray carries this module to the machine by value: it needs only the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import platform
import time
from pathlib import Path
from typing import TypedDict


class Machine(TypedDict):
    """Versions and clock of one machine."""

    versions: dict[str, str]
    """Versions that have to be the same everywhere; "none" where it is not installed."""
    time_s: float
    """Unix time."""


def describe() -> Machine:
    """This machine; imports the package's own front door alone."""
    versions = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in ("ray", "clawrl_gym"):
        version = "none"
        with contextlib.suppress(Exception):  # whatever a broken installation raises
            module = importlib.import_module(name)
            version = str(module.__version__)
            if name == "clawrl_gym":
                version += f" (code {_code_digest(Path(str(module.__file__)).parent)})"
        versions[name] = version
    return {"versions": versions, "time_s": time.time()}


def _code_digest(package: Path) -> str:
    """Digest of all its modules: two checkouts of one version may differ."""
    digest = hashlib.sha256()
    for folder, below, names in os.walk(package, followlinks=True):
        below.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
