"""`watch`: the command."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.envs.gui.watch.player import Player


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.add_argument("task", metavar="TASK", help="id of the task")
    parser.add_argument(
        "--tasks", default="generated", metavar="SOURCE",
        help="generated, miniwob, or the path of tasks in OSWorld's form",
    )  # fmt: skip
    parser.add_argument("--oracle", action="store_true", help="let the oracle play")
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: any)")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="HOST",
        help="a host of the internet that the task's pages may reach; repeatable",
    )  # fmt: skip
    parser.add_argument("--executable", metavar="PATH", help="path of Chromium")
    parser.add_argument(
        "--unsafe-no-isolation", action="store_true",
        help="accept that bubblewrap is missing on this host",
    )  # fmt: skip
    parser.add_argument("--terminal", action="store_true", help="no page: type in the terminal")
    parser.add_argument(
        "--folder", type=Path, default=None, metavar="PATH",
        help="with --terminal: folder for screenshots; without it they are deleted at the end",
    )  # fmt: skip


def watch(arguments: argparse.Namespace) -> int:
    """Play until the user ends it; returns the exit code."""
    try:
        if not 0 <= arguments.port <= 65_535:
            raise ConfigError(f"got --port {arguments.port}, expected 0 to 65535")
        return _watch(arguments)
    except ClawError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 0


def _watch(arguments: argparse.Namespace) -> int:
    from clawrl_gym.envs.gui.env import GuiEnv

    browser = {
        "executable": arguments.executable,
        "unsafe_no_isolation": arguments.unsafe_no_isolation,
    }
    env = GuiEnv(tasks=arguments.tasks, allow=arguments.allow, browser=browser)
    player = Player(env, arguments.task)
    if arguments.terminal:
        from clawrl_gym.envs.gui.watch.terminal import play

        try:
            return play(player, arguments.folder, sys.stdin, sys.stdout, by_oracle=arguments.oracle)
        finally:
            env.close()
    from clawrl_gym.envs.gui.watch.server import serve

    return serve(player, arguments.port, by_oracle=arguments.oracle)
