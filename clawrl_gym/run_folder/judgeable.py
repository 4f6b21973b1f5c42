"""The stored turns of a run that a judge can read, as the run's own judge read them.

In a training those of training episodes with a reward, in `serve` those of conversations. Whether
user messages are a person's words, and failures marked, was its environment's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clawrl_gym.config import EnvConfig, RunConfig
from clawrl_gym.core.errors import StoreError, boundary
from clawrl_gym.core.spread import evenly
from clawrl_gym.core.types import Message, Turn, Verdict
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.store import StoreReader
from clawrl_gym.ui.run_data import is_serving


class Reading(NamedTuple):
    """A judge's way to read what came back, see `VerdictMaker`."""

    observed: bool = False
    marks_failures: bool = False


@dataclass(frozen=True, slots=True)
class JudgeableSession:
    """Some turns of one session."""

    id: str
    reading: Reading
    turn_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A judge's input for a turn, and its earlier verdict."""

    turn: Turn
    next_state: list[Message]
    verdicts: Sequence[Verdict]
    """Oldest first."""
    reading: Reading


@dataclass(frozen=True, slots=True)
class JudgeableTurns:
    """All turns of a run that a judge can read, or some of them."""

    sessions: Sequence[JudgeableSession]
    left_out: int
    """Turns whose environment is no longer known."""

    def __len__(self) -> int:
        return sum(len(session.turn_ids) for session in self.sessions)

    def spread(self, count: int) -> JudgeableTurns:
        """Select `count` of them, evenly over the run."""
        ids = [turn_id for session in self.sessions for turn_id in session.turn_ids]
        chosen = set(evenly(ids, count))
        sessions = [
            JudgeableSession(session.id, session.reading, own)
            for session in self.sessions
            if (own := [turn_id for turn_id in session.turn_ids if turn_id in chosen])
        ]
        return JudgeableTurns(sessions, self.left_out)


def judgeable_turns(folder: RunFolder) -> JudgeableTurns:
    """Judgeable turns of a run. Raises ConfigError for no run, StoreError for an unreadable one."""
    is_live = is_serving(folder.read_values())
    reading_of = _of_people if is_live else _by_task(folder.read_config(RunConfig))
    with boundary(StoreError, f"cannot read the database of {folder.path}"):
        reader = StoreReader(folder.path)
        try:
            turns = reader.judgeable_turns("live" if is_live else "rollout")
            tasks = {session.id: session.task_id for session in reader.sessions()}
        finally:
            reader.close()
    sessions, left_out = [], 0
    for session_id, turn_ids in turns.items():
        reading = reading_of(tasks.get(session_id))
        if reading is None:
            left_out += len(turn_ids)
        else:
            sessions.append(JudgeableSession(session_id, reading, turn_ids))
    return JudgeableTurns(sessions, left_out)


def read_turns(
    reader: StoreReader, session: JudgeableSession, judged: Mapping[int, object]
) -> list[StoredTurn]:
    """Turns that are not judged yet; none of a session that was deleted meanwhile.

    Raises StoreError.
    """
    with boundary(StoreError, f"cannot read session {session.id}"):
        return list(_read_turns(reader, session, judged))


def _read_turns(
    reader: StoreReader, session: JudgeableSession, judged: Mapping[int, object]
) -> Iterator[StoredTurn]:
    wanted = set(session.turn_ids) - judged.keys()
    if not wanted:
        return
    next_states = reader.next_states_of(session.id)
    verdicts = reader.verdicts_of(session.id)
    for turn in reader.each_turn_of(session.id):
        if turn.id in wanted and turn.id in next_states:
            judgements = verdicts.get(turn.id, [])
            yield StoredTurn(turn, next_states[turn.id], judgements, session.reading)


ReadingOf = Callable[[str | None], Reading | None]
"""The reading for a session's task; None: not known."""


def _of_people(task_id: str | None) -> Reading | None:
    return Reading()


def _by_task(run: RunConfig) -> ReadingOf:
    """A session of a mixture does not say its environment: its task does, where that matters."""
    envs = [domain.env for domain in run.domains.values()]
    readings = {_reading(env) for env in envs}
    if len(readings) == 1:
        (same,) = readings
        return lambda task_id: same
    own = [(env.task_ids("train"), _reading(env)) for env in envs]

    def reading_of(task_id: str | None) -> Reading | None:
        is_seed = task_id is None or task_id.startswith("seed-")  # as `GatewayChat` labels one
        possible = {reading for ids, reading in own if (is_seed if ids is None else task_id in ids)}
        return possible.pop() if len(possible) == 1 else None

    return reading_of


def _reading(env: EnvConfig) -> Reading:
    return Reading(not env.has_people, env.marks_failures)
