"""Copies of a repository's own modules among what is installed: the solution lies in them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.swe.bugs.suite import Suite
from clawrl_gym.envs.swe.rows.repository import open_repository

_TIMEOUT_S = 60.0
_PROGRAM = """\
import json, os, sys
for folder in sys.path:
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        for name in json.loads(sys.argv[1]):
            if os.path.exists(os.path.join(folder, name)):
                sys.exit(os.path.join(folder, name))
"""


def refuse_installed_copies(suite: Suite, paths: Iterable[str]) -> None:
    """Raises ConfigError when a sandbox shows an installed copy of one of these files."""
    names = json.dumps([path.removeprefix("src/") for path in paths])
    repository = open_repository(suite.instance, suite.sandboxes, _TIMEOUT_S)
    try:
        python = suite.command.split()[0] if suite.command.startswith("python") else "python3"
        program = shlex.join([python, "-c", _PROGRAM, names])
        result = repository.sandbox.exec(f"(cd / && {program}) </dev/null", _TIMEOUT_S)
    finally:
        repository.close()
    copy = result.output.strip()
    if result.exit_code == 1 and copy.startswith("/"):
        raise ConfigError(
            f"{copy!r} is an installed copy of the repository's own code, in which an agent would "
            "read the solution: uninstall it there, or install it with pip install -e"
        )
