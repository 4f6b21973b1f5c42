"""Session ids of a group's episodes: group, member and attempt.

An episode that infrastructure ended is played again under another id, as is a group that was under
way when its run was killed as a whole: the newest episode of a member counts.
"""

from __future__ import annotations

import re
from uuid import uuid4

_EPISODE_ID = re.compile(r"(g\d+-\d+)-\d+-\w+")


def episode_id(group: int, member: int, retry: int) -> str:
    """Return a new id."""
    return f"g{group:06d}-{member}-{retry}-{uuid4().hex[:8]}"


def member_of(session_id: str) -> str:
    """The part that all attempts of a member share; any other id is returned whole."""
    match = _EPISODE_ID.fullmatch(session_id)
    return session_id if match is None else match[1]
