"""Whose a session is: its stored id begins with its user's name, `anna/ID`.

The owner's sessions have the id that a client gave, which never holds a slash: so no two people's
sessions can meet, whatever ids they choose, and everything that knows a session knows whose it is.
"""

from __future__ import annotations

import re

OWNER = ""
"""Who runs the service, by its own key: the user of whom everything is that was there before."""
OWNER_NAME = "owner"
"""How people write the owner."""
_SEPARATOR = "/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RESERVED = (OWNER_NAME, "policy")
"""The second begins the names of the shared versions."""


def stored_id(user: str, name: str) -> str:
    """The id of the session that a user calls `name`."""
    return f"{user}{_SEPARATOR}{name}" if user else name


def user_of(session_id: str) -> str:
    """Whose it is; OWNER for the owner's."""
    user, separator, _ = session_id.partition(_SEPARATOR)
    return user if separator else OWNER


def name_of(session_id: str) -> str:
    """As its user calls it."""
    return session_id.rpartition(_SEPARATOR)[2]


def id_range(user: str) -> tuple[str, str]:
    """From where to where, the end excluded, the stored ids of a user other than the owner lie."""
    return f"{user}{_SEPARATOR}", f"{user}{chr(ord(_SEPARATOR) + 1)}"


def user_named(name: str) -> str:
    """Whom people mean by a name."""
    return OWNER if name == OWNER_NAME else name


def wrong_name(name: str) -> str | None:
    """Why a user cannot have this name; None when they can."""
    if _NAME.fullmatch(name) is None:
        return (
            f"got the user name {name[:80]!r}, expected 1 to 32 letters (a to z), digits or ._-, "
            "the first of them a letter or a digit"
        )
    if name.casefold() in _RESERVED:
        return f"got the user name {name!r}, which is taken, expected none of {list(_RESERVED)}"
    return None
