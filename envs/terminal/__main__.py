"""python -m clawrl_gym.envs.terminal validate PATH: play every task of a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.validate import main

_MAX_TURNS = 10_000
"""An oracle may take as many commands as it has."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-timeout", type=float, default=600.0, metavar="SECONDS", help="for one command"
    )
    parser.add_argument("--memory-mb", type=int, default=2048, help="memory of one sandbox")
    parser.add_argument("--disk-mb", type=int, default=1024, help="disk of one sandbox")


def _sandbox(args: argparse.Namespace, sandbox: Mapping[str, object]) -> dict[str, object]:
    defaults = TerminalEnvConfig().sandbox.model_dump()
    limits = {"memory_mb": args.memory_mb, "disk_mb": args.disk_mb, "pids": 256}
    return {**defaults, **limits, **sandbox}


def _make(args: argparse.Namespace, sandbox: Mapping[str, object]) -> TerminalEnv:
    return TerminalEnv(
        tasks=args.path,
        max_turns=_MAX_TURNS,
        command_timeout_s=args.command_timeout,
        sandbox=_sandbox(args, sandbox),
    )


def _prepare(
    args: argparse.Namespace, sandbox: Mapping[str, object], say: Callable[[str], None]
) -> None:
    TerminalEnv.prepare(TerminalEnvConfig.of({"sandbox": _sandbox(args, sandbox)}), say)


if __name__ == "__main__":
    sys.exit(main("python -m clawrl_gym.envs.terminal", _arguments, _make, prepare=_prepare))
