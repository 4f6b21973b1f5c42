"""python -m clawrl_gym.connect CLIENT: point a client at a policy that is served.

python -m clawrl_gym.connect claude-code             # the gateway of `make serve`
python -m clawrl_gym.connect codex --url http://HOST:8808 --key KEY
python -m clawrl_gym.connect codex --print           # what would be written
python -m clawrl_gym.connect codex --undo            # as it was before

It sets the base URL, the key and the model in the client's own settings, and touches no other one.
Clients: openclaw, claude-code, codex, opencode, pi, aider, open-webui, librechat.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from clawrl_gym.clients.catalogue import CLIENTS
from clawrl_gym.clients.client import Client, Gateway, Home, SettingsFile
from clawrl_gym.clients.connection import Change, Connection
from clawrl_gym.clients.served import served_gateway
from clawrl_gym.core.processes.interrupt import exit_code_of_short

_PROBE_S = 3.0
_NO_GATEWAY = Gateway("http://127.0.0.1", "none")
"""For an undo, which needs none."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of_short(lambda: (_undo if options.undo else _connect)(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m clawrl_gym.connect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("client", choices=CLIENTS, metavar="CLIENT")
    parser.add_argument("--undo", action="store_true", help="restore what was there before")
    parser.add_argument("--print", action="store_true", help="show the files, write nothing")
    parser.add_argument("--url", help="the gateway's address (default: that of --dir)")
    parser.add_argument("--key", help="the gateway's or a user's key (default: that of --dir)")
    parser.add_argument("--model", default="policy", help="the model's name (default: policy)")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("runs/serve"),
        metavar="PATH",
        help="the folder that is served in, serve's run.dir (default: runs/serve)",
    )
    return parser


def _connect(options: argparse.Namespace) -> None:
    client: Client = CLIENTS[options.client]
    gateway = served_gateway(options.dir, options.model, options.url, options.key)
    home = _home()
    files = client.files(home, gateway)
    connection = _connection(options.client, home, files)
    changes = connection.changes()
    if options.print:
        for change in changes:
            sys.stdout.write(f"# {change.path}\n{change.text}")
        return
    if any(change.is_new for change in changes):
        connection.carry_out(changes)
    for change in changes:
        sys.stdout.write(f"{'wrote' if change.is_new else 'unchanged:'} {change.path}\n")
    if shutil.which(client.program) is None:
        sys.stderr.write(f"{client.title} is not installed here: found no {client.program}\n")
    if not _answers(gateway.url):
        sys.stderr.write(f"no gateway answers at {gateway.url} yet: make serve\n")
    start = client.start.format(files=" ".join(str(file.path) for file in files))
    sys.stdout.write(
        f"start it: {start}\n"
        f"back to what was there: python -m clawrl_gym.connect {options.client} --undo\n"
    )


def _undo(options: argparse.Namespace) -> None:
    home = _home()
    files = CLIENTS[options.client].files(home, _NO_GATEWAY)
    connection = _connection(options.client, home, files)
    changes = connection.undoing()
    if not changes:
        sys.stdout.write(f"nothing to undo: {options.client} was not connected\n")
        return
    if options.print:
        for change in changes:
            sys.stdout.write(f"# {change.path}\n{_or_removed(change)}")
        return
    connection.carry_out(changes)
    for change in changes:
        sys.stdout.write(f"{'removed' if change.text is None else 'restored'} {change.path}\n")


def _or_removed(change: Change) -> str:
    return "(removed)\n" if change.text is None else change.text


def _home() -> Home:
    return Home(Path.home(), os.environ)


def _connection(name: str, home: Home, files: Sequence[SettingsFile]) -> Connection:
    folder = home.path("XDG_STATE_HOME", ".local/state", "clawrl_gym", "connect")
    return Connection(folder / f"{name}.json", files)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=_PROBE_S) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main())
