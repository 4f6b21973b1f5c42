"""The run's memory: one SQLite file and two logs beside it; see `store.py`."""

from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.rows import (
    JudgedTurn,
    OpenSession,
    SessionRow,
    SessionSummary,
    StoredGroup,
    StoredNode,
    UpdateRow,
    UserCounts,
)
from clawrl_gym.store.store import Store
from clawrl_gym.store.verdicts import effective

__all__ = [
    "JudgedTurn",
    "OpenSession",
    "SessionRow",
    "SessionSummary",
    "Store",
    "StoreReader",
    "StoredGroup",
    "StoredNode",
    "UpdateRow",
    "UserCounts",
    "effective",
]
