"""Installs agents for `agent=cli`: `python -m clawrl_gym.agents.cli codex claude-code`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from clawrl_gym.agents.cli.installation import installed
from clawrl_gym.agents.cli.recipes import RECIPES
from clawrl_gym.core.errors import ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the named agents and print where they are; the exit code."""
    parser = argparse.ArgumentParser("python -m clawrl_gym.agents.cli", description=__doc__)
    parser.add_argument("name", nargs="+", choices=sorted(RECIPES), help="agent to install")
    for name in parser.parse_args(arguments).name:
        try:
            sys.stdout.write(f"{name} {installed(name)}\n")
        except ConfigError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
