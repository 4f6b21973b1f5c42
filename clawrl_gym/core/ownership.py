"""Owners of sessions: a stored id begins with its user's name, `anna/ID`.

The owner's sessions have the id that a client gave, which never holds a slash. So sessions of two
people never collide, whatever ids they choose, and whoever knows a session knows whose it is.
"""

from __future__ import annotations

import re

OWNER = ""
"""Whoever runs the service, by its own key; owns everything from before there were users."""
OWNER_NAME = "owner"
"""The owner's name as people write it."""
_SEPARATOR = "/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RESERVED = (OWNER_NAME, "policy")
"""Names that no user may have; the second begins the names of the shared versions."""


def stored_id(user: str, name: str) -> str:
    """The id of the session that a user calls `name`."""
    return f"{user}{_SEPARATOR}{name}" if user else name


def user_of(session_id: str) -> str:
    """The session's user; OWNER for the owner's sessions."""
    user, separator, _ = session_id.partition(_SEPARATOR)
    return user if separator else OWNER


def name_of(session_id: str) -> str:
    """The session's name as its user calls it."""
    return session_id.rpartition(_SEPARATOR)[2]


def id_range(user: str) -> tuple[str, str]:
    """First and last (excluded) stored id of a user other than the owner."""
    return f"{user}{_SEPARATOR}", f"{user}{chr(ord(_SEPARATOR) + 1)}"


def user_named(name: str) -> str:
    """The user that people mean by a name."""
    return OWNER if name == OWNER_NAME else name


def wrong_name(name: str) -> str | None:
    """Why a user cannot have this name; None when it is valid."""
    if _NAME.fullmatch(name) is None:
        return (
            f"got the user name {name[:80]!r}, expected 1 to 32 letters (a to z), digits or ._-, "
            "the first of them a letter or a digit"
        )
    if name.casefold() in _RESERVED:
        return f"got the user name {name!r}, which is taken, expected none of {list(_RESERVED)}"
    return None
