"""Verdicts on turns, and the work that waits: turns for a verdict, verdicts for their sample.

Jobs for the writer. Explicit feedback wins over every other verdict, whenever it came.
"""

from __future__ import annotations

from collections.abc import Iterable

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import Verdict
from clawrl_gym.store.rows import VerdictColumns, to_json, verdict_of
from clawrl_gym.store.writer import Transaction


def effective(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The newest feedback among one turn's verdicts, oldest first; else the newest other."""
    last: Verdict | None = None
    for verdict in verdicts:
        if verdict.kind == "feedback" or last is None or last.kind != "feedback":
            last = verdict
    return last


def can_teach(verdict: Verdict) -> bool:
    """Whether a sample may come from it: it has a reward, or says in words what was better."""
    corrects = verdict.kind == "feedback" and bool(verdict.detail.get("text"))
    return verdict.reward is not None or bool(verdict.hints) or corrects


def add_verdict(tx: Transaction, verdict: Verdict) -> VerdictColumns:
    """Job: store a verdict; returns its columns, its position and its session.

    It is settled at once when no sample can come of it: an abstention without a hint, a rollout's
    turn (its group makes the samples), a judge's word after feedback.
    """
    owner = tx.one(
        "SELECT sessions.id, source FROM turns JOIN sessions ON sessions.id = session_id "
        "WHERE turns.id=?",
        (verdict.turn_id,),
    )
    if owner is None:
        raise StoreError(f"got a verdict on turn {verdict.turn_id}, expected a stored turn")
    if verdict.reward is not None and not -1 <= verdict.reward <= 1:
        raise StoreError(f"got a verdict's reward {verdict.reward:g}, expected one in [-1, 1]")
    if not 0 < verdict.weight <= 1:
        raise StoreError(f"got a verdict's weight {verdict.weight:g}, expected one in (0, 1]")
    is_feedback = verdict.kind == "feedback"
    no_sample = (
        not can_teach(verdict)
        or owner["source"] != "live"
        or (not is_feedback and _has_feedback(tx, verdict.turn_id))
    )
    if is_feedback:
        settle(tx, verdict.turn_id)
    detail = to_json(verdict.detail)
    row = {
        "turn_id": verdict.turn_id, "kind": verdict.kind, "value": verdict.value,
        "reward": verdict.reward, "detail": detail,
        "created_s": verdict.created_s, "settled": int(no_sample), "weight": verdict.weight,
    }  # fmt: skip
    position = tx.add("verdicts", row)
    tx.db.execute("UPDATE next_states SET judged=1 WHERE turn_id=?", (verdict.turn_id,))
    return {
        "id": position, "session_id": owner["id"], "turn_id": verdict.turn_id,
        "kind": verdict.kind, "value": verdict.value, "reward": verdict.reward,
        "detail": detail, "created_s": verdict.created_s, "weight": verdict.weight,
    }  # fmt: skip


def settle(tx: Transaction, turn_id: int) -> None:
    """Job: stop waiting for a sample of the turn's verdicts."""
    tx.db.execute("UPDATE verdicts SET settled=1 WHERE turn_id=? AND settled=0", (turn_id,))


def withdraw(tx: Transaction, turn_id: int) -> int:
    """Job: take back the turn's samples that are in no batch; its verdict waits again."""
    withdrawn = tx.db.execute(
        "DELETE FROM samples WHERE turn_id=? "
        "AND NOT EXISTS (SELECT 1 FROM batches WHERE sample_id = samples.id)",
        (turn_id,),
    ).rowcount
    if withdrawn:
        tx.positions.save(tx.db)
        rows = tx.db.execute("SELECT * FROM verdicts WHERE turn_id=? ORDER BY id", (turn_id,))
        best = effective(verdict for row in rows if can_teach(verdict := verdict_of(row)))
        if best is not None:
            tx.db.execute("UPDATE verdicts SET settled=0 WHERE id=?", (best.id,))
    return withdrawn


def _has_feedback(tx: Transaction, turn_id: int) -> bool:
    query = "SELECT 1 FROM verdicts WHERE turn_id=? AND kind='feedback'"
    return tx.one(query, (turn_id,)) is not None
