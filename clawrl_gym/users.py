"""python -m clawrl_gym.users: who may use a policy that is served, each with a key of their own.

python -m clawrl_gym.users add NAME       # their key, shown once
python -m clawrl_gym.users list
python -m clawrl_gym.users key NAME       # another key; the old one stops working
python -m clawrl_gym.users remove NAME    # with their sessions and all that was made from them

A user sees and deletes their own sessions; the owner, with the gateway's key, everybody's. It works
while serve runs and when it does not.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.processes.interrupt import exit_code_of_short
from clawrl_gym.store.users import USERS_FILE, User, Users

_OF_SERVING = ("config.yaml", USERS_FILE)
"""Files that show that somebody serves in a folder, or will."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of_short(lambda: options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clawrl_gym.users",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="add|list|key|remove")
    for name, run, help_ in (
        ("add", _add, "add a user and print their key"),
        ("list", _list, "list the users"),
        ("key", _key, "give a user another key and print it"),
        ("remove", _remove, "delete a user with everything of theirs"),
    ):
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(run=run)
        if name != "list":
            command.add_argument("name", metavar="NAME")
        if name == "add":
            command.add_argument(
                "--retention-days",
                type=_days,
                metavar="DAYS",
                help="delete their sessions so long after the end; as live.retention_days",
            )
        command.add_argument(
            "--dir",
            type=Path,
            default=Path("runs/serve"),
            metavar="PATH",
            help="the folder that is served in, serve's run.dir (default: runs/serve)",
        )
    return parser


def _add(options: argparse.Namespace) -> None:
    key = Users(_checked(options.dir, may_be_new=True)).add(options.name, options.retention_days)
    _write_key(options.name, key)


def _key(options: argparse.Namespace) -> None:
    _write_key(options.name, Users(_checked(options.dir)).renew_key(options.name))


def _write_key(name: str, key: str) -> None:
    """The key alone on standard output, so that a script can take it."""
    sys.stdout.write(f"{key}\n")
    sys.stderr.write(f"this is the key of {name}; it is shown this once and kept nowhere\n")


def _list(options: argparse.Namespace) -> None:
    users = Users(_checked(options.dir)).all()
    for user in users:
        sys.stdout.write(f"{_line_of(user)}\n")
    if not users:
        sys.stderr.write(f"no users in {options.dir}: whoever starts serve is the only one\n")


def _line_of(user: User) -> str:
    parts = [user.name, time.strftime("since %Y-%m-%d", time.localtime(user.added_s))]
    if user.retention_days is not None:
        parts.append(f"sessions kept for {user.retention_days:g} days")
    if user.is_leaving:
        parts.append("being removed")
    return "  ".join(parts)


def _remove(options: argparse.Namespace) -> None:
    from clawrl_gym.serving.users import remove_user

    asyncio.run(remove_user(_checked(options.dir), options.name))
    sys.stdout.write(
        f"{options.name} is removed with all sessions, weights and what was made of them; what "
        "weights that users share have learned of them stays\n"
    )


def _checked(folder: Path, may_be_new: bool = False) -> Path:
    """Raise ConfigError for what cannot be a folder that is served in."""
    if not folder.is_dir() and (not may_be_new or folder.exists()):
        raise ConfigError(
            f"got {str(folder)!r}, which is not a folder, expected the one that is served in: give "
            "--dir PATH, serve's run.dir"
        )
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names.isdisjoint(_OF_SERVING) and (names or not may_be_new):
        raise ConfigError(
            f"got {str(folder)!r}, in which nobody serves, expected the folder that is served in: "
            "give --dir PATH, serve's run.dir"
        )
    return folder


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 < days < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected days, more than 0")
    return days


if __name__ == "__main__":
    sys.exit(main())
