"""Verdicts of a judge that reads a run's turns once more: a folder of their own in the run's.

`verdicts.jsonl` has a line a turn as soon as it is judged: numbers and the names of rules, and no
word of a conversation, so that nothing of a session is left here when it is deleted. `judge.json`
says whose verdicts they are; `rejudge.json` has the figures, once all turns are judged. What was
broken off is gone on with where judge and code are the same. One process at a time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Self

from clawrl_gym.config.rejudge import RejudgeConfig
from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.files.folder_lock import holder_of, lock_folder
from clawrl_gym.core.files.jsonl import JsonLines, each_json_line
from clawrl_gym.core.provenance import Start, describe_start
from clawrl_gym.core.redact import hidden
from clawrl_gym.judge.agreement import Rejudged

REJUDGED_FOLDER = "rejudged"
"""Folder in a run's folder, with a folder for each time that its turns were judged."""
SETTINGS_FILE = "judge.json"
VERDICTS_FILE = "verdicts.jsonl"
FIGURES_FILE = "rejudge.json"
LOCK_FILE = "rejudge.lock"
_SCHEMA = 1
_SAYS_NOTHING = {"folder", "examples", "dry_run"}
"""Keys that decide no verdict, and of the judge's:"""
_OF_HOW = {"base_url", "key", "concurrency", "max_waiting"}


class RejudgedRecord:
    """The writer of one such folder."""

    def __init__(self, folder: Path, lock: int) -> None:
        """Use `open`."""
        self.folder = folder
        self._lock: int | None = lock
        self.turns = {turn.turn_id: turn for turn in _each_rejudged(folder)}
        """Judged turns by id."""
        self._lines = JsonLines(folder / VERDICTS_FILE)

    @classmethod
    def open(cls, run: Path, config: RejudgeConfig) -> Self:
        """Go on with the newest folder in which the same was broken off, or begin a new one.

        Raises StoreError when it cannot be written.
        """
        start = describe_start()
        settings = _settings(config, start)
        folder = begun(run, config)
        if folder is None:
            folder = _new_folder(run / REJUDGED_FOLDER, config.judge.type.rpartition(":")[2])
        lock = lock_folder(folder, LOCK_FILE)
        try:
            starts = _read_settings(folder).get("starts")
            starts = [*starts, start] if isinstance(starts, list) else [start]
            content = json.dumps({**settings, "starts": starts}, indent=1)
            replace_text(folder / SETTINGS_FILE, content + "\n")
            return cls(folder, lock)
        except OSError as error:
            os.close(lock)
            raise StoreError(f"cannot write {folder / SETTINGS_FILE}: {error}") from error
        except BaseException:
            os.close(lock)
            raise

    def add(self, turn: Rejudged) -> None:
        """Write one turn. Raises StoreError when it cannot be written."""
        self._lines.append({"schema": _SCHEMA, **asdict(turn)})
        self.turns[turn.turn_id] = turn

    def finish(self, figures: Mapping[str, object]) -> None:
        """All turns are judged. Raises StoreError."""
        path = self.folder / FIGURES_FILE
        try:
            replace_text(path, json.dumps(figures, indent=1) + "\n")
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error}; every verdict is in {VERDICTS_FILE}: make room, "
                "and the same command writes the rest"
            ) from error

    def close(self) -> None:
        """Close it; idempotent."""
        self._lines.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def begun(run: Path, config: RejudgeConfig) -> Path | None:
    """The newest folder in which the same was broken off, and that nobody writes to."""
    wanted = _settings(config, describe_start())
    for path in sorted((run / REJUDGED_FOLDER).glob(f"*/{SETTINGS_FILE}"), reverse=True):
        folder = path.parent
        if (folder / FIGURES_FILE).exists() or holder_of(folder, LOCK_FILE):
            continue
        settings = _read_settings(folder)
        if all(settings.get(name) == value for name, value in wanted.items()):
            return folder
    return None


def _settings(config: RejudgeConfig, start: Start) -> dict[str, object]:
    """Settings that decide the verdicts."""
    values = config.model_dump(mode="json", exclude=_SAYS_NOTHING | {"judge"})
    judge = hidden(config.judge.model_dump(mode="json", exclude=_OF_HOW))
    code = {"version": start["versions"].get("clawrl-gym"), "commit": start["commit"]}
    return {"config": {**values, "judge": judge}, "code": code}


def _new_folder(parent: Path, name: str) -> Path:
    """A new folder named by the second; a second one in that second has a number, too."""
    stamp = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (stamp, *(f"{stamp}-{number}" for number in range(2, 1000)))
    return next(parent / one for one in names if not (parent / one).exists())


def _read_settings(folder: Path) -> dict[str, object]:
    """Read the settings; empty where there are none, or half of them."""
    try:
        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _each_rejudged(folder: Path) -> list[Rejudged]:
    """Read the judged turns. Raises ConfigError for a line of something else."""
    path = folder / VERDICTS_FILE
    try:
        rows = [
            {name: value for name, value in row.items() if name != "schema"}
            for row in each_json_line(path)
        ]
        return [Rejudged(**row) for row in rows]  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigError(
            f"cannot read {path}: {error}; remove {folder} to judge from the beginning"
        ) from error
