"""Installs agents for `agent=cli` and prints where they are: `python -m clawrl_gym.agents.cli
codex claude-code`."""

from __future__ import annotations

import sys

from clawrl_gym.agents.cli.installation import installed
from clawrl_gym.agents.cli.recipes import RECIPES
from clawrl_gym.core.errors import ConfigError


def main(names: list[str]) -> int:
    """Exit code."""
    unknown = [name for name in names if name not in RECIPES]
    if unknown or not names:
        sys.stderr.write(f"got {unknown or 'no agent'}, expected names of {', '.join(RECIPES)}\n")
        return 2
    for name in names:
        try:
            sys.stdout.write(f"{name} {installed(name)}\n")
        except ConfigError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
