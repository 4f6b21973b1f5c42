"""Every attempt of an evaluation, a line in `episodes.jsonl` as soon as it has ended.

What is graded is on the disk before anything else happens, and is never asked again; what was lost
is a line, too, since it cost tokens, and is tried again at the next start. One process at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from clawrl_gym.core.errors import ConfigError, PolicyError, StoreError
from clawrl_gym.core.files.folder_lock import holder_of, in_use, lock_folder
from clawrl_gym.core.files.jsonl import JsonLines, each_json_line
from clawrl_gym.core.progress import NowAndThen
from clawrl_gym.core.provenance import git_commit
from clawrl_gym.core.types import Answer, Episode, StopReason, TaskRef, Transcript
from clawrl_gym.evaluation.settings import (
    EVALUATION_FILE,
    SETTINGS_FILE,
    Settings,
    continued,
    read_settings,
    write_settings,
)

EPISODES_FILE = "episodes.jsonl"
LOCK_FILE = "evaluation.lock"
_SILENT_ATTEMPTS = 8
"""Attempts in a row without an answer that end the evaluation: the policy is gone."""
_NOT_KEPT = ("group_id", "notice", "is_reported", "task", "transcript", "replaced")

Key = tuple[str | None, int, str, int | None]
"""A task by id, seed and split, and which sample of it; None is the greedy one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An episode of an evaluation."""

    sample: int | None
    """None: the greedy one; 0, 1, ...: those for pass@k."""
    episode: Episode
    ended_s: float

    @property
    def key(self) -> Key:
        return key_of(self.episode.task, self.sample)

    @property
    def is_graded(self) -> bool:
        """False of one that infrastructure lost."""
        return not self.episode.stop_reason.is_infrastructure


def key_of(task: TaskRef, sample: int | None) -> Key:
    return task.id, task.seed, task.split, sample


def each_attempt(folder: Path, *, with_transcripts: bool = True) -> Iterator[Attempt]:
    """All attempts in the order of their ends. Raises ConfigError for a line of something else."""
    path = folder / EPISODES_FILE
    for number, row in enumerate(each_json_line(path), 1):
        try:
            yield _attempt_of(row, with_transcripts)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"cannot read {path}, object {number}: {error!r}") from error


class EvaluationRecord:
    """The writer of one evaluation's folder: a ledger for `rollout.evaluation`."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        lock: int,
        say: Callable[[str], None],
    ) -> None:
        """Use `open`."""
        self.folder = folder
        self.settings = settings
        self._lock: int | None = lock
        self._say = say
        self._graded = {
            attempt.key: attempt.episode
            for attempt in each_attempt(folder, with_transcripts=False)
            if attempt.is_graded
        }
        self._lines = JsonLines(folder / EPISODES_FILE)
        self._silent = 0
        self._now_and_then = NowAndThen(say)

    @classmethod
    def open(
        cls, folder: Path, settings: Settings, say: Callable[[str], None] = lambda _: None
    ) -> Self:
        """Begin an evaluation in a folder, or resume the one that is there.

        Raises StoreError when another process writes there, ConfigError when the evaluation there
        is of something else.
        """
        lock = lock_folder(folder, LOCK_FILE)
        try:
            begun = check_folder(folder, settings)
            if begun is not None:
                for line in _news(begun, settings):
                    say(line)
                settings = continued(begun, settings)
            try:
                write_settings(folder, settings)
            except OSError as error:
                raise StoreError(f"cannot write {folder / SETTINGS_FILE}: {error}") from error
            record = cls(folder, settings, lock, say)
        except BaseException:
            os.close(lock)
            raise
        if record.graded_episodes:
            say(f"{record.graded_episodes} of {settings.episodes} episodes are graded, and kept")
        return record

    @property
    def graded_episodes(self) -> int:
        return len(self._graded)

    def graded(self, task: TaskRef, sample: int | None) -> Episode | None:
        return self._graded.get(key_of(task, sample))

    def has_all(self, tasks: Sequence[TaskRef], samples: int) -> bool:
        """Whether nothing is left to run."""
        wanted = (None, *range(samples))
        return all(key_of(task, sample) in self._graded for task in tasks for sample in wanted)

    def ended(self, sample: int | None, episode: Episode) -> None:
        """Raises StoreError when it cannot be written, PolicyError when nobody answers any more."""
        attempt = Attempt(sample, episode, time.time())
        try:
            self._lines.append(_row_of(attempt))
        except ValueError:  # numbers that JSON does not know, in what a server or an agent said
            bare = replace(attempt, episode=replace(episode, transcript=None, scores={}))
            self._lines.append(_row_of(bare))
        if attempt.is_graded:
            self._graded[attempt.key] = replace(episode, transcript=None)
            self._silent = 0
            self._now_and_then(self.progress)
        elif episode.stop_reason is StopReason.POLICY_ERROR:
            self._silent += 1
            if self._silent >= _SILENT_ATTEMPTS:
                raise PolicyError(
                    f"the policy failed {self._silent} attempts in a row, the last: "
                    f"{episode.error}; {self.progress}, the same command continues with the others"
                )

    @property
    def progress(self) -> str:
        """Progress in words."""
        return f"{self.graded_episodes} of {self.settings.episodes} episodes are graded"

    def close(self) -> None:
        """Close it; idempotent."""
        self._lines.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def check_folder(folder: Path, settings: Settings) -> Settings | None:
    """The evaluation that is there, or None. Raises ConfigError where it is of something else."""
    if not (folder / SETTINGS_FILE).exists():
        foreign = [name for name in ("config.yaml", EPISODES_FILE) if (folder / name).exists()]
        if foreign:
            raise ConfigError(
                f"{folder} holds something else ({foreign[0]}, and no {SETTINGS_FILE}); choose "
                "another folder: run.dir=PATH"
            )
        return None
    begun = read_settings(folder)
    continued(begun, settings)
    return begun


def check_free(folder: Path) -> None:
    """Raise ConfigError while another process evaluates there."""
    owner = holder_of(folder, LOCK_FILE)
    if owner is not None:
        raise ConfigError(in_use(folder, owner))


def unfinished(root: Path, pattern: str, settings: Settings) -> Path | None:
    """The newest folder with the same evaluation that has not ended and that nobody writes to."""
    folders = [path.parent for path in root.glob(f"{pattern}/{SETTINGS_FILE}")]
    for folder in sorted(folders, reverse=True):
        if (folder / EVALUATION_FILE).exists() or holder_of(folder, LOCK_FILE):
            continue
        with suppress(ConfigError):  # of another version, or half of one
            begun = read_settings(folder)
            if begun.episodes == settings.episodes and not any(begun.differences(settings)):
                return folder
    return None


def _news(begun: Settings, now: Settings) -> Iterator[str]:
    """Changes since the start that do not prevent resuming."""
    move = begun.moves(now)
    if move:
        yield move
    commits = {start.get("commit") for start in begun.starts} - {None}
    commit = git_commit()
    if commit and commits and commits != {commit}:
        yield (
            f"earlier episodes were graded by the code of {', '.join(sorted(map(str, commits)))}, "
            f"here is {commit}"
        )


def _row_of(attempt: Attempt) -> dict[str, object]:
    episode = attempt.episode
    row = {
        "task": asdict(episode.task), "sample": attempt.sample, "success": episode.success,
        "ended_s": round(attempt.ended_s, 3),
    }  # fmt: skip
    own = {
        column.name: getattr(episode, column.name)
        for column in fields(Episode)
        if column.name not in _NOT_KEPT
    }
    transcript = episode.transcript
    return {**row, **own, "transcript": None if transcript is None else asdict(transcript)}


def _attempt_of(row: Mapping[str, Any], with_transcript: bool) -> Attempt:
    """Any: what a line of the file holds. Raises KeyError, TypeError or ValueError."""
    told = row["transcript"] if with_transcript else None
    transcript = None
    if told is not None:
        transcript = Transcript(**{**told, "answers": [Answer(**one) for one in told["answers"]]})
    kept = {
        column.name: row[column.name]
        for column in fields(Episode)
        if column.name not in _NOT_KEPT and column.name != "stop_reason" and column.name in row
    }
    episode = Episode(
        group_id=None,
        task=TaskRef(**row["task"]),
        stop_reason=StopReason(row["stop_reason"]),
        transcript=transcript,
        **kept,
    )
    return Attempt(row["sample"], episode, float(row["ended_s"]))
