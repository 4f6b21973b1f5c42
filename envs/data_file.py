"""Files of rows: read so that a byte that is no UTF-8 costs only the row that it stands in."""

from __future__ import annotations

import json

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.text import is_whole


def read_rows_text(raw: bytes) -> str:
    """The text of a file, without its byte order mark; bytes that are no UTF-8 stay as halves of
    surrogate pairs, which `require_text` finds."""
    return raw.decode("utf-8-sig", "surrogateescape")


def require_text(row: object) -> None:
    """Raises TaskError for a row that holds what no UTF-8 can."""
    try:
        whole = is_whole(json.dumps(row, ensure_ascii=False, default=str))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"the row is no JSON: {error}") from error
    if not whole:
        raise TaskError("the row holds bytes that are no UTF-8, or half of a surrogate pair")
