"""Session ids of a group's episodes: whose turn in the group it was, and which attempt.

An episode that infrastructure ended is played again under another id, and a group that was under
way when its run was killed as a whole: the newest episode of a member is the one that counts.
"""

from __future__ import annotations

import re
from uuid import uuid4

_EPISODE_ID = re.compile(r"(g\d+-\d+)-\d+-\w+")


def episode_id(group: int, member: int, retry: int) -> str:
    """A new one."""
    return f"g{group:06d}-{member}-{retry}-{uuid4().hex[:8]}"


def member_of(session_id: str) -> str:
    """What all attempts of a member have in common; of another id all of it."""
    match = _EPISODE_ID.fullmatch(session_id)
    return session_id if match is None else match[1]
