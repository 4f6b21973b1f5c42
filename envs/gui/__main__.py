"""`python -m clawrl_gym.envs.gui validate PATH` plays each task; `watch TASK` opens one to see."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.validate import main

PROG = "python -m clawrl_gym.envs.gui"


def run(arguments: Sequence[str]) -> int:
    """Run the command: exit code 0 when all is well, 1 for tasks that do not hold, 2 if wrong."""
    return main(PROG, _arguments, _make, arguments, add_commands=_commands)


def _commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from clawrl_gym.envs.gui.watch.command import add_arguments, watch

    command = commands.add_parser("watch", help="open one task to see it, or to play it yourself")
    add_arguments(command)
    command.set_defaults(run=watch)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        'PATH: "generated", "composed", "plain", "miniwob", or a file or folder of tasks'
    )
    parser.add_argument("--families", help="only these families, separated by commas")
    parser.add_argument(
        "--allow", action="append", default=[], help="a host that pages may reach; repeatable"
    )
    parser.add_argument("--executable", help="path of Chromium")
    parser.add_argument(
        "--unsafe-no-isolation",
        action="store_true",
        help="accept that bubblewrap is missing on this host",
    )


def _make(arguments: argparse.Namespace, sandbox: Mapping[str, Any]) -> GuiEnv:
    """`sandbox` is nothing to a browser, which has its own."""
    defaults = GuiEnvConfig().model_dump(exclude={"type", "id", "films"})
    browser = {
        "executable": arguments.executable,
        "unsafe_no_isolation": arguments.unsafe_no_isolation,
    }
    families = None if arguments.families is None else arguments.families.split(",")
    overrides = {"tasks": arguments.path, "families": families, "allow": arguments.allow}
    return GuiEnv(**{**defaults, **overrides, "browser": {**defaults["browser"], **browser}})


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
