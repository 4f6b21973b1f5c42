"""Which of a session's turns does a request follow, and which next states does it bring?

A turn's next state is what stands in a later main request between our reply and the assistant's
next message: a user's answer, or all tool results of parallel calls, in order. So:

- **One turn on**: the request is the turn's own messages, its reply, and something more. The chain
  of hashes proves it, however often the same words were said before.
- **Fork**: it follows an earlier turn. If that turn has its next state, it keeps it.
- **A turn in between that was not ours** (another model, a side turn that stayed in the history):
  the next state ends where that reply begins; none when nothing was said before it.
- **Edited, merged or compacted history**: no chain fits. Then the last reply decides, if it is one
  of ours: the turn with the most like replies before it, then the most like messages before it.
  Where several come as near, or nothing before it is known, it must be the session's newest turn,
  which waits, and the others must be of its own past; else nothing is said.
- **An edited reply** is not ours: what follows it was said to other words.
- **An interrupted reply** may come back in part, or not at all; see `interrupted`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from clawrl_gym.core.types import INTERRUPTED, Message
from clawrl_gym.dialogue.graph import Branch, TurnNode, said


@dataclass(frozen=True, slots=True)
class Match:
    """A turn's reply, found in a request."""

    mark: TurnNode
    at: int
    """Its position in the trail."""


def _replies_in(
    trail: Branch,
    marks: Sequence[TurnNode],
    waiting: Collection[int],
    under_way: Collection[bytes] = (),
) -> list[Match]:
    """The turns whose replies stand in a request, last first.

    `marks` are the session's turns, oldest first; `waiting` are the ids of those that have no next
    state yet; `under_way` are the chains of requests whose replies are still being made or
    were interrupted, so that these are not taken for others.
    """
    by_chain: dict[bytes, list[TurnNode]] = {}
    for mark in marks:
        by_chain.setdefault(mark.chain, []).append(mark)
    found = []
    for at in reversed(trail.replies):
        same = by_chain.get(trail.chains[at + 1])
        if same:
            found.append(Match(_twin(same, waiting), at))
    last = found[0].at if found else -1
    unknown = [at for at in trail.replies if at > last and trail.chains[at] not in under_way]
    likely = _most_like(trail, unknown, marks, waiting)
    return found if likely is None else [likely, *found]


def _most_like(
    trail: Branch, positions: list[int], marks: Sequence[TurnNode], waiting: Collection[int]
) -> Match | None:
    """The turn that the last known reply among `positions` belongs to, without any chain."""
    for at in reversed(positions):
        own = [mark for mark in marks if mark.reply == trail.digests[at]]
        if not own:
            continue
        passing = trail.passing(at)
        if any(mark.kind == "main" and passing in mark.passed for mark in marks):
            return None  # a fork: what followed this reply first was seen at that time
        likeness = {mark.turn_id: mark.likeness(trail, at) for mark in own}
        best = max(likeness.values())
        nearest = [mark for mark in own if likeness[mark.turn_id] == best]
        if best == (0, 0) or len({mark.chain for mark in nearest}) > 1:
            nearest = _only_newest(nearest, marks, waiting)
        return Match(_twin(nearest, waiting), at) if nearest else None
    return None


def _only_newest(
    alike: list[TurnNode], marks: Sequence[TurnNode], waiting: Collection[int]
) -> list[TurnNode]:
    """Of turns that cannot be told apart, the one that is being gone on with; none in doubt.

    It is the session's newest main turn and waits, and all others were said before it in the same
    conversation: a compacted history ends in the last reply, whatever was said in the same words.
    """
    newest = next((mark for mark in reversed(marks) if mark.kind == "main"), None)
    if newest is None or newest not in alike or newest.turn_id not in waiting:
        return []
    past = _past_of(newest, marks)
    return [newest] if all(mark is newest or mark.turn_id in past for mark in alike) else []


def _past_of(mark: TurnNode, marks: Sequence[TurnNode]) -> set[int]:
    """The turns whose replies a turn stands on."""
    by_passing = {other.passing: other for other in marks}
    past: set[int] = set()
    todo = [mark]
    while todo:
        for passing in todo.pop().passed:
            before = by_passing.get(passing)
            if before is not None and before.turn_id not in past:
                past.add(before.turn_id)
                todo.append(before)
    return past


def _twin(same: list[TurnNode], waiting: Collection[int]) -> TurnNode:
    """Of turns with the same request and the same reply, one that has its next state already.

    Else the newest: the same was asked again, and the same was said. One of them is gone on from.
    """
    answered = (mark for mark in same if mark.turn_id not in waiting)
    return next(answered, same[-1])


def next_states(
    trail: Branch,
    marks: Sequence[TurnNode],
    waiting: Collection[int],
    under_way: Collection[bytes] = (),
) -> list[tuple[TurnNode, list[Message]]]:
    """The next states that a main request brings to main turns that have none yet."""
    brought = []
    for match in _replies_in(trail, marks, waiting, under_way):
        state = trail.after(match.at)
        if state and match.mark.kind == "main" and match.mark.turn_id in waiting:
            brought.append((match.mark, state))
    return brought


def newest_goes_on(
    trail: Branch, newest: TurnNode | None, waiting: Collection[int]
) -> list[tuple[TurnNode, list[Message]]]:
    """The next state of an episode's newest turn, where its cut history says the same words twice.

    Only for sessions that are known to go straight on: it looks at the last reply alone.
    """
    if newest is None or newest.turn_id not in waiting or not trail.replies:
        return []
    at = trail.replies[-1]
    state = trail.after(at)
    return [(newest, state)] if state and trail.digests[at] == newest.reply else []


def followed(trail: Branch, marks: Sequence[TurnNode]) -> TurnNode | None:
    """The turn that a request goes on from, word for word; the newest of equal ones."""
    if not trail.replies:
        return None
    chain = trail.chains[trail.replies[-1] + 1]
    return next((mark for mark in reversed(marks) if mark.chain == chain), None)


def interrupted(trail: Branch, marks: Sequence[TurnNode]) -> list[TurnNode]:
    """Interrupted turns whose request stands before the last reply: it may be a part of theirs."""
    if not trail.replies:
        return []
    before = trail.chains[trail.replies[-1]]
    return [m for m in reversed(marks) if m.finish_reason == INTERRUPTED and m.request == before]


def is_part_of(sent_back: Message, reply: Message) -> bool:
    """Whether a message is the beginning of a reply, as a client keeps what it had seen of it."""
    part = said(sent_back)
    return bool(part) and not sent_back.get("tool_calls") and said(reply).startswith(part)
