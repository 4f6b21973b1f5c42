"""Playing a task in the terminal: the page as text, its picture in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.envs.gui.watch.player import Player

_HELP = (
    'an action such as click(12), type(3, "pens"), press("Enter"), done(), answer("42"), '
    'give_up("why");\noracle: its next step; again: a new beginning; quit'
)


def play(
    player: Player, folder: Path | None, source: TextIO, out: TextIO, *, by_oracle: bool
) -> int:
    """Play until the input ends; returns the exit code: 0, or 1 if the oracle fails.

    Without a folder, screenshots are gone when it returns.
    """
    if folder is None:
        with Scratch("watch") as scratch:
            return play(player, scratch, source, out, by_oracle=by_oracle)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write screenshots to {str(folder)!r}: {error}") from error
    player.begin()
    _show(player, player.observation, folder, out)
    if by_oracle:
        while not player.is_over:
            player.oracle()
            _show_last(player, folder, out)
        return 0 if player.reward == 1.0 else 1
    out.write(f"{_HELP}\n")
    while True:
        out.write("> ")
        out.flush()
        line = source.readline()
        if not line or line.strip() in ("quit", "exit"):
            out.write("\n")
            return 0
        _obey(line.strip(), player, folder, out)


def _obey(line: str, player: Player, folder: Path, out: TextIO) -> None:
    if line == "again":
        player.begin()
        _show(player, player.observation, folder, out)
    elif line in ("", "help"):
        out.write(f"{_HELP}\n")
    elif player.is_over:
        out.write("the episode is over: again, or quit\n")
    else:
        try:
            player.oracle() if line == "oracle" else player.act(line)
        except TaskError as error:
            out.write(f"{error}\n")
            return
        _show_last(player, folder, out)


def _show_last(player: Player, folder: Path, out: TextIO) -> None:
    """Show the last words and their result."""
    if player.turns:
        last = player.turns[-1]
        out.write(f"> {last.text}\n")
        _show(player, last.observation, folder, out)
    if player.error:
        out.write(f"error: {player.error}\n")
    if player.is_over:
        film = player.env.film()
        if film is not None:
            (folder / "film.jpg").write_bytes(film)
            out.write(f"film: {folder / 'film.jpg'}\n")


def _show(player: Player, observation: str, folder: Path, out: TextIO) -> None:
    out.write(f"{observation}\n")
    if player.reward is not None:
        out.write(f"reward {player.reward:g}\n{player.env.report}\n")
    elif player.picture is not None:
        path = folder / f"{player.pictures:03d}.jpg"
        path.write_bytes(player.picture)
        out.write(f"screenshot: {path}\n")
