"""`python -m clawrl_gym.envs.swe validate PATH`: is every instance what it says?

`make-bugs REPOSITORY OUT` makes instances of a repository of your own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from clawrl_gym.config import SandboxConfig
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.validate import count, main

PROG = "python -m clawrl_gym.envs.swe"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = 'PATH: "corpus", "easy", "composed", or a file, folder or data set of instances'
    parser.add_argument("--log-parser", help="swebench's parser for instances that name none")
    parser.add_argument("--test-command", help="how to run tests; {files} are the test files")
    parser.add_argument("--hub-split", default="test", help="split of a data set on the hub")


def _make(args: argparse.Namespace, sandbox: Mapping[str, object]) -> SweEnv:
    config: SweEnvConfig = args.config
    return SweEnv(**config.options())


def _prepare(
    args: argparse.Namespace, sandbox: Mapping[str, object], say: Callable[[str], None]
) -> None:
    args.config = _config(args, sandbox).settled(say)
    args.config.prepare(say)


def _config(args: argparse.Namespace, sandbox: Mapping[str, object]) -> SweEnvConfig:
    """Validation trains nothing: SWE-bench Verified needs no leave for it."""
    config = SweEnvConfig(
        instances=args.path,
        log_parser=args.log_parser,
        test_command=args.test_command,
        hub_split=args.hub_split,
        train_on_verified=True,
    )
    limits = config.sandbox.model_dump()
    return config.model_copy(update={"sandbox": SandboxConfig.of({**limits, **sandbox})})


def _commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from clawrl_gym.envs.swe.bugs.command import add_arguments, make_bugs

    command = commands.add_parser(
        "make-bugs", help="bugs in a repository of your own that its tests notice, as instances"
    )
    add_arguments(command, count)
    command.set_defaults(run=make_bugs)


def run(arguments: Sequence[str]) -> int:
    """Run the command: exit code 0 when all is well, 1 when something does not hold, 2 if wrong."""
    return main(PROG, _arguments, _make, arguments, prepare=_prepare, add_commands=_commands)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
