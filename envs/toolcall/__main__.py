"""`python -m clawrl_gym.envs.toolcall validate PATH`: plays each task of a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.validate import main


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = 'PATH: "generated", "shop", "composed", "plain", or a file or folder of tasks'


def _make(arguments: argparse.Namespace, sandbox: Mapping[str, object]) -> ToolCallEnv:
    defaults = ToolCallEnvConfig().model_dump(exclude={"type", "id"})
    defaults |= {"tasks": arguments.path, "sandbox": {**defaults["sandbox"], **sandbox}}
    return ToolCallEnv(**defaults)


if __name__ == "__main__":
    sys.exit(main("python -m clawrl_gym.envs.toolcall", _arguments, _make))
