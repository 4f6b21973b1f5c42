"""python -m clawrl_gym.rollback runs/serve 12: weights of an earlier version serve and learn again.

python -m clawrl_gym.rollback runs/serve       # which versions are kept
python -m clawrl_gym.rollback runs/serve 12
python -m clawrl_gym.rollback runs/serve 7 --user anna    # of her own weights
python -m clawrl_gym.rollback runs/serve 12 --pin good    # is kept; canaries are held to it
python -m clawrl_gym.rollback runs/serve good             # comes back by its name
python -m clawrl_gym.rollback runs/serve --unpin good

Where the folder is served in, within seconds; else when the run resumes. The weights come back as
the next version, with the optimizer that they had.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from clawrl_gym.core.ownership import OWNER, user_named
from clawrl_gym.core.processes.interrupt import exit_code_of_short
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.versions import (
    kept_versions,
    named_version,
    pin_version,
    rollback_to,
    unpin_version,
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m clawrl_gym.rollback",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="the run's folder, runs/serve or runs/NAME")
    parser.add_argument(
        "version",
        nargs="?",
        metavar="VERSION",
        help="one of those that are kept, by its number or the name it is pinned by",
    )
    parser.add_argument(
        "--user",
        type=user_named,
        default=OWNER,
        metavar="NAME",
        help="whose weights; the run's own by default",
    )
    parser.add_argument(
        "--pin", metavar="NAME", help="keep the version under this name instead of going back to it"
    )
    parser.add_argument("--unpin", metavar="NAME", help="let this name go")
    options = parser.parse_args(arguments)
    if options.pin is not None and options.version is None:
        parser.error("got --pin without VERSION, expected one of those that are kept")
    if options.unpin is not None and (options.version is not None or options.pin is not None):
        parser.error("got --unpin with VERSION or --pin, expected it alone")
    return exit_code_of_short(lambda: _act(RunFolder(options.folder), options))


def _act(folder: RunFolder, options: argparse.Namespace) -> None:
    if options.unpin is not None:
        unpin_version(folder, options.unpin, options.user)
        sys.stdout.write(f"{options.unpin} is no longer pinned\n")
        return
    if options.version is None:
        return _list(folder, options.user)
    text = options.version
    version = int(text) if text.isdecimal() else named_version(folder, text, options.user)
    if options.pin is None:
        return _roll_back(folder, version, options.user)
    pin_version(folder, options.pin, version, options.user)
    sys.stdout.write(f"version {version} is kept as {options.pin}\n")


def _list(folder: RunFolder, user: str) -> None:
    versions = kept_versions(folder, user)
    if not versions:
        sys.stdout.write(f"{user} has no weights of their own yet\n")
    for kept in versions:
        made = "what the run began with" if user == OWNER else "the run's own, as they are then"
        if kept["created_s"] is not None:
            made = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept["created_s"]))
        again = "" if kept["returned_to"] is None else f"  version {kept['returned_to']} again"
        names = "".join(f"  [{name}]" for name in kept.get("pins", []))
        sys.stdout.write(f"{kept['version']}  {made}{again}{names}\n")


def _roll_back(folder: RunFolder, version: int, user: str) -> None:
    served_as = rollback_to(folder, version, user)
    name = f"{user}@" if user != OWNER else "version "
    if served_as is None:
        sys.stdout.write(f"{name}{version} is restored when the current update has ended\n")
    else:
        sys.stdout.write(f"{name}{version} is back, as {name}{served_as}\n")


if __name__ == "__main__":
    sys.exit(main())
