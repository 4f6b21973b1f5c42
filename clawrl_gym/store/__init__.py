"""The run's memory: one SQLite file and two logs beside it; see `store.py`."""

from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.rows import SessionRow, StoredGroup, UpdateRow
from clawrl_gym.store.store import Store

__all__ = ["SessionRow", "Store", "StoreReader", "StoredGroup", "UpdateRow"]
