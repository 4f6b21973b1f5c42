"""The line that reports tasks whose verifiers give no verdict, whatever was done."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

_MOST_NAMED = 3


def broken_line(broken: Mapping[str, str]) -> str:
    """A sentence that lists the tasks that are not drawn, with reasons."""
    some = "; ".join(f"{name}: {reason}" for name, reason in islice(broken.items(), _MOST_NAMED))
    more = f"; and {len(broken) - _MOST_NAMED} more" if len(broken) > _MOST_NAMED else ""
    tasks = "1 task is" if len(broken) == 1 else f"{len(broken)} tasks are"
    return (
        f"{tasks} broken and not drawn ({some}{more}); `validate` checks again, and a task that is "
        "repaired is drawn again"
    )
