"""Tables that many episodes share, and what one episode changes in them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from clawrl_gym.envs.toolcall.toolset import ToolFailure

Data = Mapping[str, Mapping[str, Any]]
"""Tables by name, rows by id; never written."""


class Tables:
    """The data as one episode sees it."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._changed: dict[str, dict[str, Any]] = {name: {} for name in data}

    def row(self, table: str, row: str) -> Any:
        """To be read only. Raises ToolFailure when it is not there."""
        if row not in self._data[table]:
            raise ToolFailure(f"{table[:-1]} not found")
        return self._changed[table].get(row, self._data[table][row])

    def edit(self, table: str, row: str) -> Any:
        """The episode's own copy of a row, to be written."""
        if row not in self._changed[table]:
            self._changed[table][row] = copy.deepcopy(self._data[table][row])
        return self._changed[table][row]

    def changes(self) -> dict[str, Any]:
        """The rows that are other than at the start, by table and id."""
        return {
            table: {row: value for row, value in rows.items() if value != self._data[table][row]}
            for table, rows in self._changed.items()
        }
