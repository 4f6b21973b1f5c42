"""Tasks in the JSON of OSWorld that happen in a browser."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Opaque: TypeAlias = Any
"""JSON whose shape each rule of OSWorld has for itself. It is read as if it were right: whatever a
wrong shape raises is caught where a task is loaded, and where it is graded."""
RawTask: TypeAlias = Mapping[str, Opaque]
"""A task as its file holds it."""
