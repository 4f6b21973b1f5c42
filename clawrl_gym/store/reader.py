"""Read a run's database, beside its writer or long after it has ended. Takes no lock.

Queries of live conversations (open sessions, turns without a verdict or a sample) are answered from
an index, however long the run.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from clawrl_gym.core.episode_ids import member_of
from clawrl_gym.core.metrics import REFUSED
from clawrl_gym.core.ownership import OWNER, id_range, user_of
from clawrl_gym.core.types import (
    INTERRUPTED,
    Compared,
    Message,
    Sample,
    Turn,
    Verdict,
    is_success,
)
from clawrl_gym.store.rows import (
    JudgedTurn,
    OpenSession,
    SessionRow,
    SessionSummary,
    Source,
    StoredGroup,
    StoredNode,
    UpdateRow,
    UserCounts,
    session_of,
    unpack_ints,
    update_of,
    verdict_of,
)
from clawrl_gym.store.schema import DATABASE_FILE, connect_reader
from clawrl_gym.store.training import sample_of
from clawrl_gym.store.turns import TURN_COLUMNS, each_turn, turns_by_id
from clawrl_gym.store.verdicts import can_teach, effective

_NODES = (
    "SELECT session_id, turns.id, idx, turns.kind, finish_reason, turns.created_s, "
    "EXISTS (SELECT 1 FROM next_states WHERE turn_id = turns.id), mark FROM turns"
)
_VERDICT_NAMES = {1: "+1", 0: "0", -1: "-1", None: "abstain"}


class StoreReader:
    """Blocking reads over one connection; use it on one thread."""

    def __init__(self, folder: Path, db: sqlite3.Connection | None = None) -> None:
        """`db`: the writer's own connection, of a run in memory; the caller keeps the two apart.

        Raises StoreError when the folder holds no run that this version can read.
        """
        self._db = connect_reader(folder / DATABASE_FILE) if db is None else db
        self._is_writers = db is not None

    def close(self) -> None:
        if not self._is_writers:
            self._db.close()

    def group_outcomes(self) -> list[tuple[int, str | None, int, int]]:
        """Each accepted group, in order: number, task, episodes with a reward, solved.

        Only the newest episode of each member counts: those before it were given up, or a killed
        process's.
        """
        ends: dict[int, dict[str, tuple[float | None, bool | None]]] = defaultdict(dict)
        sessions = self._db.execute(
            "SELECT group_id, id, reward, solved FROM sessions WHERE source = 'rollout' "
            "AND group_id IS NOT NULL ORDER BY rowid"
        )
        for group_id, session_id, reward, solved in sessions:
            ends[group_id][member_of(session_id)] = (
                reward,
                None if solved is None else bool(solved),
            )
        outcomes = []
        groups = self._db.execute("SELECT group_id, task_id FROM groups ORDER BY position")
        for group_id, task_id in groups:
            graded = [end for end in ends[group_id].values() if end[0] is not None]
            successes = sum(is_success(reward, solved) for reward, solved in graded)
            outcomes.append((group_id, task_id, len(graded), successes))
        return outcomes

    def begun_groups(self) -> dict[int, str]:
        """The tasks of groups that were begun and never accepted, by number."""
        rows = self._db.execute(
            "SELECT DISTINCT group_id, task_id FROM sessions WHERE source = 'rollout' "
            "AND group_id IS NOT NULL AND task_id IS NOT NULL "
            "AND group_id NOT IN (SELECT group_id FROM groups)"
        )
        return dict(rows.fetchall())

    def sessions(self) -> list[SessionRow]:
        """All sessions in the order of their start."""
        rows = self._db.execute("SELECT * FROM sessions ORDER BY rowid")
        return [session_of(row) for row in rows]

    def live_ids(self) -> set[str]:
        """Ids of all live sessions."""
        rows = self._db.execute("SELECT id FROM sessions WHERE source = 'live'")
        return {session_id for (session_id,) in rows}

    def session(self, session_id: str) -> SessionRow | None:
        row = self._db.execute("SELECT * FROM sessions WHERE id=?", (session_id,)).fetchone()
        return None if row is None else session_of(row)

    def each_turn_of(self, session_id: str) -> Iterator[Turn]:
        """The session's turns in the order of their positions, one at a time."""
        query = f"SELECT {TURN_COLUMNS} FROM turns WHERE session_id=? ORDER BY id"
        return each_turn(self._db.execute(query, (session_id,)))

    def turns_of(self, session_id: str) -> list[Turn]:
        """All turns of the session in order; for long sessions rather a page or the last ones."""
        return sorted(self.each_turn_of(session_id), key=lambda turn: turn.index)

    def page_of_turns(self, session_id: str, first: int, count: int) -> list[Turn]:
        """The session's turns from an index on, in order."""
        query = "SELECT id FROM turns WHERE session_id=? AND idx >= ? ORDER BY idx LIMIT ?"
        return self._in_order(query, (session_id, first, count))

    def last_turns(self, session_id: str, count: int) -> list[Turn]:
        """The session's newest turns, in order."""
        query = "SELECT id FROM turns WHERE session_id=? ORDER BY idx DESC LIMIT ?"
        return self._in_order(query, (session_id, count))

    def turn(self, turn_id: int) -> Turn | None:
        return next(iter(turns_by_id(self._db, [turn_id])), None)

    def answered_turn(self, answer_id: str) -> Turn | None:
        """The turn that a client names so."""
        query = "SELECT id FROM turns WHERE answer_id=? AND answer_id != ''"
        row = self._db.execute(query, (answer_id,)).fetchone()
        return None if row is None else self.turn(row[0])

    def next_states_of(self, session_id: str) -> dict[int, list[Message]]:
        """Next states by turn id; a turn that still waits for its own has no entry."""
        rows = self._db.execute(
            "SELECT turn_id, next_states.messages FROM next_states "
            "JOIN turns ON turns.id = turn_id WHERE session_id=?",
            (session_id,),
        )
        return {turn_id: json.loads(messages) for turn_id, messages in rows}

    def next_state_of(self, turn_id: int) -> list[Message] | None:
        query = "SELECT messages FROM next_states WHERE turn_id=?"
        row = self._db.execute(query, (turn_id,)).fetchone()
        return None if row is None else json.loads(row["messages"])

    def verdicts_of(self, session_id: str) -> dict[int, list[Verdict]]:
        """Verdicts by turn id, oldest first."""
        rows = self._db.execute(
            "SELECT verdicts.* FROM turns JOIN verdicts ON turn_id = turns.id "
            "WHERE session_id=? ORDER BY verdicts.id",
            (session_id,),
        )
        verdicts: defaultdict[int, list[Verdict]] = defaultdict(list)
        for row in rows:
            verdicts[row["turn_id"]].append(verdict_of(row))
        return dict(verdicts)

    def judgeable_turns(self, source: Source) -> dict[str, list[int]]:
        """The turns that a judge of the run reads, by session: main ones with a next state; in
        episodes those for training that have a reward, without replies that broke off or cannot be
        trained on."""
        rows = self._db.execute(
            "SELECT session_id, turns.id FROM turns JOIN sessions ON sessions.id = session_id "
            "WHERE turns.kind = 'main' AND source = ? "
            "AND EXISTS (SELECT 1 FROM next_states WHERE turn_id = turns.id) "
            "AND (source = 'live' OR "
            "(split = 'train' AND reward IS NOT NULL AND finish_reason != ? AND untrainable = '')) "
            "ORDER BY sessions.rowid, turns.id",
            (source, INTERRUPTED),
        )
        turns: defaultdict[str, list[int]] = defaultdict(list)
        for session_id, turn_id in rows:
            turns[session_id].append(turn_id)
        return dict(turns)

    def live_verdicts(self) -> Iterator[tuple[int, list[Verdict]]]:
        """Each judged live turn, in order: its newest weight version, and its verdicts."""
        rows = self._db.execute(
            "SELECT verdicts.*, turns.versions FROM verdicts JOIN turns ON turns.id = turn_id "
            "JOIN sessions ON sessions.id = session_id WHERE source = 'live' "
            "ORDER BY turn_id, verdicts.id"
        )
        for _, of_turn in itertools.groupby(rows, key=lambda row: row["turn_id"]):
            own = list(of_turn)
            newest = max(unpack_ints(own[0]["versions"]), default=-1)
            yield max(0, newest), [verdict_of(row) for row in own]

    def judged_turns(self, newest: int) -> list[JudgedTurn]:
        """Live turns that may be trained on, with the verdict that counts for each, in the order
        of these; no older ones than the `newest` verdicts are of."""
        rows = self._db.execute(
            "SELECT verdicts.*, turns.versions, turns.session_id FROM verdicts "
            "JOIN turns ON turns.id = turn_id JOIN sessions ON sessions.id = session_id "
            "WHERE source = 'live' AND split = 'train' AND turn_id IN "
            "(SELECT turn_id FROM (SELECT turn_id FROM verdicts ORDER BY id DESC LIMIT ?)) "
            "ORDER BY turn_id, verdicts.id",
            (newest,),
        )
        judged = []
        for _, of_turn in itertools.groupby(rows, key=lambda row: row["turn_id"]):
            own = list(of_turn)
            best = effective(map(verdict_of, own))
            if best is not None:
                version = max(unpack_ints(own[0]["versions"]), default=-1)
                judged.append(JudgedTurn(own[0]["session_id"], version, best))
        return sorted(judged, key=lambda turn: turn.verdict.id or 0)

    def praised_samples(self, newest: int) -> list[Sample]:
        """Samples that feedback praised and an update which serves has learned of, oldest first;
        none of feedback before the `newest` praises."""
        rows = self._db.execute(
            "SELECT samples.* FROM (SELECT DISTINCT turn_id FROM (SELECT turn_id FROM verdicts "
            "WHERE kind = 'feedback' AND reward > 0 ORDER BY id DESC LIMIT ?)) "
            "JOIN samples USING (turn_id) JOIN batches ON sample_id = samples.id "
            "JOIN updates USING (version) WHERE signal = 'feedback' AND samples.reward > 0 "
            "AND json_extract(updates.metrics, ?) IS NULL ORDER BY samples.id",
            (newest, f'$."{REFUSED}"'),
        )
        return [sample_of(row) for row in rows]

    def counts_of_users(self) -> dict[str, UserCounts]:
        """Counts by user with a live session; the owner's first."""
        live = "JOIN sessions ON sessions.id = session_id WHERE source = 'live'"
        undone = "json_extract(updates.metrics, ?) IS NOT NULL"
        key = f'$."{REFUSED}"'
        queries: dict[str, tuple[str, tuple[str, ...]]] = {
            "turns": (f"SELECT session_id FROM turns {live} AND kind = 'main'", ()),
            "feedback": (
                "SELECT session_id FROM verdicts JOIN turns ON turns.id = turn_id "
                f"{live} AND verdicts.kind = 'feedback'",
                (),
            ),
            "learned": (
                "SELECT session_id FROM batches JOIN samples ON samples.id = sample_id "
                f"JOIN updates USING (version) {live} AND NOT {undone}",
                (key,),
            ),
            "undone": (
                "SELECT session_id FROM batches JOIN samples ON samples.id = sample_id "
                f"JOIN updates USING (version) {live} AND {undone}",
                (key,),
            ),
            "waiting": (
                "SELECT session_id FROM samples JOIN groups USING (group_id) "
                f"{live} AND used_by IS NULL",
                (),
            ),
        }
        counts: defaultdict[str, UserCounts] = defaultdict(UserCounts)
        for name, (query, parameters) in queries.items():
            by_session = f"SELECT session_id, count(*) FROM ({query}) GROUP BY session_id"
            for session_id, count in self._db.execute(by_session, parameters):
                of_user = counts[user_of(session_id)]
                setattr(of_user, name, getattr(of_user, name) + count)
        return dict(sorted(counts.items()))

    def samples_of_session(self, session_id: str) -> list[Sample]:
        rows = self._db.execute(
            "SELECT * FROM samples WHERE session_id=? ORDER BY id", (session_id,)
        )
        return [sample_of(row) for row in rows]

    def untrained_samples(self) -> list[Sample]:
        """Samples in no batch and no used group: in store order, groups kept together."""
        rows = self._db.execute(
            "SELECT samples.*, min(id) OVER (PARTITION BY samples.group_id) AS first FROM samples "
            "LEFT JOIN groups USING (group_id) WHERE used_by IS NULL AND trained_by IS NULL "
            "AND id NOT IN (SELECT sample_id FROM batches) ORDER BY first, id"
        )
        return [sample_of(row) for row in rows]

    def untrained_groups(self) -> list[StoredGroup]:
        """Groups that no update has used, in the order of their acceptance."""
        waiting = self._db.execute(
            "SELECT group_id, user FROM groups WHERE used_by IS NULL ORDER BY position"
        )
        query = "SELECT * FROM samples WHERE group_id=? ORDER BY id"
        return [
            StoredGroup(
                number, [sample_of(row) for row in self._db.execute(query, (number,))], user
            )
            for number, user in waiting.fetchall()
        ]

    def is_taught_by_feedback(self, turn_id: int, *, waiting: bool) -> bool:
        """Whether a person's feedback made a sample of the turn; not `waiting`: one that an update
        has used already."""
        query = (
            "SELECT 1 FROM samples JOIN groups USING (group_id) "
            "WHERE turn_id=? AND signal='feedback' AND (? OR used_by IS NOT NULL)"
        )
        return self._db.execute(query, (turn_id, waiting)).fetchone() is not None

    def group_numbers(self) -> set[int]:
        """Ids of all accepted groups."""
        return {group_id for (group_id,) in self._db.execute("SELECT group_id FROM groups")}

    def compared(self, user: str = OWNER) -> list[Compared]:
        """The rewards that a user's accepted groups added to the algorithm's running means, in
        order."""
        rows = self._db.execute(
            "SELECT compared FROM groups WHERE compared IS NOT NULL AND user=? ORDER BY position",
            (user,),
        )
        return [Compared(*each) for (of_group,) in rows for each in json.loads(of_group)]

    def samples_of_update(self, version: int) -> list[Sample]:
        """The batch of an update, in its order; empty for a version that has no update."""
        rows = self._db.execute(
            "SELECT samples.* FROM batches JOIN samples ON samples.id = sample_id "
            "WHERE version=? ORDER BY position",
            (version,),
        )
        return [sample_of(row) for row in rows]

    def updates(self) -> list[UpdateRow]:
        """All updates of the run's own weights, oldest first."""
        rows = self._db.execute("SELECT * FROM updates ORDER BY version")
        return [update_of(row) for row in rows]

    def updates_of(self, user: str) -> list[UpdateRow]:
        """All updates of a user's weights, OWNER's are the run's own; oldest first."""
        if user == OWNER:
            return self.updates()
        rows = self._db.execute("SELECT * FROM user_updates WHERE user=? ORDER BY version", (user,))
        return [update_of(row) for row in rows]

    def newest_of_users(self) -> dict[str, UpdateRow]:
        """The newest update of each user who has weights of their own."""
        rows = self._db.execute("SELECT * FROM user_updates ORDER BY version")
        return {row["user"]: update_of(row) for row in rows}

    def unanswered_turns(self, session_id: str) -> set[int]:
        """Turns of a session without a next state."""
        rows = self._db.execute(
            "SELECT id FROM turns WHERE session_id=? "
            "AND NOT EXISTS (SELECT 1 FROM next_states WHERE turn_id = turns.id)",
            (session_id,),
        )
        return {turn_id for (turn_id,) in rows}

    def nodes_of(self, session_id: str, count: int) -> list[StoredNode]:
        """The session's newest turns, oldest of them first; reads no conversation."""
        rows = self._db.execute(
            f"{_NODES} WHERE session_id=? ORDER BY idx DESC LIMIT ?", (session_id, count)
        )
        return [_node_of(row) for row in reversed(rows.fetchall())]

    def open_nodes(self, limit: int) -> list[StoredNode]:
        """The newest turns of all open live sessions, newest first."""
        rows = self._db.execute(
            f"{_NODES} JOIN sessions ON sessions.id = session_id "
            "WHERE ended_s IS NULL AND source='live' ORDER BY turns.id DESC LIMIT ?",
            (limit,),
        )
        return [_node_of(row) for row in rows]

    def last_main_turn(self, session_id: str) -> int | None:
        row = self._db.execute(
            "SELECT id FROM turns WHERE session_id=? AND kind='main' ORDER BY idx DESC LIMIT 1",
            (session_id,),
        ).fetchone()
        return None if row is None else int(row["id"])

    def unjudged(self, limit: int, after_id: int = 0) -> list[int]:
        """Live main turns with a next state and no verdict, oldest first, after a position."""
        rows = self._db.execute(
            "SELECT turn_id FROM next_states WHERE judged = 0 AND turn_id > ? "
            "ORDER BY turn_id LIMIT ?",
            (after_id, limit),
        )
        return [turn_id for (turn_id,) in rows]

    def judged_without_sample(self) -> list[Verdict]:
        """The effective verdict of each turn that has one and no sample yet."""
        waiting = self._db.execute(
            "SELECT DISTINCT turn_id FROM verdicts WHERE settled = 0 ORDER BY turn_id"
        )
        verdicts = [self._verdict_on(turn_id) for (turn_id,) in waiting.fetchall()]
        return [v for v in verdicts if v is not None and can_teach(v)]

    def ended_without_yield(self) -> list[str]:
        """Live sessions whose end has not been processed, oldest first: their samples are not
        counted, or their outcome is not feedback on their last main turn yet."""
        rows = self._db.execute(
            "SELECT id FROM sessions WHERE source = 'live' AND ended_s IS NOT NULL AND ("
            "(why IS NULL AND COALESCE(samples, 0) = 0) OR (reward != 0 AND EXISTS ("
            "SELECT 1 FROM (SELECT id FROM turns WHERE session_id = sessions.id AND kind = 'main' "
            "ORDER BY idx DESC LIMIT 1) AS last WHERE NOT EXISTS ("
            "SELECT 1 FROM verdicts WHERE turn_id = last.id AND kind = 'feedback')))) "
            "ORDER BY ended_s"
        )
        return [session_id for (session_id,) in rows]

    def open_live_sessions(self) -> list[OpenSession]:
        """Live sessions that have not ended, longest quiet first."""
        rows = self._db.execute(
            "SELECT id, last_s FROM sessions WHERE ended_s IS NULL AND source='live' "
            "ORDER BY last_s"
        )
        return [OpenSession(session_id, last_s) for session_id, last_s in rows]

    def session_summaries(
        self, limit: int = 100, open_only: bool = False, user: str | None = None
    ) -> list[SessionSummary]:
        """Sessions for a list, last active first; `user`: None for everybody's."""
        of_user, parameters = _of_user(user)
        is_open = "ended_s IS NULL" if open_only else "1"
        rows = self._db.execute(
            f"SELECT * FROM sessions WHERE {of_user} AND {is_open} ORDER BY last_s DESC LIMIT ?",
            (*parameters, limit),
        )
        return [self._summary(row) for row in rows.fetchall()]

    def stored_bytes(self, user: str | None = None) -> int:
        """Approximate bytes on the disk of the turns and next states of sessions, logs included;
        `user`: None for everybody's."""
        of_user, parameters = _of_user(user)
        query = f"SELECT coalesce(sum(bytes), 0) FROM sessions WHERE {of_user}"
        return int(self._db.execute(query, parameters).fetchone()[0])

    def expired_sessions(self, ended_before_s: float, user: str | None = None) -> list[str]:
        """Live sessions that ended earlier, oldest first; `user`: None for everybody's."""
        of_user, parameters = _of_user(user)
        rows = self._db.execute(
            f"SELECT id FROM sessions WHERE {of_user} AND source='live' AND ended_s < ? "
            "ORDER BY ended_s",
            (*parameters, ended_before_s),
        )
        return [session_id for (session_id,) in rows]

    def _in_order(self, query: str, parameters: tuple[str | int, ...]) -> list[Turn]:
        ids = [turn_id for (turn_id,) in self._db.execute(query, parameters).fetchall()]
        return sorted(turns_by_id(self._db, ids), key=lambda turn: turn.index)

    def _summary(self, row: sqlite3.Row) -> SessionSummary:
        counted = self._db.execute(
            "SELECT kind, count(*) FROM turns WHERE session_id=? GROUP BY kind", (row["id"],)
        )
        kinds = dict(counted.fetchall())
        judged = self._db.execute(
            "SELECT DISTINCT turn_id FROM turns JOIN verdicts ON turn_id = turns.id "
            "WHERE session_id=?",
            (row["id"],),
        )
        verdicts = Counter(
            _VERDICT_NAMES[verdict.value]
            for (turn_id,) in judged.fetchall()
            if (verdict := self._verdict_on(turn_id)) is not None
        )
        return SessionSummary(
            session_of(row), row["last_s"], kinds.get("main", 0), kinds.get("side", 0),
            dict(verdicts),
        )  # fmt: skip

    def _verdict_on(self, turn_id: int) -> Verdict | None:
        rows = self._db.execute("SELECT * FROM verdicts WHERE turn_id=? ORDER BY id", (turn_id,))
        return effective(verdict_of(row) for row in rows)


def _of_user(user: str | None) -> tuple[str, tuple[str, ...]]:
    """A condition on sessions, and its parameters."""
    if user is None:
        return "1", ()
    if user == OWNER:
        return "instr(id, '/') = 0", ()
    return "id >= ? AND id < ?", id_range(user)


def _node_of(row: sqlite3.Row) -> StoredNode:
    session_id, turn_id, index, kind, finish_reason, created_s, has_next_state, text = row
    return StoredNode(
        session_id, turn_id, index, kind, finish_reason, created_s, bool(has_next_state), text
    )
