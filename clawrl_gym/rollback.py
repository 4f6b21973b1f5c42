"""python -m clawrl_gym.rollback runs/serve 12: weights of an earlier version serve and learn again.

python -m clawrl_gym.rollback runs/serve       # which versions are kept
python -m clawrl_gym.rollback runs/serve 12
python -m clawrl_gym.rollback runs/serve 7 --user anna    # of her own weights

Where the folder is served in, within seconds; else when the run goes on. The weights come back as
the next version, with the optimizer that they had.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from clawrl_gym.core.interrupt import exit_code_of_short
from clawrl_gym.core.ownership import OWNER, user_named
from clawrl_gym.run.folder import RunFolder
from clawrl_gym.run.versions import kept_versions, return_to


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m clawrl_gym.rollback",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="the run's folder, runs/serve or runs/NAME")
    parser.add_argument(
        "version", type=_version, nargs="?", metavar="VERSION", help="one of those that are kept"
    )
    parser.add_argument(
        "--user",
        type=user_named,
        default=OWNER,
        metavar="NAME",
        help="whose weights; the run's own by default",
    )
    options = parser.parse_args(arguments)
    folder = RunFolder(options.folder)
    if options.version is None:
        return exit_code_of_short(lambda: _list(folder, options.user))
    return exit_code_of_short(lambda: _return(folder, options.version, options.user))


def _list(folder: RunFolder, user: str) -> None:
    versions = kept_versions(folder, user)
    if not versions:
        sys.stdout.write(f"{user} has no weights of their own yet\n")
    for kept in versions:
        made = "what the run began with" if user == OWNER else "the run's own, as they are then"
        if kept["created_s"] is not None:
            made = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept["created_s"]))
        again = "" if kept["returned_to"] is None else f"  version {kept['returned_to']} again"
        sys.stdout.write(f"{kept['version']}  {made}{again}\n")


def _return(folder: RunFolder, version: int, user: str) -> None:
    served_as = return_to(folder, version, user)
    name = f"{user}@" if user != OWNER else "version "
    if served_as is None:
        sys.stdout.write(f"{name}{version} comes back when the update under way has ended\n")
    else:
        sys.stdout.write(f"{name}{version} is back, as {name}{served_as}\n")


def _version(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a version, such as 12")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
