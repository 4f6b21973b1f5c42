"""`python -m clawrl_gym.envs.dataset validate DATA --reward PATH`: plays each row's answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from clawrl_gym.envs.dataset.env import DatasetEnv
from clawrl_gym.envs.validate import main


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "PATH: value of env.data"
    parser.add_argument("--reward", default="exact", help="value of env.reward: one function")
    parser.add_argument("--prompt", help="value of env.prompt")
    parser.add_argument("--answer", default="answer", help="value of env.answer")


def _make(arguments: argparse.Namespace, sandbox: Mapping[str, object]) -> DatasetEnv:
    return DatasetEnv(
        data=arguments.path,
        reward=arguments.reward,
        prompt=arguments.prompt,
        answer=arguments.answer,
    )


if __name__ == "__main__":
    sys.exit(main("python -m clawrl_gym.envs.dataset", _arguments, _make))
